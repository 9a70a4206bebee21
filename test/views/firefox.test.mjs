// SPDX-License-Identifier: Apache-2.0
//
// The Firefox Profiler is not on npm: this checks what its loader relies on in
// version 56 of the processed format, and adds up the call tree as its panels do.
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeFile, metrics, samples } from "./samples.mjs";

const make = (sample, metric) => makeFile(sample, "firefox", "firefox.json", metric);
const unit = { time: 1e-6, words: 8, calls: 1, binaries: 1 };
const weightType = { time: "tracing-ms", words: "bytes", calls: "samples", binaries: "bytes" };
const columns = {
  samples: ["stack", "time", "weight"],
  nativeAllocations: ["stack", "time", "weight"],
  stackTable: ["frame", "prefix"],
  frameTable: ["address", "inlineDepth", "category", "subcategory", "func", "nativeSymbol", "innerWindowID", "line", "column"],
  funcTable: ["name", "isJS", "relevantForJS", "resource", "fileName", "lineNumber", "columnNumber"],
  markers: ["data", "name", "startTime", "endTime", "phase", "category"],
  resourceTable: ["lib", "name", "host", "type"],
  nativeSymbols: ["libIndex", "address", "name", "functionSize"],
};

const inRange = (list, end) => assert.ok(list.every((one) => Number.isInteger(one) && one >= 0 && one < end));
const rising = (list) => assert.ok(list.every((one, i) => i === 0 || one >= list[i - 1]));
const sum = (list) => list.reduce((all, one) => all + one, 0);
const near = (value, expected) => assert.ok(Math.abs(value - expected) <= 1e-9 * expected + 1e-9, `${value} is not ${expected}`);

function checkThread(thread, { meta, shared: { stringArray } }) {
  for (const [table, names] of Object.entries(columns))
    for (const name of names) assert.equal(thread[table][name].length, thread[table].length, `${table}.${name}`);
  const { samples: own, nativeAllocations, stackTable, frameTable, funcTable } = thread;
  inRange(own.stack, stackTable.length);
  inRange(nativeAllocations.stack, stackTable.length);
  inRange(stackTable.frame, frameTable.length);
  inRange(frameTable.func, funcTable.length);
  inRange(frameTable.category, meta.categories.length);
  inRange(funcTable.name, stringArray.length);
  inRange(funcTable.fileName.filter((one) => one !== null), stringArray.length);
  stackTable.prefix.forEach((one, i) => assert.ok(i === 0 ? one === null : one >= 0 && one < i));
  rising(own.time);
  rising(nativeAllocations.time);
  assert.equal(typeof thread.pid, "string");
  assert.ok(Number.isInteger(thread.tid));
}

// Self and total weight of each function name in a thread.
function functionsOf(thread, { shared: { stringArray } }, table) {
  const { stackTable, frameTable, funcTable } = thread;
  const found = new Map();
  const nameOf = (stack) => stringArray[funcTable.name[frameTable.func[stackTable.frame[stack]]]];
  thread[table].stack.forEach((stack, i) => {
    const seen = new Set();
    for (let at = stack; at !== null; at = stackTable.prefix[at]) seen.add(nameOf(at));
    for (const name of seen) {
      const entry = found.get(name) ?? { self: 0, inclusive: 0 };
      entry.inclusive += thread[table].weight[i];
      if (name === nameOf(stack)) entry.self += thread[table].weight[i];
      found.set(name, entry);
    }
  });
  return found;
}

for (const sample of samples)
  test(`${sample}: tables fit together, weights are exact`, () => {
    for (const metric of sample === "large" ? ["time"] : metrics) {
      const made = make(sample, metric);
      const profile = JSON.parse(made.text());
      assert.equal(profile.meta.preprocessedProfileVersion, 56);
      assert.ok(profile.meta.categories.some((one) => one.color === "grey"));
      assert.equal(profile.threads.length, made.expected.processes.length);
      profile.threads.forEach((thread, i) => {
        const { pid, total } = made.expected.processes[i];
        checkThread(thread, profile);
        assert.equal(thread.pid, pid.replaceAll("\u0000", ""));
        assert.equal(thread.samples.weightType, weightType[metric]);
        near(sum(thread.samples.weight), total[metric] * unit[metric]);
        assert.equal(sum(thread.nativeAllocations.weight), total.words * 8);
      });
    }
  });

test("each weight has its nanoseconds", () => {
  const weights = JSON.parse(make("recursive").text()).threads[0].samples.weight;
  assert.deepEqual(weights.slice(0, 4), [0.001, 0.000001, 0.0002, 0.000003]);
});

test("each function has its own and total time", () => {
  for (const sample of ["small", "recursive"]) {
    const made = make(sample);
    const profile = JSON.parse(made.text());
    const found = profile.threads.map((thread) => functionsOf(thread, profile, "samples"));
    for (const { name, self, inclusive } of made.expected.functions) {
      near(sum(found.map((one) => one.get(name)?.self ?? 0)), self.own_ns / 1e6);
      near(sum(found.map((one) => one.get(name)?.inclusive ?? 0)), inclusive.time / 1e6);
    }
  }
});

test("what was lost is told", () => {
  const { meta } = JSON.parse(make("trouble").text());
  assert.match(meta.extra[0].entries.find((one) => one.label === "Mind").value, /1789 events lost/);
});

test("a large profile is written in time", () => {
  const { seconds, bytes, peak_kib } = make("large").expected;
  console.log(`large: ${bytes} bytes in ${seconds} s, ${peak_kib} KiB`);
  assert.ok(seconds < 2);
  assert.ok(peak_kib < 256 * 1024);
});
