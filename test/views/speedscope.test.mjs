// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import Ajv from "ajv";
import { makeFile, metrics, samples } from "./samples.mjs";
import { frames, importFile, schema } from "./speedscope_importer.mjs";

const matches = new Ajv({ strict: false }).compile(schema());
const make = (sample, metric) => makeFile(sample, "speedscope", "speedscope.json", metric);
const factor = { time: 1, words: 8, calls: 1 };
const unit = { time: "nanoseconds", words: "bytes", calls: "none" };

function sumOf(profiles, metric) {
  return profiles.filter((one) => one.getName().startsWith(`${metric} `))
    .reduce((sum, one) => sum + one.getTotalWeight(), 0);
}

function checkSampled(profile, frameCount) {
  assert.equal(profile.type, "sampled");
  assert.equal(profile.samples.length, profile.weights.length);
  assert.equal(profile.weights.reduce((sum, one) => sum + one, 0), profile.endValue);
  for (const sample of profile.samples)
    for (const frame of sample) assert.ok(frame < frameCount);
}

for (const sample of samples) {
  test(`${sample}: matches the schema, weights are complete`, () => {
    const data = JSON.parse(make(sample).text());
    assert.ok(matches(data), JSON.stringify(matches.errors?.slice(0, 2)));
    assert.ok(data.profiles.length > data.activeProfileIndex);
    const names = data.shared.frames.map((one) => one.name);
    assert.equal(new Set(names).size, names.length);
    for (const profile of data.profiles) checkSampled(profile, names.length);
  });

  test(`${sample}: the importer finds the totals`, { skip: sample === "large" }, async () => {
    const made = make(sample);
    const group = await importFile(made);
    for (const metric of metrics)
      assert.equal(sumOf(group.profiles, metric), made.expected.total[metric] * factor[metric]);
    for (const { pid, total } of made.expected.processes)
      for (const metric of metrics) {
        const own = group.profiles.filter((one) => one.getName().startsWith(`${metric} ${pid}`));
        assert.equal(sumOf(own, metric), total[metric] * factor[metric]);
        assert.ok(own.every((one) => one.getWeightUnit() === unit[metric]));
      }
  });
}

test("the importer finds each function's own and total time", async () => {
  for (const sample of ["small", "recursive", "hostile"]) {
    const made = make(sample);
    const { profiles } = await importFile(made);
    for (const { name, self, inclusive } of made.expected.functions) {
      const found = profiles.filter((one) => one.getName().startsWith("time "))
        .flatMap(frames).filter((one) => one.name === name);
      const sum = (weight) => found.reduce((all, one) => all + weight(one), 0);
      assert.equal(sum((one) => one.getTotalWeight()), inclusive.time, name);
      assert.equal(sum((one) => one.getSelfWeight()), self.own_ns, name);
    }
  }
});

test("the metric asked for is shown first", () => {
  for (const metric of metrics) {
    const data = JSON.parse(make("small", metric).text());
    assert.match(data.profiles[data.activeProfileIndex].name, new RegExp(`^${metric} <0.10`));
  }
});

test("the name tells what was profiled, lost and left out", () => {
  assert.match(JSON.parse(make("trouble").text()).name, /^shop:checkout\/1, .*1789 events lost/);
  assert.match(JSON.parse(make("large").text()).name, /of 200000 stacks are too small to show/);
});

test("a large profile is written and read in time", async () => {
  const made = make("large");
  const start = performance.now();
  const { profiles } = await importFile(made);
  const seconds = (performance.now() - start) / 1000;
  console.log(`large: ${made.expected.bytes} bytes in ${made.expected.seconds} s, ` +
    `${made.expected.peak_kib} KiB, imported in ${seconds.toFixed(1)} s`);
  for (const metric of metrics)
    assert.equal(sumOf(profiles, metric), made.expected.total[metric] * factor[metric]);
  assert.ok(made.expected.seconds < 2);
  assert.ok(made.expected.peak_kib < 256 * 1024);
});
