// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { readByHotspot } from "./hotspot_parser.mjs";
import { makeFile, makePerf, samples } from "./samples.mjs";

const make = (sample, metric) => makeFile(sample, "perf", "perf.data", metric);
const events = { time: "time-ns", words: "alloc-bytes", calls: "calls", binaries: "binary-bytes" };
const factor = (metric) => (metric === "words" ? 8 : 1);
const totals = (metrics) => Object.fromEntries(Object.entries(events).map(([metric, event]) => [event, metrics[metric] * factor(metric)]));

function perf(command, file, ...options) {
  return execFileSync("perf", [command, "-i", file, ...options], { encoding: "utf8", maxBuffer: 1 << 30, stdio: ["ignore", "pipe", "pipe"] });
}

// Samples as perf prints them, leaf first: {comm, event, period, frames}.
function* script(file) {
  const text = perf("script", file, "-F", "comm,tid,event,period,ip,sym", "--max-stack", "3000");
  for (const block of text.split("\n\n")) {
    const lines = block.split("\n").filter((line) => line !== "");
    const head = /^(.*?) +\d+ +(\d+) +([\w-]+): *$/.exec(lines[0] ?? "");
    if (!head) continue;
    const frames = lines.slice(1).map((line) => /^\s*[0-9a-f]+ (.*)$/.exec(line)?.[1]);
    yield { comm: head[1].trim(), event: head[3], period: Number(head[2]), frames };
  }
}

function sums(read) {
  const found = { total: { "time-ns": 0, "alloc-bytes": 0, calls: 0, "binary-bytes": 0 }, comms: new Map(), self: new Map(), inclusive: new Map() };
  const add = (map, key, period) => map.set(key, (map.get(key) ?? 0) + period);
  for (const { comm, event, period, frames } of read) {
    found.total[event] += period;
    add(found.comms, `${event} ${comm}`, period);
    add(found.self, `${event} ${frames[0]}`, period);
    for (const one of new Set(frames)) add(found.inclusive, `${event} ${one}`, period);
  }
  return found;
}

function checkFunctions(found, expected) {
  for (const { name, self, inclusive } of expected.functions)
    for (const [metric, event] of Object.entries(events)) {
      // What is off the CPU or in collection has a frame of its own.
      const own = metric === "time" ? self.own_ns : self[metric] * factor(metric);
      assert.equal(found.self.get(`${event} ${name}`) ?? 0, own, `${event} of ${name}`);
      assert.equal(found.inclusive.get(`${event} ${name}`) ?? 0, inclusive[metric] * factor(metric), `${event} of ${name}`);
    }
}

function checkProcesses(found, expected) {
  for (const { pid, total } of expected.processes)
    for (const [metric, event] of Object.entries(events)) {
      const comm = [...found.comms.keys()].find((one) => one.startsWith(`${event} ${pid}`));
      assert.equal(found.comms.get(comm) ?? 0, total[metric] * factor(metric), `${event} of ${pid}`);
    }
}

for (const sample of samples) {
  test(`${sample}: perf report finds the totals`, { skip: sample === "empty" }, () => {
    const made = make(sample);
    const text = perf("report", made.file, "--stdio", "-g", "none", "--no-children", "--sort", "comm", "--percent-limit", "101");
    const found = [...text.matchAll(/of event '([\w-]+)'\n# Event count \(approx\.\): (\d+)/g)].map(([, event, count]) => [event, Number(count)]);
    // It is silent on an event without samples.
    const expected = Object.entries(totals(made.expected.total)).filter(([, total]) => total > 0);
    assert.deepEqual(Object.fromEntries(found), Object.fromEntries(expected));
  });

  test(`${sample}: hotspot finds the totals and names`, () => {
    const made = makePerf(sample);
    const found = sums(readByHotspot(made.file));
    assert.deepEqual(found.total, totals(made.expected.total));
    if (!["deep", "large"].includes(sample)) checkFunctions(found, made.expected);
    checkProcesses(found, made.expected);
  });
}

for (const sample of ["small", "merge", "recursive", "trouble", "medium"]) {
  test(`${sample}: perf script finds stacks, functions and processes`, () => {
    const made = make(sample);
    const found = sums(script(made.file));
    assert.deepEqual(found.total, totals(made.expected.total));
    checkFunctions(found, made.expected);
    checkProcesses(found, made.expected);
  });
}

test("perf finds names in the file alone, wherever it is", () => {
  const made = makePerf("small");
  const folder = mkdtempSync(join(tmpdir(), "emberl-moved-"));
  try {
    renameSync(made.file, join(folder, "moved"));
    checkFunctions(sums(script(join(folder, "moved"))), made.expected);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("names are read back as they are", () => {
  const names = new Set([...script(make("hostile").file)].flatMap((one) => one.frames));
  for (const name of ["</script><script>window.hacked = 1</script>", "a;b;c 12", "# comment", "(3)", "åäö 日本語 🔥"])
    assert.ok(names.has(name), name);
});

test("deep stacks are read whole when asked for", () => {
  const depth = Math.max(...[...script(make("deep").file)].map((one) => one.frames.length));
  assert.ok(depth > 1900, `${depth}`);
});

test("the metric asked for comes first, and losses are told", () => {
  assert.match(perf("report", make("small", "words").file, "--stdio", "-g", "none"), /^# Samples: 5  of event 'alloc-bytes'/m);
  const { file } = make("trouble");
  assert.match(perf("report", file, "--header-only"), /cmdline : emberl .*1789 events lost; 12 calls/);
  assert.match(perf("report", file, "--stats"), /LOST events: +1 /);
});

test("a large profile is written in time", () => {
  const { seconds, bytes, peak_kib } = make("large").expected;
  console.log(`large: ${bytes} bytes in ${seconds} s, ${peak_kib} KiB`);
  assert.ok(seconds < 2);
  assert.ok(peak_kib < 256 * 1024);
});
