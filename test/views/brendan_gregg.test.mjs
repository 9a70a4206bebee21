// SPDX-License-Identifier: Apache-2.0
//
// Collapsed stacks, by the grammar of flamegraph.pl and by speedscope's importer.
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeFile, metrics, samples } from "./samples.mjs";
import { frames, importFile } from "./speedscope_importer.mjs";

const make = (sample, metric) => makeFile(sample, "brendan_gregg", "bggg", metric);
const expectedOf = (value, metric) => (metric === "time" ? Math.round(value / 1000) : value);
const sum = (list) => list.reduce((all, one) => all + one, 0);

// As flamegraph.pl reads a line: a number at the end, and none before it, which would
// make the two a comparison.
function readLine(line) {
  const [, stack, count] = /^(.*)\s+?(\d+(?:\.\d*)?)$/.exec(line) ?? assert.fail(line);
  assert.doesNotMatch(stack, /^(.*)\s+?(\d+(?:\.\d*)?)$/);
  return { frames: stack.split(";"), count: Number(count) };
}

const linesOf = (made) => made.text().split("\n").slice(0, -1).map(readLine);

for (const sample of samples) {
  test(`${sample}: lines are what flamegraph.pl reads, totals are the profile's`, () => {
    for (const metric of sample === "large" ? ["time"] : metrics) {
      const made = make(sample, metric);
      const lines = linesOf(made);
      assert.equal(sum(lines.map((one) => one.count)), expectedOf(made.expected.total[metric], metric));
      for (const { pid, total } of made.expected.processes) {
        const own = lines.filter((one) => one.frames[0].split("_")[0] === pid);
        const found = sum(own.map((one) => one.count));
        assert.ok(Math.abs(found - expectedOf(total[metric], metric)) <= (metric === "time" ? 1 : 0), pid);
      }
    }
  });

  test(`${sample}: the importer finds the totals`, { skip: ["empty", "large"].includes(sample) }, async () => {
    for (const metric of metrics) {
      const made = make(sample, metric);
      if (made.expected.total[metric] === 0) continue; // an empty file
      const { profiles } = await importFile(made);
      assert.equal(profiles[0].getTotalWeight(), expectedOf(made.expected.total[metric], metric));
    }
  });
}

test("each function has its own and total calls", async () => {
  for (const sample of ["small", "recursive"]) {
    const made = make(sample, "calls");
    const found = frames((await importFile(made)).profiles[0]);
    for (const { name, self, inclusive } of made.expected.functions) {
      const own = found.filter((one) => one.name === name);
      assert.equal(sum(own.map((one) => one.getSelfWeight())), self.calls);
      assert.equal(sum(own.map((one) => one.getTotalWeight())), inclusive.calls);
    }
  }
});

test("time in tiny stacks is not lost", () => {
  const made = make("medium");
  const lines = linesOf(made);
  for (const { name, inclusive } of made.expected.functions) {
    const found = sum(lines.filter((one) => one.frames.includes(name)).map((one) => one.count));
    const stacks = new Set(lines.filter((one) => one.frames.includes(name)).map((one) => one.frames.slice(0, one.frames.indexOf(name)).join(";"))).size;
    assert.ok(Math.abs(found - inclusive.time / 1000) <= stacks + 1, name);
  }
});

test("a large profile is written in time", () => {
  const { seconds, bytes, peak_kib } = make("large").expected;
  console.log(`large: ${bytes} bytes in ${seconds} s, ${peak_kib} KiB`);
  assert.ok(seconds < 2);
  assert.ok(peak_kib < 256 * 1024);
});
