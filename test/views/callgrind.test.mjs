// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { makeFile, samples } from "./samples.mjs";
import { importFile } from "./speedscope_importer.mjs";

const make = (sample) => makeFile(sample, "callgrind", "callgrind.out");
const events = ["own_ns", "off_cpu_ns", "waiting_ns", "gc_ns", "words", "calls", "binaries"];

function annotate(made, ...options) {
  const text = execFileSync("callgrind_annotate", ["--threshold=100", "--auto=no", ...options, made.file],
    { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "pipe"] });
  const counts = (line) => line.replace(/\([^()]*%\)/g, "").trim().split(/ +/, events.length).map((one) => Number(one.replaceAll(",", "")));
  const rows = new Map();
  let inTable = false;
  let total;
  for (const line of text.split("\n")) {
    if (line.endsWith("PROGRAM TOTALS")) total = counts(line);
    if (line.endsWith("file:function")) inTable = true;
    else if (inTable) {
      const row = /^((?: *[\d,]+ (?:\( *[\d.]+%\))? *){7}) (.*) \[(.*)\]$/.exec(line);
      if (row) rows.set(row[2], counts(row[1]));
    }
  }
  return { total, rows };
}

const expectedCounts = (metrics) => events.map((one) => metrics[one]);

for (const sample of samples) {
  test(`${sample}: callgrind_annotate finds the totals`, { skip: sample === "empty" }, () => {
    const made = make(sample);
    const { total, rows } = annotate(made);
    assert.deepEqual(total, expectedCounts(made.expected.total));
    const sum = [...rows.values()].reduce((all, one) => all.map((value, i) => value + one[i]), Array(events.length).fill(0));
    assert.deepEqual(sum, total);
  });
}

for (const sample of ["small", "merge", "recursive", "deep", "medium"]) {
  test(`${sample}: functions cost what they cost, with callees and without`, () => {
    const made = make(sample);
    const self = annotate(made).rows;
    const inclusive = annotate(made, "--inclusive=yes").rows;
    for (const one of made.expected.functions) {
      const name = [...self.keys()].find((key) => key.endsWith(`:${one.name}`) && key.length > one.name.length);
      assert.deepEqual(self.get(name) ?? Array(events.length).fill(0), expectedCounts(one.self), one.name);
      assert.deepEqual(inclusive.get(name) ?? Array(events.length).fill(0), expectedCounts(one.inclusive), one.name);
    }
  });
}

test("each name is read back", () => {
  const made = make("hostile");
  const { rows } = annotate(made);
  for (const name of ["a;b;c 12", "__proto__", "# comment", "<!--<script>", "åäö 日本語 🔥"])
    assert.ok(rows.has(`${name}:${name}`), name);
});

test("callers, callees and numbers of calls are read back", () => {
  const text = execFileSync("callgrind_annotate", ["--tree=both", "--threshold=100", make("small").file], { encoding: "utf8" });
  assert.match(text, /> {3}lists:lists:map\/2 \(50x\)/);
  assert.match(text, /< Elixir.Jason:Jason.encode!\/2 \(300x\)/);
  assert.match(text, /< processes:<0.101.0> pricing \(30x\)/);
});

test("speedscope imports one profile for each event", async () => {
  const made = make("small");
  const { profiles } = await importFile(made);
  assert.deepEqual(profiles.map((one) => one.getTotalWeight()), expectedCounts(made.expected.total));
});

test("a large profile is written in time", () => {
  const { seconds, bytes, peak_kib } = make("large").expected;
  console.log(`large: ${bytes} bytes in ${seconds} s, ${peak_kib} KiB`);
  assert.ok(seconds < 2);
  assert.ok(peak_kib < 256 * 1024);
});
