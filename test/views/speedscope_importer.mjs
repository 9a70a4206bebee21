// SPDX-License-Identifier: Apache-2.0
//
// speedscope's own importer, out of the page that its package ships: run as far as
// the importer is defined, with nothing of a browser behind it.
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import vm from "node:vm";

const require = createRequire(import.meta.url);
const release = join(dirname(require.resolve("speedscope/package.json")), "dist/release");

export const schema = () => JSON.parse(readFileSync(join(release, "file-format-schema.json"), "utf8"));

function importerOf(source) {
  const name = /async function ([\w$]+)\([\w$]+,[\w$]+\)\{return\(await [\w$]+\)\.importProfileGroupFromText/.exec(source)?.[1];
  const end = source.lastIndexOf("console.log(`speedscope v");
  if (!name || end < 0) throw new Error("speedscope's page is not what it was");
  return `${source.slice(0, end)}globalThis.importFromText=${name};})();`;
}

function load() {
  const nothing = new Proxy(function () {}, {
    get: (_, key) => (key === Symbol.toPrimitive ? () => "" : key === "then" ? undefined : nothing),
    set: () => true,
    apply: () => nothing,
    construct: () => nothing,
  });
  const names = ["document", "window", "localStorage", "location", "matchMedia", "Node", "HTMLElement",
    "HTMLCanvasElement", "HTMLInputElement", "FileReader", "requestAnimationFrame"];
  for (const name of names) globalThis[name] = nothing;
  globalThis.self = globalThis;
  const file = readdirSync(release).find((one) => /^speedscope-.*\.js$/.test(one));
  vm.runInThisContext(importerOf(readFileSync(join(release, file), "utf8")), { filename: file });
  return globalThis.importFromText;
}

const importFromText = load();

// What speedscope shows of the file: null when it does not know the format.
export async function importFile({ file, text }) {
  const { log, warn } = console;
  console.log = console.warn = () => {};
  try {
    return await importFromText(basename(file), text());
  } finally {
    Object.assign(console, { log, warn });
  }
}

export function frames(profile) {
  const found = [];
  profile.forEachFrame((frame) => found.push(frame));
  return found;
}
