/* SPDX-License-Identifier: Apache-2.0
 *
 * What the page of the html view knows, without the document: units, the
 * profile, the trees built from it, their geometry, what lies on the screen,
 * search, the table of functions. Each part knows those above it; what shows
 * them is view_html.js, which follows this in one script.
 * Names come from the profiled program: they are shown as text, never as HTML.
 */

/* ---- Units ------------------------------------------------------------- */

const BYTES_PER_WORD = 8;

function threeDigits(number) {
  const size = Math.abs(number);
  return number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

function inUnits(number, step, units) {
  let unit = 0;
  while (Math.abs(number) >= step * 0.9995 && unit < units.length - 1) {
    number /= step;
    unit++;
  }
  const large = Math.abs(number) >= 1000;
  const digits = Number.isInteger(number) || large ? formatCount(number) : threeDigits(number);
  return `${digits} ${units[unit]}`;
}

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function formatCount(count) {
  return grouped.format(count);
}

function formatTime(ns) {
  return inUnits(ns, 1000, ["ns", "µs", "ms", "s"]);
}

function formatBytes(bytes) {
  return inUnits(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

function formatWords(words) {
  return `${formatCount(words)} ${words === 1 ? "word" : "words"} (${formatBytes(words * BYTES_PER_WORD)})`;
}

/* For a table whose row is called "Words". */
function formatBareWords(words) {
  const digits = Number.isInteger(words) || Math.abs(words) >= 100 ? formatCount(words) : threeDigits(words);
  return `${digits} (${formatBytes(words * BYTES_PER_WORD)})`;
}

function formatCalls(calls) {
  return `${formatCount(calls)} ${calls === 1 ? "call" : "calls"}`;
}

function formatShare(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(2)}%` : "–";
}

/* A change with its sign, in the unit of what changed. */
function formatChange(change, unit) {
  if (change === 0) return "0";
  return `${change > 0 ? "+" : "−"}${unit(Math.abs(change))}`;
}

/* A change as a part of what was before. */
function formatGrowth(before, after) {
  if (before === after) return "same";
  if (before === 0) return "new";
  if (after === 0) return "vanished";
  const factor = after / before;
  if (factor >= 10) return `×${formatCount(factor)}`;
  return `${factor > 1 ? "+" : "−"}${(100 * Math.abs(factor - 1)).toFixed(1)}%`;
}

/* ---- Profile ----------------------------------------------------------- */

/* `offCpu` is scheduled out and not waiting: preempted, where that could be told. */
const MEASURES = ["calls", "run", "waiting", "offCpu", "gc", "words", "binaries"];
const FIRST_MEASURE = 2;

/* A comparison has the measures of both sides, an ordinary profile those of one. */
const profile = JSON.parse(document.getElementById("profile").textContent);
const SIDES = profile.before ? ["after", "before"] : ["after"];
const NUMBERS_PER_ROW = FIRST_MEASURE + MEASURES.length * SIDES.length;
profile.rowCount = profile.rows.length / NUMBERS_PER_ROW;

function callerOfRow(row) {
  const distance = profile.rows[row * NUMBERS_PER_ROW];
  return distance > 0 ? row - distance : -1;
}

function whatOfRow(row) {
  return profile.rows[row * NUMBERS_PER_ROW + 1];
}

function measuresOfRow(row, side) {
  const at = row * NUMBERS_PER_ROW + FIRST_MEASURE + SIDES.indexOf(side) * MEASURES.length;
  const [calls, run, waiting, offCpu, gc, words, binaries] = profile.rows.slice(at, at + MEASURES.length);
  return { calls, run, waiting, offCpu, gc, words, binaries };
}

/* In a comparison where either side could not tell, neither does. */
const TELLS_WAITING = ![profile.info, profile.before].some((info) => info?.fallbacks.includes("waiting"));
const NOT_WAITING = TELLS_WAITING ? "preempted" : "off-cpu";
const HAS_BINARIES = anyRow("binaries");
const HAS_WAITING = anyRow("waiting");

function anyRow(measure) {
  for (let row = 0; row < profile.rowCount; row++)
    if (SIDES.some((side) => measuresOfRow(row, side)[measure] > 0)) return true;
  return false;
}

function isPruned(row) {
  return row >= profile.pruned.first_row;
}

function processText(process) {
  const name = process.name ?? process.label;
  return name ? `${process.pid} ${name}` : process.pid ?? "";
}

/* ---- Sums: the measures of every node of a tree --------------------------- */

/* `taken` is the width of words: a stack that gave back more than it took has none. */
const SUMMED = [...MEASURES, "taken"];

/* A metric's value of one node, and its width. */
const METRICS = {
  time: { name: "Time", unit: formatTime, of: (sums, i) => sums.run[i] + sums.waiting[i] + sums.offCpu[i] + sums.gc[i] },
  words: { name: "Words", unit: formatWords, of: (sums, i) => sums.words[i], width: (sums, i) => sums.taken[i] },
  calls: { name: "Calls", unit: formatCalls, of: (sums, i) => sums.calls[i] },
  binaries: { name: "Binaries", unit: formatBytes, of: (sums, i) => sums.binaries[i] },
};

function createSums(size) {
  return Object.fromEntries(SUMMED.map((name) => [name, new Float64Array(size)]));
}

function addSums(sums, at, more, from) {
  for (const name of SUMMED) sums[name][at] += more[name][from];
}

/* ---- Frames: a tree, callers before callees -------------------------------- */

const KIND = { ALL: 0, PROCESS: 1, FUNCTION: 2, WAITING: 3, OFF_CPU: 4, GC: 5, PRUNED: 6 };
const KIND_NAMES = ["all", "process", "function", "waiting", NOT_WAITING, "gc", "pruned"];

/* Frames for time in which their caller did not run: the measure, the kind, and the
 * bit of what can be removed of a row. */
const PAUSES = [
  { measure: "waiting", kind: KIND.WAITING, part: 2 },
  { measure: "offCpu", kind: KIND.OFF_CPU, part: 4 },
  { measure: "gc", kind: KIND.GC, part: 8 },
];
const RUN = 1;

const isPause = (kind) => PAUSES.some((pause) => pause.kind === kind);

class Frames {
  constructor(limit) {
    this.size = 0;
    this.parent = new Int32Array(limit);
    this.kind = new Uint8Array(limit);
    this.what = new Int32Array(limit);
    this.depth = new Int32Array(limit); /* below zero: callers in a sandwich */
    this.known = [new Map(), new Map()];
    this.sides = {};
  }

  findOrAdd(parent, kind, what, step = 1) {
    const names = Math.max(profile.functions.length, profile.processes.length, 1);
    const key = (parent * KIND_NAMES.length + kind) * names + what;
    const known = this.known[step > 0 ? 0 : 1];
    let node = known.get(key);
    if (node === undefined) {
      node = this.add(parent, kind, what, step);
      known.set(key, node);
    }
    return node;
  }

  add(parent, kind, what, step = 1) {
    const node = this.size++;
    this.parent[node] = parent;
    this.kind[node] = kind;
    this.what[node] = what;
    this.depth[node] = parent < 0 ? 0 : this.depth[parent] + step;
    return node;
  }

  /* Is this node a part of its parent? Callers are none of the function they call. */
  isPart(node) {
    return node > 0 && (this.parent[node] > 0 || this.depth[node] > 0);
  }

  sumUp(own) {
    const total = createSums(this.size);
    for (const name of SUMMED) {
      const [of, sum] = [own[name], total[name]];
      for (let node = this.size - 1; node >= 0; node--) {
        sum[node] += of[node];
        if (this.isPart(node)) sum[this.parent[node]] += sum[node];
      }
    }
    return { own, total };
  }

  /* The children of a node stand in `children` from firstChild[node] up to
   * firstChild[node + 1], by name, so that every metric shows the same order. */
  linkChildren() {
    this.known = null;
    this.firstChild = new Int32Array(this.size + 1);
    this.children = new Int32Array(Math.max(this.size - 1, 0));
    for (let node = 1; node < this.size; node++) this.firstChild[this.parent[node] + 1]++;
    for (let node = 0; node < this.size; node++) this.firstChild[node + 1] += this.firstChild[node];
    const next = this.firstChild.slice();
    for (const node of this.nodesByName()) this.children[next[this.parent[node]]++] = node;
  }

  nodesByName() {
    const order = Uint32Array.from({ length: Math.max(this.size - 1, 0) }, (_, i) => i + 1);
    const key = new Float64Array(this.size);
    for (let node = 1; node < this.size; node++) {
      const inKind = this.kind[node] === KIND.FUNCTION ? functionRank()[this.what[node]] : this.what[node];
      key[node] = this.kind[node] * 2 ** 32 + inKind;
    }
    return order.sort((a, b) => key[a] - key[b]);
  }

  childrenOf(node) {
    return this.children.subarray(this.firstChild[node], this.firstChild[node + 1]);
  }

  label(node) {
    switch (this.kind[node]) {
      case KIND.ALL: return "all";
      case KIND.PROCESS: return processText(profile.processes[this.what[node]]);
      case KIND.FUNCTION: return profile.functions[this.what[node]][0];
      case KIND.PRUNED: return `[pruned: ${formatCount(this.what[node])} ${this.what[node] === 1 ? "stack" : "stacks"}]`;
      default: return `[${KIND_NAMES[this.kind[node]]}]`;
    }
  }

  /* The label for a frame too narrow for the whole of it. */
  shortLabel(node) {
    if (this.kind[node] === KIND.PROCESS) return profile.processes[this.what[node]].pid ?? "";
    if (this.kind[node] !== KIND.FUNCTION) return this.label(node);
    const [, , name, arity] = profile.functions[this.what[node]];
    return `${name}/${arity}`;
  }

  module(node) {
    return this.kind[node] === KIND.FUNCTION ? profile.functions[this.what[node]][1] : null;
  }

  /* Index of the process this node belongs to, -1 for none or many. */
  process(node) {
    while (node > 0 && this.kind[node] !== KIND.PROCESS) node = this.parent[node];
    return node > 0 && this.depth[node] > 0 ? this.what[node] : -1;
  }

  /* Nodes that are in `top`, or below it. */
  below(isTop) {
    const inside = new Uint8Array(this.size);
    for (let node = 0; node < this.size; node++)
      inside[node] = isTop(node) || (node > 0 && inside[this.parent[node]]) ? 1 : 0;
    return inside;
  }
}

let ranks = null;

function functionRank() {
  if (ranks) return ranks;
  const texts = profile.functions.map(([text]) => text);
  const order = texts.map((_, i) => i).sort((a, b) => (texts[a] < texts[b] ? -1 : texts[a] > texts[b] ? 1 : 0));
  ranks = new Int32Array(order.length);
  order.forEach((index, place) => { ranks[index] = place; });
  return ranks;
}

/* ---- Tree: the frames of all stacks ----------------------------------------- */

class Tree extends Frames {
  constructor(merged) {
    super((1 + PAUSES.length) * profile.rowCount + 1);
    this.merged = merged;
    this.add(-1, KIND.ALL, 0);
    this.addRows();
    this.linkChildren();
  }

  addRows() {
    this.nodeOfRow = new Int32Array(profile.rowCount);
    this.pauseOfRow = PAUSES.map(() => new Int32Array(profile.rowCount));
    const sides = SIDES.map((side) => (row) => measuresOfRow(row, side));
    for (let row = 0; row < profile.rowCount; row++) {
      const caller = callerOfRow(row);
      const node = this.nodeOfRow[row] = this.nodeFor(row, caller);
      const measures = sides.map((of) => of(row));
      PAUSES.forEach(({ measure, kind }, i) => {
        this.pauseOfRow[i][row] = this.apart(row, node, kind, measures.some((of) => of[measure] > 0));
      });
    }
  }

  nodeFor(row, caller) {
    const parent = caller < 0 ? 0 : this.nodeOfRow[caller];
    const what = whatOfRow(row);
    if (isPruned(row)) {
      const node = this.findOrAdd(parent, KIND.PRUNED, 0);
      this.what[node] += what;
      return node;
    }
    if (caller >= 0) return this.findOrAdd(parent, KIND.FUNCTION, what);
    return this.merged ? 0 : this.findOrAdd(0, KIND.PROCESS, what);
  }

  /* Time in which a stack did not run has frames of its own. */
  apart(row, node, kind, any) {
    return any && !isPruned(row) ? this.findOrAdd(node, kind, 0) : node;
  }

  /* Which parts of which rows lie in or below the nodes of `removed`. */
  partsBelow(removed, parts) {
    const gone = this.below((node) => removed.has(node));
    for (let row = 0; row < profile.rowCount; row++)
      parts[row] |= PAUSES.reduce((sum, { part }, i) => sum | (gone[this.pauseOfRow[i][row]] && part), gone[this.nodeOfRow[row]] && RUN);
  }

  /* Sums what was not removed. */
  fill(parts) {
    for (const side of SIDES) this.sides[side] = this.sumUp(this.ownOf(side, parts));
  }

  ownOf(side, parts) {
    const own = createSums(this.size);
    for (let row = 0; row < profile.rowCount; row++) {
      const measures = measuresOfRow(row, side);
      const node = this.nodeOfRow[row];
      PAUSES.forEach(({ measure, part }, i) => {
        if (!(parts[row] & part)) own[measure][this.pauseOfRow[i][row]] += measures[measure];
      });
      if (parts[row] & RUN) continue;
      for (const name of ["calls", "run", "words", "binaries"]) own[name][node] += measures[name];
      own.taken[node] += Math.max(0, measures.words);
    }
    return own;
  }
}

/* ---- Sandwich: a function's callers and callees ------------------------------ */

/* Node 0 is the function, with all its outermost calls; a call inside another
 * of the same function is one of its callees. Callers have depths below zero,
 * and the part of the function's total that they called. */
class Sandwich extends Frames {
  constructor(tree, what) {
    super(2 * tree.size + 1);
    this.merged = tree.merged;
    this.add(-1, KIND.FUNCTION, what);
    const outermost = outermostOf(tree, what);
    const target = this.addCallees(tree, outermost);
    const callers = this.addCallers(tree, outermost);
    this.linkChildren();
    for (const side of SIDES) this.sides[side] = this.sumUp(this.ownOf(tree.sides[side], target, callers));
  }

  addCallees(tree, outermost) {
    const top = new Set(outermost);
    const inside = tree.below((node) => top.has(node));
    const target = new Int32Array(tree.size).fill(-1);
    for (let node = 0; node < tree.size; node++) {
      if (!inside[node]) continue;
      const pruned = tree.kind[node] === KIND.PRUNED;
      target[node] = top.has(node) ? 0 : this.findOrAdd(target[tree.parent[node]], tree.kind[node], pruned ? 0 : tree.what[node]);
      if (pruned) this.what[target[node]] += tree.what[node];
    }
    return target;
  }

  addCallers(tree, outermost) {
    return outermost.map((node) => {
      let at = 0;
      for (let caller = tree.parent[node]; caller > 0; caller = tree.parent[caller])
        at = this.findOrAdd(at, tree.kind[caller], tree.what[caller], -1);
      return [node, at];
    });
  }

  ownOf({ own, total }, target, callers) {
    const sums = createSums(this.size);
    for (let node = 0; node < target.length; node++) if (target[node] >= 0) addSums(sums, target[node], own, node);
    for (const [node, caller] of callers) if (caller > 0) addSums(sums, caller, total, node);
    return sums;
  }
}

function outermostOf(tree, what) {
  const isIt = (node) => tree.kind[node] === KIND.FUNCTION && tree.what[node] === what;
  const inside = tree.below(isIt);
  const nodes = [];
  for (let node = 1; node < tree.size; node++) if (isIt(node) && !inside[tree.parent[node]]) nodes.push(node);
  return nodes;
}

/* ---- Geometry: a tree by one metric ------------------------------------- */

/* `sides`: whose values the widths are; with both, of each stack the larger one. */
class Geometry {
  constructor(tree, metric, sides) {
    this.tree = tree;
    const { of, width = of } = METRICS[metric];
    this.value = this.measure(sides.map((side) => (node) => width(tree.sides[side].own, node)));
    this.start = this.place();
  }

  measure(widths) {
    const { tree } = this;
    const value = new Float64Array(tree.size);
    for (let node = tree.size - 1; node >= 0; node--) {
      value[node] += widths.length === 1 ? widths[0](node) : Math.max(...widths.map((of) => of(node)));
      if (tree.isPart(node)) value[tree.parent[node]] += value[node];
    }
    return value;
  }

  place() {
    const start = new Float64Array(this.tree.size);
    for (let node = 0; node < this.tree.size; node++) {
      const at = { true: start[node], false: start[node] };
      for (const child of this.tree.childrenOf(node)) {
        const isPart = this.tree.isPart(child);
        start[child] = at[isPart];
        at[isPart] += this.value[child];
      }
    }
    return start;
  }

  end(node) {
    return this.start[node] + this.value[node];
  }

  /* Itself, or the nearest caller that has a width. */
  visible(node) {
    while (node > 0 && !(this.value[node] > 0)) node = this.tree.parent[node];
    return node;
  }
}

/* ---- Layout: what a part of the geometry fills on the screen ------------- */

const ROW_HEIGHT = 20;
const MIN_WIDTH = 1;
const TINY = -1; /* in place of a node: frames too narrow to draw, side by side */

class Layout {
  constructor(geometry, from, to, width) {
    this.geometry = geometry;
    this.from = from;
    this.scale = width / (to - from);
    this.width = width;
    const root = to > from ? this.drawable([0]) : [];
    const callers = this.rowsFrom(root, -1).reverse();
    this.first = -callers.length; /* depth of the first row */
    this.rows = [...callers, ...(root.length > 0 ? [root] : []), ...this.rowsFrom(root, 1)];
  }

  rowsFrom(row, step) {
    const rows = [];
    for (row = this.rowBeyond(row, step); row.length > 0; row = this.rowBeyond(row, step)) rows.push(row);
    return rows;
  }

  rowBeyond(row, step) {
    const { tree } = this.geometry;
    const beyond = [];
    for (const { node } of row)
      if (node !== TINY) beyond.push(...this.drawable(tree.childrenOf(node).filter((child) => tree.depth[child] * step > 0)));
    return beyond;
  }

  drawable(nodes) {
    const frames = [];
    let tiny = null;
    for (const node of nodes) {
      const frame = this.frame(node);
      if (frame.width <= 0) continue;
      if (frame.width >= MIN_WIDTH) {
        frames.push(frame);
        tiny = null;
      } else if (tiny) {
        tiny.width = frame.x + frame.width - tiny.x;
        tiny.count++;
      } else {
        frames.push(tiny = { ...frame, node: TINY, count: 1 });
      }
    }
    return frames.filter((frame) => frame.width >= MIN_WIDTH);
  }

  frame(node) {
    const x = Math.max(0, (this.geometry.start[node] - this.from) * this.scale);
    const end = Math.min(this.width, (this.geometry.end(node) - this.from) * this.scale);
    return { node, x, width: end - x };
  }

  row(depth) {
    return this.rows[depth - this.first] ?? [];
  }

  find(node) {
    return this.row(this.geometry.tree.depth[node]).find((frame) => frame.node === node);
  }

  hit(depth, x) {
    return this.row(depth).find((frame) => x >= frame.x && x < frame.x + frame.width);
  }

  beside(node, step) {
    const row = this.row(this.geometry.tree.depth[node]).filter((frame) => frame.node !== TINY);
    const at = row.findIndex((frame) => frame.node === node);
    return at < 0 ? undefined : row[at + step]?.node;
  }

  /* One row towards the callees (1) or the callers (-1): its parent, or the largest child there. */
  towards(node, step) {
    const { tree, value } = this.geometry;
    const depth = tree.depth[node];
    if (depth * step < 0) return tree.parent[node];
    const row = this.row(depth + step).filter((frame) => frame.node !== TINY && tree.parent[frame.node] === node);
    return row.sort((a, b) => value[b.node] - value[a.node])[0]?.node;
  }
}

/* ---- Search ------------------------------------------------------------- */

/* null where the pattern is no regular expression. */
function expressionFor(pattern, matchCase) {
  try {
    return new RegExp(pattern, matchCase ? "" : "i");
  } catch {
    return null;
  }
}

class Search {
  constructor(tree, pattern, matchCase) {
    this.tree = tree;
    this.matched = new Uint8Array(tree.size);
    const expression = expressionFor(pattern, matchCase);
    this.error = expression === null;
    if (pattern !== "" && expression) this.run(expression);
  }

  run(expression) {
    const names = profile.functions.map(([text]) => expression.test(text));
    for (let node = 0; node < this.tree.size; node++) {
      const isFunction = this.tree.kind[node] === KIND.FUNCTION;
      if (this.tree.kind[node] !== KIND.ALL)
        this.matched[node] = isFunction ? names[this.tree.what[node]] : expression.test(this.tree.label(node));
    }
  }

  /* Matches that have a width, left to right, callers first. */
  inOrder(geometry) {
    const nodes = [];
    this.matched.forEach((matched, node) => { if (matched && geometry.value[node] > 0) nodes.push(node); });
    return nodes.sort((a, b) => geometry.start[a] - geometry.start[b] || a - b);
  }

  /* What the matches below `top` cover; one inside another counts once. */
  covered(geometry, top) {
    const inside = new Uint8Array(this.tree.size);
    const counted = new Uint8Array(this.tree.size);
    let sum = 0;
    for (let node = top; node < this.tree.size; node++) {
      const parent = this.tree.parent[node];
      inside[node] = node === top || (parent >= top && inside[parent] && this.tree.isPart(node)) ? 1 : 0;
      if (!inside[node]) continue;
      counted[node] = this.matched[node] || (node !== top && counted[parent]) ? 1 : 0;
      if (this.matched[node] && (node === top || !counted[parent])) sum += geometry.value[node];
    }
    return sum;
  }
}

/* ---- Functions: a table ---------------------------------------------------- */

/* The columns of a function's sums. Own and total are time: own is running,
 * total is everything with callees, a call inside another of its own counted once. */
const COLUMNS = [
  { id: "calls", name: "Calls", unit: formatCount },
  { id: "own", name: "Own", unit: formatTime, about: "running, without callees" },
  { id: "total", name: "Total", unit: formatTime, about: "all time, with callees" },
  ...(HAS_WAITING ? [{ id: "waiting", name: "Waiting", unit: formatTime, about: "scheduled out with nothing to do, without callees" }] : []),
  ...(anyRow("offCpu") ? [{ id: "offCpu", ...(TELLS_WAITING ? { name: "Preempted", about: "runnable without a processor, without callees" } : { name: "Off-CPU", about: "scheduled out, waiting or preempted, without callees" }), unit: formatTime }] : []),
  { id: "gc", name: "GC", unit: formatTime, about: "in garbage collection, without callees" },
  { id: "words", name: "Words", unit: formatCount, about: "heap words allocated, without callees" },
  ...(HAS_BINARIES ? [{ id: "binaries", name: "Binaries", unit: formatBytes, about: "bytes of binaries outside the heap, without callees" }] : []),
];

/* Own sums and totals by name: functions, and what belongs to none of them. */
class FunctionTable {
  constructor(tree) {
    this.tree = tree;
    this.rows = new Map();
    this.isOutermost = outermostNodes(tree);
    for (const side of SIDES) this.add(side);
    this.list = [...this.rows.values()].filter((row) => SIDES.some((side) => COLUMNS.some(({ id }) => row[side][id] !== 0)));
  }

  add(side) {
    const { own, total } = this.tree.sides[side];
    for (let node = 0; node < this.tree.size; node++) {
      const row = this.rowFor(node)[side];
      row.own += own.run[node];
      for (const { id } of COLUMNS) if (id in own) row[id] += own[id][node];
      if (this.isOutermost[node]) row.total += METRICS.time.of(total, node);
    }
  }

  /* The time in which it did not run is its caller's. */
  rowFor(node) {
    const { tree } = this;
    if (isPause(tree.kind[node])) node = tree.parent[node];
    const kind = tree.kind[node];
    const what = kind === KIND.FUNCTION ? tree.what[node] : -1;
    const name = what >= 0 ? profile.functions[what][0] : kind === KIND.PRUNED ? "[pruned]" : "[process]";
    const key = what >= 0 ? what : name;
    if (!this.rows.has(key)) this.rows.set(key, { what, name, ...Object.fromEntries(SIDES.map((side) => [side, noColumns()])) });
    return this.rows.get(key);
  }

  /* By a column; names are in the order of their characters. */
  sorted(column, change, falling, expression) {
    const value = column === "name" ? (row) => row.name : change ? (row) => row.after[column] - row.before[column] : (row) => row.after[column];
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const sign = falling ? -1 : 1;
    return this.list
      .filter(({ name }) => expression.test(name))
      .sort((a, b) => sign * order(value(a), value(b)) || order(a.name, b.name));
  }
}

function noColumns() {
  return Object.fromEntries(COLUMNS.map(({ id }) => [id, 0]));
}

/* Nodes that no other node of the same function lies above of; of what is no
 * function, those with totals of their own. */
function outermostNodes(tree) {
  const outermost = new Uint8Array(tree.size);
  const above = new Int32Array(profile.functions.length);
  const path = [];
  const stack = [0];
  while (stack.length > 0) {
    const node = stack.pop();
    while (path.length > 0 && path.at(-1) !== tree.parent[node]) leave(path.pop());
    path.push(node);
    if (tree.kind[node] === KIND.FUNCTION) outermost[node] = above[tree.what[node]]++ === 0 ? 1 : 0;
    else outermost[node] = tree.kind[node] === KIND.PRUNED ? 1 : 0;
    for (const child of tree.childrenOf(node)) stack.push(child);
  }
  return outermost;

  function leave(node) {
    if (tree.kind[node] === KIND.FUNCTION) above[tree.what[node]]--;
  }
}
