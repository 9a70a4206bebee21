
/* ---- State -------------------------------------------------------------- */

/* Shows what view_html_model.js knows. In this order: state, the address that
 * keeps it, drawing, details, the table, controls, API. */

const byId = (id) => document.getElementById(id);
const chart = byId("chart");
const canvas = byId("canvas");
const context = canvas.getContext("2d");

const TABS = ["graph", "functions", "callers"];
const WIDTHS = { after: ["after"], before: ["before"], both: ["after", "before"] };

/* The choices; everything else is derived from them. */
const state = {
  tab: "graph",
  metric: profile.metric,
  processes: "separate",
  direction: "icicle",
  width: profile.width ?? "after", /* a comparison: whose values are the widths */
  function: -1, /* whose callers and callees are shown */
  places: { graph: { zoom: 0, focus: 0 }, callers: { zoom: 0, focus: 0 } },
  hover: null, /* a frame of the layout */
  showFocus: false, /* not while a pointer is used */
  pattern: "",
  matchCase: false,
  hideWaiting: false, /* waiting is left out */
  removed: [], /* nodes, each with the processes it is one of: separate or merged */
  sort: { column: "total", change: false, falling: true },
  theme: "light",
  get place() { return this.places[this.tab === "callers" ? "callers" : "graph"]; },
  get zoom() { return this.place.zoom; },
  set zoom(node) { this.place.zoom = node; },
  get focus() { return this.place.focus; },
  set focus(node) { this.place.focus = node; },
};

/* There is something to show, or it was asked for. */
function hasBinaries() {
  return HAS_BINARIES || profile.metric === "binaries";
}

const derived = { stacks: null, whole: 0, tree: null, geometry: null, search: null, matches: [], layout: null };

/* Trees stay, with the same numbers for their nodes; what is removed changes their sums. */
const trees = new Map();
const removal = { version: 0, parts: new Uint8Array(profile.rowCount) };

function treeOf(processes) {
  if (!trees.has(processes)) trees.set(processes, new Tree(processes === "merged"));
  return trees.get(processes);
}

function filledTree(processes) {
  const tree = treeOf(processes);
  if (tree.version !== removal.version) tree.fill(removal.parts);
  tree.version = removal.version;
  return tree;
}

/* Waiting is left out of times as if each of its frames were removed. */
function applyRemoved() {
  removal.parts.fill(state.hideWaiting ? PAUSES.find(({ kind }) => kind === KIND.WAITING).part : 0);
  for (const processes of ["separate", "merged"]) {
    const nodes = state.removed.filter((one) => one.processes === processes).map(({ node }) => node);
    if (nodes.length > 0) treeOf(processes).partsBelow(new Set(nodes), removal.parts);
  }
  removal.version++;
}

const kept = { sandwich: {}, functions: {} };

/* Made anew only when what it is made from has changed. */
function keep(name, from, make) {
  const key = [...from, removal.version].join();
  if (kept[name].key !== key) kept[name] = { key, made: make() };
  return kept[name].made;
}

function sandwich() {
  return keep("sandwich", [state.processes, state.function], () => new Sandwich(derived.stacks, state.function));
}

function functionTable() {
  return keep("functions", [], () => new FunctionTable(filledTree("separate")));
}

/* Whose numbers are shown where one side's are. */
function side() {
  return state.width === "before" ? "before" : "after";
}

function sums() {
  return derived.tree.sides[side()];
}

/* The function of the frame in focus, or the one with the largest own time. */
function likelyFunction() {
  const { tree } = derived;
  for (let node = state.places.graph.focus; tree && node > 0; node = tree.parent[node])
    if (tree.kind[node] === KIND.FUNCTION) return tree.what[node];
  const largest = functionTable().sorted("own", false, true, /(?:)/).find(({ what }) => what >= 0);
  return largest ? largest.what : -1;
}

function deriveTree() {
  derived.stacks = filledTree(state.processes);
  derived.whole = new Geometry(derived.stacks, state.metric, WIDTHS[state.width]).value[0];
  if (state.tab === "callers" && state.function < 0) state.function = likelyFunction();
  derived.tree = state.tab === "callers" && state.function >= 0 ? sandwich() : derived.stacks;
  derived.geometry = new Geometry(derived.tree, state.metric, WIDTHS[state.width]);
  state.zoom = derived.geometry.visible(state.zoom);
  state.focus = derived.geometry.visible(state.focus);
  deriveSearch();
}

function deriveSearch() {
  derived.search = new Search(derived.tree, state.pattern, state.matchCase);
  derived.matches = derived.search.inOrder(derived.geometry);
}

function layOut([from, to]) {
  return new Layout(derived.geometry, from, to, chart.clientWidth);
}

function zoomWindow() {
  return [derived.geometry.start[state.zoom], derived.geometry.end(state.zoom)];
}

/* ---- Address: a link to what is shown -------------------------------------- */

/* The part of the address after # has what differs from a fresh page. Nodes are
 * numbered by the file, so a link fits the file it was made from; what does not
 * fit is left out. */
const CHOICES = {
  tab: TABS,
  metric: Object.keys(METRICS).filter((name) => name !== "binaries" || hasBinaries()),
  processes: ["separate", "merged"],
  direction: ["icicle", "flame"],
  width: profile.before ? Object.keys(WIDTHS) : ["after"],
};
const fresh = Object.fromEntries([...Object.keys(CHOICES), "function", "pattern", "matchCase", "hideWaiting"].map((name) => [name, state[name]]));
const freshSort = sortText(state.sort);

function sortText({ column, change, falling }) {
  return `${column}${change ? ".change" : ""}${falling ? "" : ".rising"}`;
}

function readSort(text) {
  const [column, ...flags] = text.split(".");
  if (column !== "name" && !COLUMNS.some(({ id }) => id === column)) return { ...state.sort };
  return { column, change: flags.includes("change") && SIDES.length > 1, falling: !flags.includes("rising") };
}

function removedText() {
  return state.removed.map(({ processes, node }) => `${processes[0]}${node}`).join(".");
}

function readRemoved(text) {
  return text.split(".").flatMap((part) => {
    const processes = { s: "separate", m: "merged" }[part[0]];
    const node = readIndex(part.slice(1), processes ? treeOf(processes).size : 0);
    return node > 0 ? [{ processes, node }] : [];
  });
}

function readIndex(text, size) {
  return /^[0-9]{1,9}$/.test(text ?? "") && Number(text) < size ? Number(text) : -1;
}

function fragment() {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(fresh)) if (state[name] !== value) parts.set(name, state[name]);
  if (state.places.graph.zoom > 0) parts.set("zoom", state.places.graph.zoom);
  if (state.removed.length > 0) parts.set("removed", removedText());
  if (sortText(state.sort) !== freshSort) parts.set("sort", sortText(state.sort));
  return `#${parts}`;
}

const address = { timer: 0, push: false };
const ADDRESS_MS = 150; /* browsers take offence at too many changes */

/* What is looked at next is a place of its own for the browser's Back. */
function writeAddress(push = false) {
  byId("link").href = fragment();
  address.push ||= push;
  clearTimeout(address.timer);
  address.timer = setTimeout(flushAddress, ADDRESS_MS);
}

function flushAddress() {
  clearTimeout(address.timer);
  const target = fragment();
  if (target !== location.hash && !(target === "#" && location.hash === "")) {
    try {
      history[address.push ? "pushState" : "replaceState"](null, "", target);
    } catch {
      /* inside another document: the link still has it */
    }
  }
  address.push = false;
}

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const [name, values] of Object.entries(CHOICES)) state[name] = values.includes(parts.get(name)) ? parts.get(name) : fresh[name];
  state.function = readIndex(parts.get("function"), profile.functions.length);
  state.pattern = parts.get("pattern") ?? "";
  state.matchCase = parts.get("matchCase") === "true";
  state.hideWaiting = HAS_WAITING && parts.get("hideWaiting") === "true";
  state.sort = readSort(parts.get("sort") ?? freshSort);
  state.removed = readRemoved(parts.get("removed") ?? "");
  const zoom = Math.max(0, readIndex(parts.get("zoom"), treeOf(state.processes).size));
  state.places = { graph: { zoom, focus: zoom }, callers: { zoom: 0, focus: 0 } };
  byId("search").value = state.pattern;
  applyRemoved();
}

async function copyLink() {
  flushAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    announce("Link copied");
    byId("link").textContent = "Copied";
  } catch {
    announce("The address bar has the link");
    byId("link").textContent = "In the address bar";
  }
  setTimeout(() => { byId("link").textContent = "Link"; }, 1500);
}

/* ---- Drawing ------------------------------------------------------------ */

const LABEL_FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";
const LABEL_PADDING = 5;
const MIN_LABEL_WIDTH = 26;

const paint = { colours: {}, stripes: {}, functions: new Map(), widths: new Map() };

function hash(text) {
  let sum = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) sum = Math.imul(sum ^ text.charCodeAt(i), 0x01000193);
  sum = Math.imul(sum ^ (sum >>> 15), 0x2c1b3c6d);
  return (sum ^ (sum >>> 13)) >>> 0;
}

/* Hue by module, so that a module is an area of one colour; a shade by
 * function. The hues around the search colour are left out. */
function functionColour([text, module]) {
  const hue = (350 + (hash(module ?? "") % 1000) * 0.31) % 360;
  const shade = (hash(text) % 5 - 2) * 0.012;
  return state.theme === "dark" ? `oklch(${0.45 + shade} 0.085 ${hue})` : `oklch(${0.85 + shade} 0.088 ${hue})`;
}

/* From -1, vanished, over 0, the same, to 1, new: twice as much is a half, and half
 * as much is minus a half. Of what the metric counts, callees included. */
function changeOf(node) {
  const [before, after] = ["before", "after"].map((of) => widthOf(derived.tree.sides[of].total, node));
  const larger = Math.max(before, after);
  return larger > 0 ? (after - before) / larger : 0;
}

function widthOf(totals, node) {
  const { of, width = of } = METRICS[state.metric];
  return width(totals, node);
}

/* Red and blue differ for every kind of colour vision; lightness tells how much. */
function changeColour(change) {
  const [size, hue] = [Math.abs(change), change > 0 ? 30 : 255];
  const [from, to] = state.theme === "dark" ? [0.36, 0.53] : [0.93, 0.68];
  return size < 0.005 ? `oklch(${from} 0.004 60)` : `oklch(${from + (to - from) * size} ${0.02 + 0.15 * size} ${hue})`;
}

function colourOf(node) {
  const kind = derived.tree.kind[node];
  if (kind <= KIND.PROCESS) return paint.colours["frame-root"];
  if (profile.before) return comparedColour(changeOf(node));
  if (kind !== KIND.FUNCTION) return paint.stripes[KIND_NAMES[kind]];
  const what = derived.tree.what[node];
  if (!paint.functions.has(what)) paint.functions.set(what, functionColour(profile.functions[what]));
  return paint.functions.get(what);
}

function comparedColour(change) {
  if (change === 1) return paint.stripes.new;
  return change === -1 ? paint.stripes.vanished : changeColour(change);
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["surface", "frame-ink", "frame-root", "frame-root-ink", "frame-tiny", "match", "match-ink", "focus", "ink"];
  paint.colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  paint.functions.clear();
  for (const name of ["gc", "waiting", "preempted", "off-cpu", "pruned", "new", "vanished"])
    paint.stripes[name] = stripes(style.getPropertyValue(`--${name}`), style.getPropertyValue(`--${name}-stripe`));
}

function stripes(back, stripe) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = back;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = stripe;
  pen.lineWidth = 2.5;
  for (const shift of [-8, 0, 8]) {
    pen.beginPath();
    pen.moveTo(shift - 2, 10);
    pen.lineTo(shift + 10, -2);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

function contentHeight() {
  return Math.max(chart.clientHeight, derived.layout.rows.length * ROW_HEIGHT);
}

/* Top of a row inside the scrolled content. */
function rowTop(depth) {
  const row = depth - derived.layout.first;
  return state.direction === "icicle" ? row * ROW_HEIGHT : contentHeight() - (row + 1) * ROW_HEIGHT;
}

function depthAt(y) {
  const fromFirst = state.direction === "icicle" ? y : contentHeight() - y - 1;
  return Math.floor(fromFirst / ROW_HEIGHT) + derived.layout.first;
}

function fitCanvas() {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(chart.clientWidth * ratio);
  const height = Math.round(chart.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
    canvas.style.width = `${chart.clientWidth}px`;
    canvas.style.height = `${chart.clientHeight}px`;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
}

function visibleDepths() {
  const { first, rows } = derived.layout;
  const ends = [depthAt(chart.scrollTop), depthAt(chart.scrollTop + chart.clientHeight - 1)];
  return [Math.max(first, Math.min(...ends)), Math.min(first + rows.length - 1, Math.max(...ends))];
}

function draw(layout = derived.layout) {
  fitCanvas();
  context.fillStyle = paint.colours.surface;
  context.fillRect(0, 0, chart.clientWidth, chart.clientHeight);
  context.font = LABEL_FONT;
  context.textBaseline = "middle";
  const [first, last] = visibleDepths();
  for (let depth = first; depth <= last; depth++)
    for (const frame of layout.row(depth)) drawFrame(frame, depth);
  if (layout === derived.layout) drawMarks();
}

function drawFrame(frame, depth) {
  const y = rowTop(depth) - chart.scrollTop;
  const isTiny = frame.node === TINY;
  const matched = !isTiny && derived.search.matched[frame.node];
  context.globalAlpha = matched ? 1 : frameAlpha(frame.node, depth);
  context.fillStyle = matched ? paint.colours.match : isTiny ? paint.colours["frame-tiny"] : colourOf(frame.node);
  fillFrame(frame, y);
  context.globalAlpha = 1;
  if (!isTiny && isCentre(frame.node)) outline(frame, y, paint.colours.ink, 1.5);
  if (!isTiny && frame.width >= MIN_LABEL_WIDTH) drawLabel(frame, y, matched);
}

/* The function between its callers and callees. */
function isCentre(node) {
  return node === 0 && derived.tree !== derived.stacks;
}

/* Paler: what was not searched for, and the callers of the zoomed frame. */
function frameAlpha(node, depth) {
  if (node !== TINY && derived.tree.kind[node] <= KIND.PROCESS) return 1;
  if (derived.matches.length > 0) return 0.5;
  return depth >= 0 && depth < derived.tree.depth[state.zoom] ? 0.62 : 1;
}

function fillFrame({ x, width }, y) {
  const gap = width > 3 ? 1 : 0;
  context.beginPath();
  if (width > 10) context.roundRect(x, y, width - gap, ROW_HEIGHT - 1, 2.5);
  else context.rect(x, y, width - gap, ROW_HEIGHT - 1);
  context.fill();
}

function outline({ x, width }, y, colour, lineWidth) {
  context.strokeStyle = colour;
  context.lineWidth = lineWidth;
  context.strokeRect(x + 1, y + 1, Math.max(2, width - 3), ROW_HEIGHT - 3);
}

function drawLabel({ node, x, width }, y, matched) {
  const text = fitLabel(node, width - 2 * LABEL_PADDING);
  const isRoot = derived.tree.kind[node] <= KIND.PROCESS;
  context.fillStyle = paint.colours[matched ? "match-ink" : isRoot ? "frame-root-ink" : "frame-ink"];
  context.fillText(text, x + LABEL_PADDING, y + ROW_HEIGHT / 2);
}

function textWidth(text) {
  if (!paint.widths.has(text)) paint.widths.set(text, context.measureText(text).width);
  return paint.widths.get(text);
}

function fitLabel(node, room) {
  const label = derived.tree.label(node);
  if (textWidth(label) <= room) return label;
  const short = derived.tree.shortLabel(node);
  if (textWidth(short) <= room) return short;
  const characters = Array.from(short);
  let count = Math.floor(characters.length * room / textWidth(short));
  while (count > 0 && context.measureText(`${characters.slice(0, count).join("")}…`).width > room) count--;
  return count > 0 ? `${characters.slice(0, count).join("")}…` : "";
}

function drawMarks() {
  if (state.hover) {
    context.fillStyle = paint.colours.ink;
    context.globalAlpha = 0.14;
    fillFrame(state.hover, rowTop(state.hover.depth) - chart.scrollTop);
    context.globalAlpha = 1;
  }
  const focus = state.showFocus && derived.layout.find(state.focus);
  if (focus) outline(focus, rowTop(derived.tree.depth[state.focus]) - chart.scrollTop, paint.colours.focus, 2.5);
}

let drawing = 0;

function drawSoon() {
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(() => draw());
}

/* ---- Zoom: slides from the old part to the new one ------------------------ */

const SLIDE_MS = 180;
let shown = [0, 0];

function slideTo(target) {
  const from = shown;
  const begin = performance.now();
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  shown = target;
  if (calm || from[1] <= from[0] || (from[0] === target[0] && from[1] === target[1])) return drawSoon();
  const step = () => {
    const done = Math.min(1, (performance.now() - begin) / SLIDE_MS);
    const eased = 1 - (1 - done) ** 3;
    if (done >= 1) return draw();
    draw(layOut([0, 1].map((end) => from[end] + (target[end] - from[end]) * eased)));
    drawing = requestAnimationFrame(step);
  };
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(step);
}

/* ---- Text --------------------------------------------------------------- */

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function rowOf(cells, tag = "td") {
  const row = element("tr");
  row.append(...cells.map((cell) => element(tag, cell)));
  return row;
}

const FALLBACKS = {
  stack: ["No stack pointer", "stacks were followed by return events alone; after tail calls and exceptions a frame can stand too deep."],
  heap: ["No heap pointer", "words were not measured."],
  clock: ["No invariant time-stamp counter", "times were taken from the system clock, which costs more and is coarser."],
  binaries: ["Binaries not counted", "the VM's count of binaries outside the heap was not found; the bytes they take are missing."],
  waiting: ["Waiting not told from preempted", "the VM's mark of runnable processes was not found; time in which a process was scheduled out can be either, and is “[off-cpu]”."],
  no_times: ["No times", "they were not asked for."],
  no_words: ["No words", "they were not asked for."],
  no_calls: ["No numbers of calls", "they were not asked for."],
  no_binaries: ["No binaries", "they were not asked for."],
  cost: ["Cost of tracing uncertain", "it varied while this ran, or since it was measured; own times of small functions are estimates."],
};

const OUTCOMES = {
  returned: "returned",
  raised: "raised an exception",
  exited: "process exited",
  unfinished: "unfinished",
  recorded: "recorded for a while",
};

const OUTCOME_BANNERS = {
  raised: ["Raised", "the call ended with an exception; the profile reaches up to it."],
  exited: ["Exited", "a process died inside the call; the profile reaches up to its death."],
  unfinished: ["Unfinished", "a limit or a stop cut the call short; the profile holds what ran until then."],
};

/* By info.cut_by: why it is not of all that was asked for. */
const CUT_BANNERS = [
  null,
  ["Timeout", "the option timeout cut the call short; the profile holds what ran until then. A larger one shows more."],
  ["Stopped", "the capture was stopped, or who started it ended; the profile holds what ran until then."],
  ["Memory limit", "the option memory_limit cut the call short; the profile holds what ran until then. A larger one shows more."],
  ["Tracing was taken away", "by another tracer, or since the process made itself sensitive: calls, times and words are lower than they were."],
  ["End lost", "the event of the call's end was lost: when and how it ended is not known exactly."],
];

function startText(info) {
  if (!info.start_us) return null;
  const start = new Date(info.start_us / 1000).toISOString();
  return `${start.slice(0, 10)} ${start.slice(11, 23)} UTC`;
}

/* Of a comparison both sides where they differ, the one before first. */
function bothSides(text) {
  const { info, before } = profile;
  const after = text(info);
  return before && text(before) !== after ? `${text(before) ?? "–"} → ${after ?? "–"}` : after;
}

function facts() {
  const { pruned, before } = profile;
  return [
    ...(before ? [["Before", before.target], ["Scaled", before.scale_millionths === 1e6 ? before.normalise : `${before.normalise}, × ${threeDigits(before.scale_millionths / 1e6)}`]] : []),
    ["OTP release", bothSides((of) => of.otp_release)],
    ["Started", bothSides(startText)],
    ["Duration", bothSides((of) => formatTime(of.duration_ns))],
    ["Captured calls", bothSides((of) => formatCount(of.calls))],
    ["Outcome", bothSides((of) => OUTCOMES[of.outcome])],
    ["Processes", formatCount(profile.processes.length)],
    ["Stacks", formatCount(pruned.of)],
    ["Events", bothSides((of) => formatCount(of.events))],
    ["Lost events", bothSides((of) => formatCount(of.lost))],
    ["Tracing cost taken off", bothSides(compensation)],
    ["Fallbacks", bothSides((of) => of.fallbacks.map((name) => FALLBACKS[name][0].toLowerCase()).join(", ") || "none")],
  ];
}

function compensation(info) {
  const share = info.raw_ns > 0 ? ` (${formatShare(info.compensated_ns, info.raw_ns)} of raw ${formatTime(info.raw_ns)})` : "";
  return formatTime(info.compensated_ns) + share;
}

function infoBanners(info) {
  const list = [];
  if (info.lost > 0)
    list.push(["loss", "Events lost", `${formatCount(info.lost)} of ${formatCount(info.events + info.lost)} (${formatShare(info.lost, info.events + info.lost)}). Calls, times and words are lower than they were; what was called meanwhile is below [unknown].`]);
  if (info.cut_by) list.push(["warn", ...CUT_BANNERS[info.cut_by]]);
  else if (info.outcome in OUTCOME_BANNERS) list.push(["warn", ...OUTCOME_BANNERS[info.outcome]]);
  if (info.depth_cut > 0)
    list.push(["warn", "Depth cut", `${formatCalls(info.depth_cut)} were deeper than 512 frames; each function stands there once, below [deeper], whatever called it.`]);
  for (const name of info.fallbacks) list.push(["warn", ...FALLBACKS[name]]);
  return list;
}

function banners() {
  const { info, pruned, before } = profile;
  const list = infoBanners(info);
  if (before) list.push(...infoBanners(before).map(([level, title, text]) => [level, `${title} (before)`, text]));
  if (pruned.stacks > 0)
    list.push(["note", "Pruned", `${formatCount(pruned.stacks)} of ${formatCount(pruned.of)} stacks are summed up in “[pruned]” frames to keep this page light; each, with its callees, has at most ${formatSmallShare(pruned.largest_ppb)} of the total of any metric.`]);
  return list;
}

function formatSmallShare(ppb) {
  return `${Math.max(ppb / 1e7, 1e-7).toPrecision(2)}%`;
}

function showHeader() {
  const target = profile.info.target ?? "profile";
  document.title = `${target} – emberl`;
  byId("target").textContent = target;
  byId("legend-pruned").hidden = profile.pruned.stacks === 0 || profile.before;
  for (const item of document.querySelectorAll(".compared")) item.hidden = !profile.before;
  for (const item of document.querySelectorAll(".single")) item.hidden = Boolean(profile.before);
  for (const item of document.querySelectorAll(".has-waiting")) item.hidden ||= !HAS_WAITING;
  for (const item of document.querySelectorAll(".has-binaries")) item.hidden = !hasBinaries();
  byId("legend-not-waiting").replaceChildren(element("i", undefined, NOT_WAITING), NOT_WAITING === "off-cpu" ? "off-CPU" : NOT_WAITING);
  for (const [name, value] of facts()) {
    if (value === null || value === undefined) continue;
    const group = element("div");
    group.append(element("dt", name), element("dd", value));
    byId("facts").append(group);
  }
  for (const [level, title, text] of banners()) {
    const item = element("li", undefined, level);
    item.append(element("b", title), element("span", text));
    byId("banners").append(item);
  }
}

/* ---- Details -------------------------------------------------------------- */

const PARTS = [
  { metric: "time", ...METRICS.time },
  { metric: "run", name: "running", unit: formatTime, of: (sums, i) => sums.run[i], sub: true },
  ...(HAS_WAITING ? [{ metric: "waiting", name: "waiting", unit: formatTime, of: (sums, i) => sums.waiting[i], sub: true }] : []),
  { metric: "offCpu", name: TELLS_WAITING ? "preempted" : "off-CPU", unit: formatTime, of: (sums, i) => sums.offCpu[i], sub: true },
  { metric: "gc", name: "GC", unit: formatTime, of: (sums, i) => sums.gc[i], sub: true },
  { metric: "words", ...METRICS.words, unit: formatBareWords },
  ...(HAS_BINARIES ? [{ metric: "binaries", ...METRICS.binaries }] : []),
  { metric: "calls", ...METRICS.calls, unit: formatCount },
];

/* The time in which it did not run is the frame's own too: it only stands beside it. */
function ownOf(part, node, from = side()) {
  const { tree } = derived;
  const { own } = tree.sides[from];
  let sum = part.of(own, node);
  for (const child of tree.childrenOf(node))
    if (isPause(tree.kind[child])) sum += part.of(own, child);
  return sum;
}

/* The parts of the time are shares of all time. */
function wholeOf(part) {
  return part.sub ? METRICS.time.of : part.of;
}

const isCaller = (node) => derived.tree.depth[node] < 0;

function partCells(part, node) {
  const { own, total } = sums();
  const all = wholeOf(part)(derived.stacks.sides[side()].total, 0);
  const zoomed = wholeOf(part)(total, state.zoom);
  const calls = isCaller(node) ? 0 : own.calls[node];
  const perCall = (sum) => (calls > 0 && part.metric !== "calls" ? part.unit(sum / calls) : "–");
  const with_ = part.of(total, node);
  const without = ownOf(part, node);
  const ownCells = isCaller(node) ? ["–", "–", "–"] : [part.unit(without), formatShare(without, all), perCall(without)];
  return [part.unit(with_), formatShare(with_, all), formatShare(with_, zoomed), perCall(with_), ...ownCells];
}

function comparedCells(part, node) {
  const totals = ["before", "after"].map((of) => part.of(derived.tree.sides[of].total, node));
  const owns = ["before", "after"].map((of) => ownOf(part, node, of));
  const cells = ([before, after]) => [part.unit(before), part.unit(after), formatChange(after - before, part.unit), formatGrowth(before, after)];
  return [...cells(totals), ...(isCaller(node) ? ["–", "–", "–", "–"] : cells(owns))];
}

const HEADINGS = {
  single: ["", "with callees", "of all", "of zoomed", "a call", "own", "of all", "a call"],
  callers: ["", "with callees", "of all", "of function", "a call", "own", "of all", "a call"],
  compared: ["", "before", "after", "change", "", "own before", "own after", "change", ""],
};

function partRow(part, node) {
  const row = rowOf(profile.before ? comparedCells(part, node) : partCells(part, node));
  const heading = element("th", part.name, part.sub ? "sub" : "");
  heading.scope = "row";
  row.prepend(heading);
  row.children[4].className = "before-own";
  if (part.metric === state.metric) row.className = "shown";
  return row;
}

function showNumbers(node) {
  const head = element("thead");
  head.append(rowOf(HEADINGS[profile.before ? "compared" : state.tab === "callers" ? "callers" : "single"], "th"));
  head.rows[0].cells[4].className = "before-own";
  for (const cell of head.rows[0].cells) cell.scope = "col";
  const body = element("tbody");
  body.append(...PARTS.map((part) => partRow(part, node)));
  byId("numbers").className = profile.before ? "compared-numbers" : "";
  byId("numbers").replaceChildren(head, body);
}

function aboutProcess(index) {
  const process = profile.processes[index];
  const lines = [`Process ${processText(process)}${process.exited ? ", exited while profiled" : ""}`];
  if (process.name && process.label) lines.push(process.label);
  if (process.parent) lines.push(`spawned by ${[process.parent, process.parent_name].filter(Boolean).join(" ")}`);
  return lines;
}

const ABOUT_KIND = {
  [KIND.ALL]: "Everything in this profile.",
  [KIND.WAITING]: "Time its caller spent waiting: scheduled out, with nothing to do.",
  [KIND.OFF_CPU]: TELLS_WAITING ? "Time its caller spent preempted: it could run, but had no processor." : "Time its caller spent scheduled out: waiting or preempted.",
  [KIND.GC]: "Time its caller spent in garbage collection.",
  [KIND.PRUNED]: "Stacks too small to be kept in this page, summed up.",
};

function aboutCalls(node) {
  const { tree } = derived;
  const calls = formatCalls(sums().own.calls[node]);
  if (isCentre(node)) return `${calls}, and below it what it calls; above it what calls it.`;
  return isCaller(node) ? `Calls ${tree.label(tree.parent[node])}` : `${calls} from ${tree.label(tree.parent[node])}`;
}

function aboutLines(node) {
  const { tree } = derived;
  const lines = [];
  if (profile.before) lines.push(...aboutChange(node));
  if (ABOUT_KIND[tree.kind[node]]) lines.push(ABOUT_KIND[tree.kind[node]]);
  if (tree.kind[node] === KIND.FUNCTION) lines.push(aboutCalls(node));
  const process = tree.process(node);
  if (process >= 0) lines.push(...aboutProcess(process));
  else if (tree.merged && node > 0) lines.push("All processes merged");
  if (tree === derived.stacks) lines.push(`Depth ${tree.depth[node]}`);
  return lines;
}

function aboutChange(node) {
  const change = changeOf(node);
  return change === 1 ? ["New: not in the profile before."] : change === -1 ? ["Vanished: not in the profile after."] : [];
}

function showAbout(node) {
  const heading = element("h2");
  const chip = element("i");
  const { kind } = derived.tree;
  const change = profile.before ? changeOf(node) : 0;
  if (kind[node] > KIND.PROCESS && Math.abs(change) === 1) chip.className = change > 0 ? "new" : "vanished";
  else if (kind[node] > KIND.FUNCTION && !profile.before) chip.className = KIND_NAMES[kind[node]];
  else chip.style.background = colourOf(node);
  heading.append(chip, element("span", derived.tree.label(node), "code"));
  byId("words-about").replaceChildren(heading, ...aboutLines(node).map((line) => element("p", line)));
}

function showTiny(frame) {
  const heading = element("h2", `${formatCount(frame.count)} ${frame.count === 1 ? "frame" : "frames"} too narrow to draw`);
  byId("words-about").replaceChildren(heading, element("p", "Zoom into the caller to see more of them."));
  byId("numbers").replaceChildren();
}

function showActions(node) {
  const isFunction = node !== TINY && derived.tree.kind[node] === KIND.FUNCTION;
  byId("to-callers").disabled = !isFunction || isCentre(node);
  byId("remove").hidden = byId("zoom").hidden = state.tab === "callers";
  byId("remove").disabled = !canRemove(node);
  byId("zoom").disabled = node === TINY || node === state.zoom;
}

function showDetails() {
  const node = state.hover?.node ?? state.focus;
  showActions(node);
  if (node === TINY) return showTiny(state.hover);
  showAbout(node);
  showNumbers(node);
}

function shares(node, zoom) {
  const { value } = derived.geometry;
  const list = [`${formatShare(value[node], derived.whole)} of all`];
  if (state.tab === "callers") list.push(`${formatShare(value[node], value[0])} of function`);
  else if (zoom !== 0) list.push(`${formatShare(value[node], value[zoom])} of zoomed`);
  return list;
}

function comparedSummary(node) {
  const { unit, of } = METRICS[state.metric];
  const [before, after] = ["before", "after"].map((from) => of(derived.tree.sides[from].total, node));
  return `${unit(before)} → ${unit(after)} · ${formatGrowth(before, after)}`;
}

function summary(node, zoom = state.zoom) {
  const { unit, of } = METRICS[state.metric];
  return [profile.before ? comparedSummary(node) : unit(of(sums().total, node)), ...shares(node, zoom)].join(" · ");
}

function showTip(pointer) {
  const tip = byId("tip");
  tip.hidden = !state.hover || state.hover.node === TINY;
  if (tip.hidden) return;
  tip.replaceChildren(element("b", derived.tree.label(state.hover.node), "code"), element("span", summary(state.hover.node)));
  const { width, height } = tip.getBoundingClientRect();
  const below = pointer.clientY + 18;
  tip.style.left = `${Math.max(4, Math.min(pointer.clientX + 12, innerWidth - width - 8))}px`;
  tip.style.top = `${below + height > innerHeight ? pointer.clientY - height - 10 : below}px`;
}

function hideTip() {
  state.hover = null;
  byId("tip").hidden = true;
}

function announce(text) {
  byId("live").textContent = text;
}

function announceFocus() {
  const { tree } = derived;
  const parts = [tree.label(state.focus), summary(state.focus)];
  if (tree.kind[state.focus] === KIND.FUNCTION && !isCaller(state.focus)) parts.push(formatCalls(sums().own.calls[state.focus]));
  const depth = tree.depth[state.focus];
  const where = tree === derived.stacks ? `depth ${depth}` : depth === 0 ? "the function" : `${depth < 0 ? "caller" : "callee"} ${Math.abs(depth)}`;
  announce(`${parts.join(", ")}, ${where}`);
}

function matchedText() {
  if (state.pattern === "") return "";
  if (derived.search.error) return "Not a regular expression";
  if (state.tab === "functions") return "";
  const { value } = derived.geometry;
  const share = formatShare(derived.search.covered(derived.geometry, state.zoom), value[state.zoom]);
  const place = derived.matches.indexOf(state.focus) + 1;
  const count = `${formatCount(derived.matches.length)} ${derived.matches.length === 1 ? "frame" : "frames"}`;
  const of = state.tab === "callers" ? " of callees" : state.zoom === 0 ? "" : " of zoomed";
  return `Matched: ${share}${of} · ${place > 0 ? `${formatCount(place)} of ` : ""}${count}`;
}

function hintText() {
  const { tree } = derived;
  if (profile.before && state.tab === "graph" && state.zoom === 0)
    return { after: "Vanished stacks have no width after: choose Before, or the larger of both.", before: "New stacks have no width before: choose After, or the larger of both.", both: "Each stack is as wide as the larger of both sides." }[state.width];
  if (state.tab === "callers") return "Callers on one side, callees on the other. Click a function to put it in the middle.";
  return state.zoom === 0 ? "Click a frame to zoom." : `Zoomed: ${tree.label(state.zoom)} · ${summary(state.zoom, 0)}`;
}

function showStatus() {
  byId("zoomed").textContent = hintText();
  byId("reset").disabled = state.zoom === 0;
  byId("matched").textContent = matchedText();
  byId("search").setAttribute("aria-invalid", derived.search.error);
  for (const id of ["next", "previous"]) byId(id).disabled = derived.matches.length === 0 || state.tab === "functions";
}

function showEmpty() {
  const empty = byId("empty");
  empty.hidden = derived.geometry.value[0] > 0;
  const noWords = state.metric === "words" && profile.info.fallbacks.includes("heap");
  const what = { time: "No time was measured.", words: "No words were allocated.", calls: "No calls were seen.", binaries: "No binaries outside the heap were counted." }[state.metric];
  empty.textContent = profile.rowCount === 0 ? "This profile is empty: no call was captured."
    : state.removed.length > 0 ? "Nothing is left: all of it was removed."
      : noWords ? "Words were not measured: no heap pointer." : what;
}

/* ---- Table of functions ------------------------------------------------------ */

const ROWS_AT_ONCE = 200;
const table = { limit: ROWS_AT_ONCE };

/* In a comparison each column has the change beside it. */
function tableColumns() {
  return COLUMNS.flatMap((column) => [
    { ...column, text: (row) => column.unit(row[side()][column.id]) },
    ...(profile.before ? [{ ...column, change: true, name: "±", about: `${column.name}: change`, text: (row) => formatChange(row.after[column.id] - row.before[column.id], column.unit) }] : []),
  ]);
}

function headingOf({ id, name, about, change = false }) {
  const heading = element("th");
  const { sort } = state;
  const chosen = sort.column === id && sort.change === change;
  heading.scope = "col";
  heading.setAttribute("aria-sort", !chosen ? "none" : sort.falling ? "descending" : "ascending");
  const button = element("button", name);
  button.type = "button";
  button.title = about ?? name;
  button.dataset.column = sortText({ column: id, change, falling: true });
  if (change) button.setAttribute("aria-label", about);
  const mark = element("span", chosen ? (sort.falling ? "▼" : "▲") : "", "mark");
  mark.setAttribute("aria-hidden", "true");
  button.append(mark);
  button.addEventListener("click", () => sortBy(id, change));
  heading.append(button);
  return heading;
}

/* Numbers fall first, names rise first. */
function sortBy(column, change) {
  const same = state.sort.column === column && state.sort.change === change;
  state.sort = { column, change, falling: same ? !state.sort.falling : column !== "name" };
  showTable();
  writeAddress();
  byId("functions").querySelector(`[data-column="${sortText({ column, change, falling: true })}"]`).focus();
  announce(`Sorted by ${column}${change ? " change" : ""}, ${state.sort.falling ? "largest" : "smallest"} first`);
}

function nameCell(row, index) {
  const heading = element("th");
  heading.scope = "row";
  if (row.what < 0) {
    heading.append(element("span", row.name, "code muted"));
    return heading;
  }
  const button = element("button", row.name, "name code");
  button.type = "button";
  button.tabIndex = index === 0 ? 0 : -1;
  button.title = `${row.name}: callers and callees`;
  button.addEventListener("click", () => showCallers(row.what));
  heading.append(button);
  return heading;
}

function tableRow(row, index, columns, whole) {
  const line = element("tr");
  line.append(nameCell(row, index));
  for (const column of columns) {
    const cell = element("td", column.text(row));
    if (column.change) cell.className = row.after[column.id] > row.before[column.id] ? "grown" : row.after[column.id] < row.before[column.id] ? "shrunk" : "muted";
    else if (row[side()][column.id] === 0) cell.className = "muted";
    else if (["own", "total"].includes(column.id)) addBar(cell, row[side()][column.id], whole);
    line.append(cell);
  }
  return line;
}

/* Its share of all time, behind the number. */
function addBar(cell, value, whole) {
  const share = whole > 0 ? Math.min(100, 100 * value / whole) : 0;
  cell.className = "bar";
  cell.style.setProperty("--share", `${share}%`);
  cell.title = `${formatShare(value, whole)} of all time`;
}

function showTable() {
  const { sort } = state;
  const expression = expressionFor(state.pattern, state.matchCase) ?? /$^/;
  const all = functionTable();
  const rows = all.sorted(sort.column, sort.change, sort.falling, expression);
  const columns = tableColumns();
  const whole = METRICS.time.of(filledTree("separate").sides[side()].total, 0);
  const head = element("tr");
  head.append(...[{ id: "name", name: "Function" }, ...columns].map(headingOf));
  const shownRows = rows.slice(0, table.limit);
  byId("functions").tHead.replaceChildren(head);
  byId("functions").tBodies[0].replaceChildren(...shownRows.map((row, index) => tableRow(row, index, columns, whole)));
  byId("functions").classList.toggle("compared-table", Boolean(profile.before));
  const functions = `${formatCount(all.list.length)} ${all.list.length === 1 ? "row" : "rows"}`;
  byId("function-count").textContent = derived.search.error ? "Not a regular expression" : rows.length < all.list.length ? `${formatCount(rows.length)} of ${functions} match` : functions;
  byId("more").hidden = shownRows.length === rows.length;
  byId("more").textContent = `Show ${formatCount(Math.min(1000, rows.length - shownRows.length))} more`;
}

function moveInTable(event) {
  const names = [...byId("functions").querySelectorAll("button.name")];
  const at = names.indexOf(document.activeElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: names.length - 1 }[event.key];
  if (at < 0 || next === undefined || !names[next]) return;
  event.preventDefault();
  names[at].tabIndex = -1;
  names[next].tabIndex = 0;
  names[next].focus();
}

/* ---- Controls ----------------------------------------------------------- */

function showChoices() {
  for (const name of ["metric", "processes", "direction", "width"])
    document.querySelector(`input[name="${name}"][value="${state[name]}"]`).checked = true;
  byId("match-case").setAttribute("aria-pressed", state.matchCase);
  byId("hide-waiting").setAttribute("aria-pressed", state.hideWaiting);
  for (const tab of TABS) {
    byId(`tab-${tab}`).setAttribute("aria-selected", tab === state.tab);
    byId(`tab-${tab}`).tabIndex = tab === state.tab ? 0 : -1;
  }
  byId("chart-panel").hidden = state.tab === "functions";
  byId("functions-panel").hidden = state.tab !== "functions";
  byId("chart-panel").setAttribute("aria-labelledby", `tab-${state.tab === "callers" ? "callers" : "graph"}`);
  byId("picker").hidden = state.tab !== "callers";
  for (const item of document.querySelectorAll(".for-chart")) item.hidden = state.tab === "functions";
  byId("reset").hidden = state.tab !== "graph";
}

function showRemoved() {
  const count = state.removed.length;
  byId("removed").hidden = count === 0;
  byId("removed-count").textContent = `${formatCount(count)} ${count === 1 ? "stack" : "stacks"} removed; shares are of what is left.`;
}

function showPicked() {
  if (state.function >= 0 && document.activeElement !== byId("function")) byId("function").value = profile.functions[state.function][0];
}

/* Lays out and shows what the state says. */
function refresh() {
  showChoices();
  showRemoved();
  hideTip();
  if (state.tab === "functions") showTable();
  else showChart();
  showStatus();
  writeAddress();
}

function showChart() {
  derived.layout = layOut(zoomWindow());
  byId("space").style.height = `${contentHeight()}px`;
  showPicked();
  showEmpty();
  showDetails();
  slideTo(zoomWindow());
}

/* After a change of what the graph is made of. */
function renew() {
  deriveTree();
  shown = [0, 0];
  refresh();
}

function scrollToRow(depth) {
  const top = rowTop(depth);
  const room = chart.clientHeight;
  if (top < chart.scrollTop || top + ROW_HEIGHT > chart.scrollTop + room)
    chart.scrollTop = top - (room - ROW_HEIGHT) * (state.direction === "icicle" ? 0.25 : 0.75);
}

function choose(name, value) {
  state[name] = value;
  if (name === "processes") state.places = { graph: { zoom: 0, focus: 0 }, callers: { zoom: 0, focus: 0 } };
  renew();
  if (name === "direction" && state.tab !== "functions") scrollToRow(derived.tree.depth[state.zoom]);
  announce(`${METRICS[state.metric].name}, ${state.processes} processes, ${state.direction}`);
}

const TAB_NAMES = { graph: "Flame graph", functions: "Functions", callers: "Callers and callees" };

function showTab(tab) {
  state.tab = tab;
  table.limit = ROWS_AT_ONCE;
  renew();
  if (tab !== "functions") scrollToRow(derived.tree.depth[state.focus]);
  announce(TAB_NAMES[tab] + (tab === "callers" && state.function >= 0 ? ` of ${profile.functions[state.function][0]}` : ""));
}

/* The function in the middle, and the browser's Back returns to what was shown. */
function showCallers(what) {
  flushAddress();
  writeAddress(true);
  state.function = what;
  state.places.callers = { zoom: 0, focus: 0 };
  byId("function").value = profile.functions[what][0];
  showTab("callers");
  chart.focus();
}

function functionInFocus() {
  const { tree } = derived;
  return tree.kind[state.focus] === KIND.FUNCTION ? tree.what[state.focus] : -1;
}

function callersOfFocus() {
  if (state.tab === "functions") return showTab("callers");
  if (functionInFocus() >= 0) showCallers(functionInFocus());
  else showTab("callers");
}

function zoomTo(node) {
  state.zoom = derived.geometry.visible(node);
  state.focus = node;
  refresh();
  scrollToRow(derived.tree.depth[node]);
  announce(node === 0 ? "Showing all" : `Zoomed: ${derived.tree.label(node)}, ${summary(node, 0)}`);
}

/* What a click on a frame, or Enter, does. */
function open(node) {
  state.focus = node;
  if (state.tab === "graph") zoomTo(node);
  else if (functionInFocus() >= 0) showCallers(functionInFocus());
}

function focusOn(node) {
  state.focus = node;
  state.showFocus = true;
  hideTip();
  scrollToRow(derived.tree.depth[node]);
  showDetails();
  showStatus();
  drawSoon();
  announceFocus();
}

function canRemove(node) {
  return state.tab === "graph" && node > 0;
}

/* Its calls, time and words, and those of all it called, count no more. */
function remove(node) {
  if (!canRemove(node)) return;
  const label = derived.tree.label(node);
  state.removed.push({ processes: state.processes, node });
  const caller = derived.tree.parent[node];
  applyRemoved();
  state.focus = caller;
  renew();
  announce(`Removed ${label}. ${byId("removed-count").textContent}`);
}

function hideWaiting(hide) {
  state.hideWaiting = hide;
  applyRemoved();
  renew();
  announce(hide ? "Waiting is left out" : "Waiting is shown");
}

function restore(removed) {
  state.removed = removed;
  applyRemoved();
  renew();
  announce(removed.length === 0 ? "All stacks restored" : byId("removed-count").textContent);
}

/* The outermost frame whose zoom draws this node wide enough to see. */
function bestZoomFor(node) {
  const { tree, geometry } = derived;
  let best = node;
  while (best > 0 && geometry.value[node] / geometry.value[tree.parent[best]] * chart.clientWidth >= 8) best = tree.parent[best];
  return best;
}

function toMatch(step) {
  const { matches, layout } = derived;
  if (matches.length === 0 || state.tab === "functions") return;
  const inSight = state.tab === "graph" ? matches : matches.filter((node) => layout.find(node));
  const at = inSight.indexOf(state.focus);
  const next = inSight[at < 0 ? (step > 0 ? 0 : inSight.length - 1) : (at + step + inSight.length) % inSight.length];
  if (next === undefined) return;
  if (!layout.find(next)) {
    state.zoom = bestZoomFor(next);
    refresh();
  }
  focusOn(next);
}

function searchFor(pattern, matchCase = state.matchCase) {
  Object.assign(state, { pattern, matchCase });
  deriveSearch();
  showChoices();
  showStatus();
  if (state.tab === "functions") showTable();
  else drawSoon();
  writeAddress();
}

function openSearch() {
  byId("search").focus();
  byId("search").select();
}

function closeSearch() {
  byId("search").value = "";
  searchFor("");
  if (state.tab === "functions") byId("functions").querySelector("button.name")?.focus();
  else chart.focus();
}

function move(key) {
  const towardsCallee = state.direction === "icicle" ? "ArrowDown" : "ArrowUp";
  const { layout } = derived;
  if (!layout.find(state.focus)) return focusOn(state.zoom);
  const sideways = { ArrowLeft: -1, ArrowRight: 1 }[key];
  const node = sideways ? layout.beside(state.focus, sideways) : layout.towards(state.focus, key === towardsCallee ? 1 : -1);
  if (node !== undefined && node >= 0) focusOn(node);
}

function escape() {
  if (document.activeElement === byId("search")) closeSearch();
  else if (state.zoom !== 0 && state.tab === "graph") zoomTo(0);
  else if (state.pattern !== "") closeSearch();
}

const other = (value, one, two) => (value === one ? two : one);

const KEYS = {
  "/": openSearch,
  n: () => toMatch(1),
  N: () => toMatch(-1),
  t: () => choose("metric", "time"),
  w: () => choose("metric", "words"),
  c: () => choose("metric", "calls"),
  o: () => hasBinaries() && choose("metric", "binaries"),
  k: () => HAS_WAITING && hideWaiting(!state.hideWaiting),
  p: () => choose("processes", other(state.processes, "separate", "merged")),
  i: () => choose("direction", other(state.direction, "icicle", "flame")),
  g: () => showTab("graph"),
  f: () => showTab("functions"),
  s: callersOfFocus,
  b: () => profile.before && choose("width", { after: "before", before: "both", both: "after" }[state.width]),
  u: () => state.removed.length > 0 && restore(state.removed.slice(0, -1)),
  r: () => state.removed.length > 0 && restore([]),
  l: copyLink,
  d: () => useTheme(other(state.theme, "light", "dark"), true),
  "?": () => byId("help").showModal(),
};

const CHART_KEYS = {
  Enter: () => open(state.focus),
  " ": () => open(state.focus),
  Home: () => focusOn(0),
  x: () => remove(state.focus),
  Delete: () => remove(state.focus),
  ...Object.fromEntries(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].map((key) => [key, () => move(key)])),
};

function keyAction(event) {
  const active = document.activeElement;
  const inSearch = active === byId("search");
  if (event.ctrlKey || event.metaKey) return event.key === "f" && !inSearch ? openSearch : undefined;
  if (event.altKey) return undefined;
  if (event.key === "F3") return () => toMatch(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") return escape;
  if (inSearch) return event.key === "Enter" ? () => toMatch(event.shiftKey ? -1 : 1) : undefined;
  if (active === byId("function")) return undefined;
  return KEYS[event.key] ?? (active === chart ? CHART_KEYS[event.key] : undefined);
}

function onKey(event) {
  if (byId("help").open) return;
  const action = keyAction(event);
  state.showFocus = true;
  if (!action) return;
  event.preventDefault();
  action();
}

/* Arrows walk the tabs, as they do in a set of radio buttons. */
function onTabKey(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  event.stopPropagation();
  showTab(TABS[(TABS.indexOf(state.tab) + step + TABS.length) % TABS.length]);
  byId(`tab-${state.tab}`).focus();
}

const MOST_SUGGESTED = 50;

function suggest() {
  const text = byId("function").value.toLowerCase();
  const found = profile.functions.filter(([name]) => name.toLowerCase().includes(text)).slice(0, MOST_SUGGESTED);
  byId("function-names").replaceChildren(...found.map(([name]) => {
    const option = element("option");
    option.value = name;
    return option;
  }));
}

function pick() {
  const at = profile.functions.findIndex(([name]) => name === byId("function").value);
  byId("function").setAttribute("aria-invalid", at < 0);
  if (at >= 0 && at !== state.function) showCallers(at);
}

function frameAt(pointer) {
  const box = chart.getBoundingClientRect();
  const x = pointer.clientX - box.left - chart.clientLeft;
  const depth = depthAt(pointer.clientY - box.top - chart.clientTop + chart.scrollTop);
  const frame = derived.layout.hit(depth, x);
  return frame ? { ...frame, depth } : null;
}

function onPoint(pointer) {
  const frame = frameAt(pointer);
  const changed = frame?.node !== state.hover?.node || frame?.x !== state.hover?.x || frame?.depth !== state.hover?.depth;
  state.hover = frame;
  chart.style.cursor = frame && frame.node !== TINY ? "pointer" : "";
  showTip(pointer);
  if (!changed) return;
  showDetails();
  drawSoon();
}

function onLeave() {
  hideTip();
  showDetails();
  drawSoon();
}

function onClick(pointer) {
  const frame = frameAt(pointer);
  if (!frame || frame.node === TINY) return;
  if (pointer.ctrlKey || pointer.metaKey || pointer.altKey) remove(frame.node);
  else open(frame.node);
}

/* A file opened from a disk may be denied its storage. */
function savedTheme() {
  try {
    return localStorage.getItem("emberl-theme");
  } catch {
    return null;
  }
}

function saveTheme(theme) {
  try {
    localStorage.setItem("emberl-theme", theme);
  } catch {
    /* then it lasts as long as the page */
  }
}

function useTheme(theme, save) {
  state.theme = theme;
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  if (save) saveTheme(theme);
  readColours();
  if (derived.layout) {
    showDetails();
    drawSoon();
  }
}

function followSystemTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => useTheme(savedTheme() ?? (dark.matches ? "dark" : "light"), false);
  dark.addEventListener("change", apply);
  apply();
}

const CLICKS = {
  theme: KEYS.d,
  "help-button": KEYS["?"],
  reset: () => zoomTo(0),
  "hide-waiting": KEYS.k,
  "match-case": () => searchFor(state.pattern, !state.matchCase),
  next: KEYS.n,
  previous: KEYS.N,
  zoom: () => zoomTo(state.focus),
  remove: () => remove(state.focus),
  "to-callers": callersOfFocus,
  "restore-last": KEYS.u,
  "restore-all": KEYS.r,
  more: () => { table.limit += 1000; showTable(); },
  ...Object.fromEntries(TABS.map((tab) => [`tab-${tab}`, () => showTab(tab)])),
};

function listen() {
  for (const input of document.querySelectorAll(".choice input"))
    input.addEventListener("change", () => choose(input.name, input.value));
  const on = (id, event, action) => byId(id).addEventListener(event, action);
  for (const [id, action] of Object.entries(CLICKS)) on(id, "click", action);
  on("link", "click", (event) => { event.preventDefault(); copyLink(); });
  on("search", "input", () => searchFor(byId("search").value));
  on("tabs", "keydown", onTabKey);
  on("functions", "keydown", moveInTable);
  on("function", "focus", suggest);
  on("function", "input", suggest);
  on("function", "change", pick);
  for (const [event, action] of [["pointermove", onPoint], ["pointerleave", onLeave], ["click", onClick], ["focus", drawSoon], ["blur", drawSoon]])
    chart.addEventListener(event, action);
  chart.addEventListener("scroll", () => { hideTip(); drawSoon(); });
  document.addEventListener("keydown", onKey);
  document.addEventListener("pointerdown", () => { state.showFocus = false; });
  addEventListener("hashchange", () => { readAddress(); renew(); });
  new ResizeObserver(() => { if (state.tab !== "functions") { shown = [0, 0]; showChart(); } }).observe(chart);
}

/* ---- API ---------------------------------------------------------------- */

function numbersOf(node, from) {
  const { total } = derived.tree.sides[from];
  return {
    total: Object.fromEntries(Object.entries(METRICS).map(([name, { of }]) => [name, of(total, node)])),
    own: Object.fromEntries(PARTS.map((part) => [part.metric, ownOf(part, node, from)])),
  };
}

function describe({ node, x, width, count }, depth, box) {
  const where = { x: box.left + chart.clientLeft + x, y: box.top + chart.clientTop + rowTop(depth) - chart.scrollTop, width, height: ROW_HEIGHT - 1, depth };
  if (node === TINY) return { ...where, kind: "tiny", count };
  const { tree, geometry, search } = derived;
  const compared = profile.before ? { before: numbersOf(node, "before"), after: numbersOf(node, "after"), change: changeOf(node) } : {};
  return { ...where, kind: KIND_NAMES[tree.kind[node]], text: tree.label(node), module: tree.module(node), ...numbersOf(node, side()), ...compared, share: geometry.value[node] / geometry.value[0], matched: search.matched[node] === 1, focused: node === state.focus };
}

/* For scripts and tests.
 * emberl.frames(): the frames on the screen, by row, left to right. Each has
 *   its place in CSS pixels of the window (x, y, width, height), its depth
 *   (below zero: a caller), kind (all, process, function, gc, waiting, preempted or off-cpu, pruned,
 *   or tiny: `count` frames too narrow to draw) and, unless tiny: text, module,
 *   total and own by metric, its share of the whole in the metric shown,
 *   matched, focused; in a comparison also total and own of each side.
 * emberl.functions(): the rows of the table of functions, in its order.
 * emberl.state(): what is chosen, zoomed, focused and found. */
window.emberl = Object.freeze({
  frames() {
    if (state.tab === "functions") return [];
    const box = chart.getBoundingClientRect();
    const [first, last] = visibleDepths();
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i)
      .flatMap((depth) => derived.layout.row(depth).map((frame) => describe(frame, depth, box)));
  },
  functions() {
    const { sort } = state;
    return structuredClone(functionTable().sorted(sort.column, sort.change, sort.falling, expressionFor(state.pattern, state.matchCase) ?? /$^/));
  },
  state() {
    const { tab, metric, processes, direction, width, pattern, matchCase, hideWaiting, theme } = state;
    const covered = derived.search.covered(derived.geometry, state.zoom);
    return {
      tab, metric, processes, direction, width, pattern, matchCase, hideWaiting, theme,
      function: state.function >= 0 ? profile.functions[state.function][0] : null,
      removed: state.removed.length,
      zoom: derived.tree.label(state.zoom),
      focus: derived.tree.label(state.focus),
      matches: derived.matches.length,
      matchedShare: derived.geometry.value[state.zoom] > 0 ? covered / derived.geometry.value[state.zoom] : 0,
      total: derived.geometry.value[0],
      rows: derived.layout?.rows.length ?? 0,
    };
  },
});

showHeader();
readAddress();
followSystemTheme();
deriveTree();
listen();
refresh();
