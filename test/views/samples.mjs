// SPDX-License-Identifier: Apache-2.0
//
// Makes files of sample profiles, with what a reader should find in them.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const program = process.env.EMBER_VIEW_SAMPLE ?? join(root, "build/plain/view_sample");
const folder = mkdtempSync(join(tmpdir(), "emberl-views-"));
process.on("exit", () => rmSync(folder, { recursive: true }));

export const samples = ["small", "merge", "recursive", "trouble", "hostile", "empty", "deep", "medium", "large"];
export const metrics = ["time", "words", "calls", "binaries"];

const made = new Map();

export function makeFile(sample, format, extension, metric = "time") {
  const key = [sample, format, metric].join();
  if (!made.has(key)) made.set(key, make(sample, format, extension, metric));
  return made.get(key);
}

function make(sample, format, extension, metric) {
  const file = join(folder, `${sample}-${metric}.${extension}`);
  const output = execFileSync(program, [sample, format, file, metric], { maxBuffer: 1 << 28 });
  return { file, text: () => readFileSync(file, "utf8"), expected: JSON.parse(output) };
}

// With the file of symbols beside it, which is named in it.
export function makePerf(sample) {
  const symbols = makeFile(sample, "perf_symbols", "perf.symbols").file;
  const file = join(folder, `${sample}-symbols.perf.data`);
  const output = execFileSync(program, [sample, "perf", file, "time", symbols], { maxBuffer: 1 << 28 });
  return { file, expected: JSON.parse(output) };
}
