// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeFile, metrics, samples } from "./samples.mjs";
import { frames, importFile } from "./speedscope_importer.mjs";

const make = (sample, metric) => makeFile(sample, "chrome", "trace.json", metric);
const unit = { time: 1e-3, words: 1, calls: 1, binaries: 1 };
const sum = (list) => list.reduce((all, one) => all + one, 0);
const near = (value, expected, text) => assert.ok(Math.abs(value - expected) < 0.0005 + 1e-9 * expected, `${text}: ${value} is not ${expected}`);

// Begins and ends of each thread, in the order in which viewers pair them.
function checkNesting(events) {
  const threads = new Map();
  for (const { ph, tid, ts, name } of events) {
    if (ph === "M") continue;
    const thread = threads.get(tid) ?? { open: [], now: 0 };
    threads.set(tid, thread);
    assert.ok(ts >= thread.now);
    thread.now = ts;
    if (ph === "B") thread.open.push(name);
    else assert.equal(thread.open.pop(), name);
    assert.ok(thread.open.length <= 512);
  }
  for (const { open } of threads.values()) assert.equal(open.length, 0);
}

for (const sample of samples) {
  test(`${sample}: events nest, their lengths are the profile's`, () => {
    for (const metric of sample === "large" ? ["time"] : metrics) {
      const made = make(sample, metric);
      const { traceEvents, otherData } = JSON.parse(made.text());
      checkNesting(traceEvents);
      assert.match(otherData.layout, /not a timeline/);
      made.expected.processes.forEach(({ pid, total }, i) => {
        const own = traceEvents.filter((one) => one.tid === i + 1);
        assert.ok(own[0].args.name.startsWith(pid));
        near(own.filter((one) => one.ph === "E").at(-1)?.ts ?? 0, total[metric] * unit[metric], pid);
      });
    }
  });

  test(`${sample}: the importer finds the totals`, { skip: ["empty", "large"].includes(sample) }, async () => {
    const made = make(sample);
    const { profiles } = await importFile(made);
    assert.equal(profiles.length, made.expected.processes.filter(({ total }) => total.time > 0).length);
    near(sum(profiles.map((one) => one.getTotalNonIdleWeight())), made.expected.total.time * 1e-3);
  });
}

test("each function has its own and total time, calls and words", async () => {
  for (const sample of ["small", "merge", "recursive"]) {
    const made = make(sample);
    const { profiles } = await importFile(made);
    for (const { name, self, inclusive } of made.expected.functions) {
      const found = profiles.flatMap(frames).filter((one) => one.name.startsWith(`${name} {`));
      near(sum(found.map((one) => one.getSelfWeight())), self.own_ns * 1e-3, name);
      if (sample !== "recursive") near(sum(found.map((one) => one.getTotalWeight())), inclusive.time * 1e-3, name);
    }
  }
  const { traceEvents } = JSON.parse(make("small").text());
  assert.deepEqual(traceEvents.find((one) => one.name === "shop:price/1").args, { calls: 1000, words: 900 });
});

test("timeline: what happened when, with waiting and collections; its sums are the profile's", async () => {
  const made = make("timeline");
  const { traceEvents, otherData } = JSON.parse(made.text());
  checkNesting(traceEvents);
  assert.match(otherData.layout, /^a timeline: what happened when/);
  assert.ok(!traceEvents[0].args.name.includes("sums"));
  made.expected.processes.forEach(({ pid, total }, i) => {
    const own = traceEvents.filter((one) => one.tid === i + 1);
    const edges = own.filter(({ ph }) => ph !== "M");
    assert.ok(own[0].args.name.startsWith(pid));
    assert.equal(edges[0].ts, i);
    const lengthOf = (name) => sum(edges.filter((one) => one.name === name).map(({ ph, ts }) => (ph === "E" ? ts : -ts)));
    near(lengthOf("[waiting]"), total.waiting_ns * 1e-3, "waiting");
    near(lengthOf("[preempted]"), (total.off_cpu_ns - total.waiting_ns) * 1e-3, "preempted");
    near(lengthOf("[gc]"), total.gc_ns * 1e-3, "gc");
    near(edges.at(-1).ts - edges[0].ts, total.time * 1e-3, pid);
  });
  assert.equal(traceEvents.filter(({ ph, name }) => ph === "B" && name === "shop:price/1").length, 7);
  const { profiles } = await importFile(made);
  for (const { name, inclusive } of made.expected.functions) {
    const found = profiles.flatMap(frames).filter((one) => one.name === name);
    near(sum(found.map((one) => one.getTotalWeight())), inclusive.time * 1e-3, name);
  }
});

test("timeline: other metrics are sums, a large one is cut and says so", () => {
  assert.match(JSON.parse(make("timeline", "words").text()).otherData.layout, /not a timeline/);
  assert.match(JSON.parse(make("cut_timeline").text()).otherData.mind, /µs of timeline kept/);
  const made = make("large_timeline");
  const { traceEvents } = JSON.parse(made.text());
  const cuts = traceEvents.filter(({ ph }) => ph === "i");
  checkNesting(traceEvents.filter(({ ph }) => ph !== "i"));
  assert.equal(cuts.length, 4);
  assert.ok(traceEvents.length < 1000100, `${traceEvents.length}`);
  console.log(`large timeline: ${made.expected.bytes} bytes in ${made.expected.seconds} s`);
  assert.ok(made.expected.seconds < 2);
});

test("what was lost is told", () => {
  assert.match(JSON.parse(make("trouble").text()).otherData.mind, /1789 events lost/);
});

test("a large profile is written in time", () => {
  const { seconds, bytes, peak_kib } = make("large").expected;
  console.log(`large: ${bytes} bytes in ${seconds} s, ${peak_kib} KiB`);
  assert.ok(seconds < 2);
  assert.ok(peak_kib < 256 * 1024);
});
