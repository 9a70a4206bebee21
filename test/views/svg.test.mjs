// SPDX-License-Identifier: Apache-2.0
//
// The svg view as a file; test/browser/svg.test.mjs has it in a browser.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { makeFile, metrics, samples } from "./samples.mjs";

const make = (sample, metric) => makeFile(sample, "svg", "svg", metric);
const units = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, words: 1, calls: 1, bytes: 1 };

function xpath(made, expression) {
  return execFileSync("xmllint", ["--huge", "--xpath", expression, made.file], { encoding: "utf8", maxBuffer: 1 << 28 }).trim();
}

for (const sample of samples)
  test(`${sample}: is valid XML, asks for nothing, totals are the profile's`, () => {
    for (const metric of sample === "large" ? ["time"] : metrics) {
      const made = make(sample, metric);
      execFileSync("xmllint", ["--noout", "--huge", made.file]);
      assert.equal(xpath(made, "count(//@href | //@src | //*[local-name()='image' or local-name()='use' or local-name()='foreignObject'])"), "0");
      assert.equal(xpath(made, "count(//*[local-name()='script'])"), "1");
      const total = made.expected.total[metric];
      if (total === 0) continue;
      const [value, unit] = xpath(made, "string(//*[@id='emberl-frames']/*[1]/*[1])").split("\n")[1].split(", ")[0]
        .replace(/,(?=\d)/g, "").split(" ");
      assert.ok(Math.abs(Number(value) * units[unit] - total) < (metric === "time" ? units[unit] / 1000 : 1), `${value} ${unit}`);
    }
  });

test("processes add up", () => {
  const made = make("medium", "calls");
  const calls = xpath(made, "//*[@id='emberl-frames']/*[*[local-name()='rect']/@y='18']/*[1]/text()").match(/^[\d,]+ calls/gm)
    .map((one) => Number(one.replace(" calls", "").replaceAll(",", "")));
  assert.deepEqual(calls, made.expected.processes.map(({ total }) => total.calls));
});

test("a large profile is written in time", () => {
  const { seconds, bytes, peak_kib } = make("large").expected;
  console.log(`large: ${bytes} bytes in ${seconds} s, ${peak_kib} KiB`);
  assert.ok(seconds < 2);
  assert.ok(peak_kib < 256 * 1024);
  assert.ok(bytes < 5000000);
});
