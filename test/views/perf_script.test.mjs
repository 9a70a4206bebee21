// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeFile, metrics, samples } from "./samples.mjs";
import { frames, importFile } from "./speedscope_importer.mjs";

const make = (sample, metric) => makeFile(sample, "perf_script", "linux-perf.txt", metric);
const near = (value, expected, text) => assert.ok(Math.abs(value * 1e9 - expected) < 0.5 + 1e-9 * expected, `${text}: ${value * 1e9} is not ${expected}`);
const titled = (profiles, pid) => profiles.filter((one) => one.getName().startsWith(pid));
const sum = (list) => list.reduce((all, one) => all + one, 0);

for (const sample of samples)
  test(`${sample}: by times and by periods the totals are the profile's`, { skip: ["empty", "large"].includes(sample) }, async () => {
    for (const metric of metrics) {
      const made = make(sample, metric);
      if (made.expected.total[metric] === 0) continue; // an empty file
      const { profiles } = await importFile(made);
      for (const { pid, total } of made.expected.processes)
        near(sum(titled(profiles, pid).map((one) => one.getTotalWeight())), total[metric], pid);
      const periods = [...made.text().matchAll(/: +(\d+) (\S+): $/gm)].map((one) => Number(one[1]));
      assert.equal(sum(periods), made.expected.total[metric]);
    }
  });

test("each function has its own and total time", async () => {
  for (const sample of ["small", "merge", "recursive"]) {
    const made = make(sample);
    const { profiles } = await importFile(made);
    for (const { name, self, inclusive } of made.expected.functions) {
      const found = profiles.flatMap(frames).filter((one) => one.name === name);
      near(sum(found.map((one) => one.getSelfWeight())), self.own_ns, name);
      near(sum(found.map((one) => one.getTotalWeight())), inclusive.time, name);
    }
  }
});

test("each name is read back", async () => {
  const { profiles } = await importFile(make("hostile"));
  const names = profiles.flatMap(frames).map((one) => one.name);
  for (const name of ["a;b;c 12", "__proto__", "# comment", "(3)", "<!--<script>", "åäö 日本語 🔥"])
    assert.ok(names.includes(name), name);
  assert.equal(names.length, 14);
});

test("what was lost is told", () => {
  assert.match(make("trouble").text(), /^# ========\n# captured on {4}: Fri Jan {2}2 03:04:05 2026\n(# .*\n)*# mind .*1789 events lost/);
});

test("a large profile is written and read in time", async () => {
  const made = make("large");
  const { seconds, bytes, peak_kib } = made.expected;
  const start = performance.now();
  const { profiles } = await importFile(made);
  console.log(`large: ${bytes} bytes in ${seconds} s, ${peak_kib} KiB, imported in ${((performance.now() - start) / 1000).toFixed(1)} s`);
  near(sum(profiles.map((one) => one.getTotalWeight())), made.expected.total.time);
  assert.ok(seconds < 2);
  assert.ok(peak_kib < 256 * 1024);
});
