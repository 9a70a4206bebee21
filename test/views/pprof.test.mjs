// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { makeFile, samples } from "./samples.mjs";

const make = (sample, metric) => makeFile(sample, "pprof", "pb", metric);
const types = { calls: "calls", time: "time", own_ns: "own", off_cpu_ns: "off_cpu", waiting_ns: "waiting", gc_ns: "gc", words: "alloc_space", binaries: "binary_space" };
const count = Object.keys(types).length;
const factor = (metric) => (metric === "words" ? 8 : 1);

const pprof = (made, ...options) => execFileSync("go", ["tool", "pprof", "-symbolize=none", ...options, made.file],
  { encoding: "utf8", maxBuffer: 1 << 29, stdio: ["ignore", "pipe", "pipe"] });

const values = (metrics) => Object.keys(types).map((one) => metrics[one] * factor(one));

// Sums by pid, and of all.
function sums(raw) {
  const found = new Map([["all", Array(count).fill(0)]]);
  let sample = null;
  for (const line of raw.split("\n")) {
    const numbers = /^((?: *\d+){8}): /.exec(line);
    const pid = /pid:\[([^\]]*)\]/.exec(line);
    if (numbers) sample = numbers[1].trim().split(/ +/).map(Number);
    if (!pid || !sample) continue;
    for (const key of [pid[1], "all"])
      found.set(key, (found.get(key) ?? Array(count).fill(0)).map((sum, i) => sum + sample[i]));
    sample = null;
  }
  return found;
}

// Rows of -top: flat and cumulative, in the smallest unit.
function top(made, type) {
  const unit = { calls: "count", alloc_space: "bytes", binary_space: "bytes" }[type] ?? "ns";
  const text = pprof(made, "-top", `-sample_index=${type}`, `-unit=${unit}`, "-nodecount=1000000", "-nodefraction=0", "-edgefraction=0");
  const rows = new Map();
  for (const line of text.split("\n")) {
    const row = /^ *([\d.]+)(?:ns|B)? +[\d.e+-]+% +[\d.]+% +([\d.]+)(?:ns|B)? +[\d.e+-]+% {2}(.*)$/.exec(line);
    if (row) rows.set(row[3], { flat: Number(row[1]), cum: Number(row[2]) });
  }
  return rows;
}

for (const sample of samples) {
  test(`${sample}: pprof finds the totals`, () => {
    const made = make(sample);
    const found = sums(pprof(made, "-raw"));
    assert.deepEqual(found.get("all"), values(made.expected.total));
    for (const { pid, total } of made.expected.processes)
      assert.deepEqual(found.get(pid) ?? Array(count).fill(0), values(total), pid);
  });
}

for (const sample of ["small", "merge", "recursive", "medium"]) {
  test(`${sample}: functions cost what they cost, with callees and without`, () => {
    const made = make(sample);
    for (const [metric, type] of Object.entries(types)) {
      const rows = top(made, type);
      for (const { name, self, inclusive } of made.expected.functions) {
        const row = rows.get(name) ?? { flat: 0, cum: 0 };
        assert.equal(row.flat, self[metric] * factor(metric), `${type} of ${name}`);
        assert.equal(row.cum, inclusive[metric] * factor(metric), `${type} of ${name}`);
      }
    }
  });
}

test("names are read back as they are", () => {
  const rows = top(make("hostile"), "time");
  for (const name of ["<0.1.0> [x] (y) (z)+0x1f", "</script><script>window.hacked = 1</script>", "a;b;c 12", "# comment", "åäö 日本語 🔥"])
    assert.ok(rows.has(name), name);
});

test("processes can be chosen and shown as frames", () => {
  const text = pprof(make("small"), "-top", "-tagfocus=name=pricing");
  assert.match(text, /Jason.encode/);
  assert.doesNotMatch(text, /checkout\/1$/m);
  assert.match(pprof(make("small"), "-top", "-cum", "-tagroot=pid"), / 99ms +[\d.]+% {2}<0.101.0>$/m);
});

test("the metric asked for is shown, and losses are told", () => {
  for (const [metric, type] of [["time", "time"], ["words", "alloc_space"], ["calls", "calls"], ["binaries", "binary_space"]])
    assert.match(pprof(make("small", metric), "-top"), new RegExp(`^Type: ${type}$`, "m"));
  assert.match(pprof(make("trouble"), "-top"), /^1789 events lost; /m);
});

test("a large profile is written in time", () => {
  const { seconds, bytes, peak_kib } = make("large").expected;
  console.log(`large: ${bytes} bytes in ${seconds} s, ${peak_kib} KiB`);
  assert.ok(seconds < 2);
  assert.ok(peak_kib < 256 * 1024);
});
