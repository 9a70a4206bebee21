// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import Ajv from "ajv";
import { makeFile, metrics, samples } from "./samples.mjs";
import { frames, importFile, schema } from "./speedscope_importer.mjs";

const matches = new Ajv({ strict: false }).compile(schema());
const make = (sample, metric) => makeFile(sample, "speedscope", "speedscope.json", metric);
const factor = { time: 1, words: 8, calls: 1, binaries: 1 };
const unit = { time: "nanoseconds", words: "bytes", calls: "none", binaries: "bytes" };

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

// What an evented profile has of each stack, as consumers without an importer would sum it.
function sumEvents({ events, startValue, endValue }) {
  const own = new Map();
  const open = [];
  let now = startValue;
  for (const { type, frame, at } of events) {
    assert.ok(at >= now && at <= endValue);
    const key = open.join();
    own.set(key, (own.get(key) ?? 0) + at - now);
    now = at;
    if (type === "O") open.push(frame);
    else assert.equal(open.pop(), frame);
  }
  assert.equal(open.length, 0);
  own.delete("");
  return own;
}

test("timeline: evented, one a process; its sums are the profile's", async () => {
  const made = make("timeline");
  const data = JSON.parse(made.text());
  assert.ok(matches(data), JSON.stringify(matches.errors?.slice(0, 2)));
  const evented = data.profiles.filter(({ type }) => type === "evented");
  assert.equal(evented.length, made.expected.processes.length);
  evented.forEach((profile, i) => {
    const { pid, total } = made.expected.processes[i];
    assert.ok(profile.name.startsWith(`timeline ${pid}`));
    assert.equal(profile.startValue, 1000 * i);
    assert.equal(profile.endValue - profile.startValue, total.time);
    const own = [...sumEvents(profile)];
    const of = (name) => own.filter(([key]) => data.shared.frames[key.split(",").at(-1)].name === name).reduce((sum, [, time]) => sum + time, 0);
    assert.equal(of("[waiting]"), total.waiting_ns);
    assert.equal(of("[preempted]"), total.off_cpu_ns - total.waiting_ns);
    assert.equal(of("[gc]"), total.gc_ns);
    assert.equal(own.reduce((sum, [, time]) => sum + time, 0), total.time);
  });
  const { profiles } = await importFile(made);
  const timelines = profiles.filter((one) => one.getName().startsWith("timeline "));
  assert.equal(timelines.length, 2);
  for (const { name, self, inclusive } of made.expected.functions) {
    const found = timelines.flatMap(frames).filter((one) => one.name === name);
    const sum = (weight) => found.reduce((all, one) => all + weight(one), 0);
    assert.equal(sum((one) => one.getTotalWeight()), inclusive.time, name);
    assert.equal(sum((one) => one.getSelfWeight()), self.own_ns, name);
  }
});

test("timeline: what was cut is told", () => {
  assert.match(JSON.parse(make("cut_timeline").text()).name, /123456 µs of timeline kept/);
  assert.doesNotMatch(JSON.parse(make("timeline").text()).name, /timeline/);
});

test("timeline: a large one is cut to what the viewer takes", async () => {
  const made = make("large_timeline");
  const data = JSON.parse(made.text());
  const evented = data.profiles.filter(({ type }) => type === "evented");
  assert.equal(evented.length, 4);
  let events = 0;
  for (const profile of evented) {
    assert.match(profile.name, /\(first [0-9]+ µs\)$/);
    assert.ok(profile.endValue > profile.startValue);
    sumEvents(profile);
    events += profile.events.length;
  }
  assert.ok(events > 200000 && events <= 400000, `${events}`);
  console.log(`large timeline: ${made.expected.bytes} bytes in ${made.expected.seconds} s, ${made.expected.peak_kib} KiB`);
  assert.ok(made.expected.seconds < 2);
  assert.ok(made.expected.peak_kib < 256 * 1024);
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
