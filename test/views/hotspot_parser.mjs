// SPDX-License-Identifier: Apache-2.0
//
// What hotspot's perfparser makes of a perf.data file: it writes messages for hotspot,
// each a size (little endian), a type and its fields (big endian, as QDataStream does).
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const type = { COMMAND: 2, LOCATION: 3, SYMBOL: 4, STRING: 5, ATTRIBUTES: 11, SAMPLE: 13 };
const places = ["/usr/lib/x86_64-linux-gnu/libexec/hotspot-perfparser", "/usr/libexec/hotspot-perfparser"];
const program = places.find(existsSync) ?? "hotspot-perfparser";

function parse(file) {
  const folder = mkdtempSync(join(tmpdir(), "emberl-hotspot-"));
  try {
    const output = join(folder, "out");
    execFileSync(program, ["--input", file, "--output", output], { stdio: "ignore" });
    return readFileSync(output);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

class Fields {
  constructor(bytes) { this.bytes = bytes; this.at = 1; }
  u8() { return this.bytes[this.at++]; }
  i32() { this.at += 4; return this.bytes.readInt32BE(this.at - 4); }
  u64() { this.at += 8; return Number(this.bytes.readBigUInt64BE(this.at - 8)); }
  text() {
    const size = this.i32();
    this.at += Math.max(size, 0);
    return this.bytes.toString("utf8", this.at - Math.max(size, 0), this.at);
  }
}

function* messages(bytes) {
  for (let at = 16; at < bytes.length;) {
    const size = bytes.readUInt32LE(at);
    yield bytes.subarray(at + 4, at + 4 + size);
    at += 4 + size;
  }
}

function readSample(fields) {
  fields.i32();
  const sample = { tid: fields.i32(), time: fields.u64(), cpu: fields.i32(), locations: [], costs: [] };
  for (let count = fields.i32(); count > 0; count--) sample.locations.push(fields.i32());
  fields.u8();
  for (let count = fields.i32(); count > 0; count--) sample.costs.push([fields.i32(), fields.u64()]);
  return sample;
}

// Samples, leaf first: {comm, event, period, frames}.
export function* readByHotspot(file) {
  const strings = new Map();
  const commands = new Map();
  const parents = new Map();
  const symbols = new Map();
  const attributes = new Map();
  const found = [];
  for (const message of messages(parse(file))) {
    const fields = new Fields(message);
    if (message[0] === type.STRING) strings.set(fields.i32(), fields.text());
    else if (message[0] === type.SAMPLE) found.push(readSample(fields));
    else if (message[0] === type.SYMBOL) symbols.set(fields.i32(), fields.i32());
    else if (message[0] === type.LOCATION) parents.set(fields.i32(), message.readInt32BE(message.length - 4));
    else if (message[0] === type.COMMAND) {
      fields.i32();
      const tid = fields.i32();
      fields.u64();
      fields.i32();
      commands.set(tid, fields.i32());
    } else if (message[0] === type.ATTRIBUTES) {
      const id = fields.i32();
      fields.i32();
      fields.u64();
      attributes.set(id, fields.i32());
    }
  }
  const nameOf = (location) => strings.get(symbols.get(parents.get(location)));
  for (const { tid, locations, costs } of found)
    for (const [id, period] of costs)
      yield { comm: strings.get(commands.get(tid)), event: strings.get(attributes.get(id)), period, frames: locations.map(nameOf) };
}
