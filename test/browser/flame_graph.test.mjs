// SPDX-License-Identifier: Apache-2.0
//
// The html view as a person uses it. The numbers of the sample "small" stand
// in test/c/sample_profiles.h: 200 ms, 29,700 words and 1,400 calls in all.
import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { describe, test } from "node:test";
import { clickFrame, colourOf, frame, frames, hoverFrame, middle, nextPaint, press, state, textOf, usePages } from "./pages.mjs";

const pages = usePages();
let page;

const near = (value, expected, slack = 1.5) =>
  assert.ok(Math.abs(value - expected) <= slack, `${value} is not about ${expected}`);

const texts = (list) => list.map((one) => one.text);

async function chartWidth() {
  return (await frame(page, "all")).width;
}

async function choose(name, value) {
  await page.locator(`input[name="${name}"][value="${value}"]`).check({ force: true });
  await nextPaint(page);
}

async function detailRow(name) {
  return page.locator("#numbers tbody tr").filter({ has: page.locator(`th:text-is("${name}")`) }).locator("td").allInnerTexts();
}

describe("what is drawn", () => {
  test("widths are shares of the time, callees lie below their caller", async () => {
    page = await pages.open("small");
    const width = await chartWidth();
    const checkout = await frame(page, "shop:checkout/1");
    const price = await frame(page, "shop:price/1");
    near(checkout.width, width * 101 / 200);
    near(price.width, width * 40 / 200);
    assert.equal(checkout.depth, 2);
    assert.equal(price.depth, 4);
    assert.ok(price.y > checkout.y);
    const map = (await frames(page)).find((one) => one.text === "lists:map/2" && one.total.calls === 1050);
    assert.ok(price.x >= map.x - 0.5 && price.x + price.width <= map.x + map.width + 0.5);
  });

  test("siblings do not overlap and stay inside their caller", async () => {
    page = await pages.open("medium");
    const all = await frames(page);
    for (let i = 1; i < all.length; i++)
      assert.ok(all[i].depth > all[i - 1].depth || all[i].x >= all[i - 1].x + all[i - 1].width - 0.01);
    assert.ok(all.at(-1).depth > 10);
  });

  test("time waiting, preempted and in collections has frames of its own", async () => {
    page = await pages.open("small");
    const pauses = await Promise.all(["[gc]", "[waiting]", "[preempted]"].map((name) => frame(page, name)));
    assert.deepEqual(pauses.map(({ kind, total }) => [kind, total.time]), [["gc", 10e6], ["waiting", 12e6], ["preempted", 3e6]]);
    const colours = await Promise.all(pauses.map((one) => colourOf(page, one)));
    assert.equal(new Set(colours).size, 3);
    assert.match(await textOf(page, "#status"), /waiting\s+preempted/);
    await choose("metric", "words");
    for (const { text } of pauses) assert.ok(!texts(await frames(page)).includes(text));
  });

  test("where waiting was not told from preempted, both are off-CPU time", async () => {
    page = await pages.open("untold");
    assert.equal((await frame(page, "[off-cpu]")).total.time, 15e6);
    assert.ok(!texts(await frames(page)).some((text) => ["[waiting]", "[preempted]"].includes(text)));
    assert.match(await textOf(page, "#banners"), /Waiting not told from preempted[^]*Binaries not counted|Binaries not counted[^]*Waiting not told from preempted/);
    assert.match(await textOf(page, "#status"), /off-CPU/);
    assert.ok(!await page.locator("#hide-waiting").isVisible());
    assert.ok(!await page.locator('label:has(input[value="binaries"])').isVisible());
    await press(page, "o", "k");
    assert.equal((await state(page)).metric, "time");
    assert.equal((await state(page)).total, 200e6);
  });

  test("waiting can be left out, and comes back", async () => {
    page = await pages.open("small");
    await page.locator("#hide-waiting").click();
    await nextPaint(page);
    assert.equal((await state(page)).total, 188e6);
    assert.ok(!texts(await frames(page)).includes("[waiting]"));
    assert.equal((await frame(page, "[preempted]")).total.time, 3e6);
    assert.equal((await frame(page, "gen_server:call/3")).total.time, 9e6);
    assert.equal(await page.locator("#hide-waiting").getAttribute("aria-pressed"), "true");
    assert.equal(await page.locator("#live").textContent(), "Waiting is left out");
    await press(page, "k");
    assert.equal((await state(page)).total, 200e6);
    assert.ok(texts(await frames(page)).includes("[waiting]"));
  });

  test("binaries are a metric where there are any", async () => {
    page = await pages.open("small");
    await choose("metric", "binaries");
    assert.equal((await state(page)).total, 65536);
    near((await frame(page, "lists:map/2")).width, await chartWidth());
    await hoverFrame(page, "Jason.encode!/2");
    const [total, share, , , own] = await detailRow("Binaries");
    assert.deepEqual([total, share, own], ["64 KiB", "100.00%", "0 B"]);
    await press(page, "t", "o");
    assert.equal((await state(page)).metric, "binaries");
    await page.close();
    page = await pages.open("merge");
    assert.ok(!await page.locator('label:has(input[value="binaries"])').isVisible());
  });

  test("functions of one module look alike, others do not", async () => {
    page = await pages.open("medium");
    const wide = (await frames(page)).filter((one) => one.kind === "function" && one.width > 40);
    for (const one of wide) one.colour = (await colourOf(page, one)).split(",").map(Number);
    const distance = (a, b) => a.colour.reduce((sum, value, i) => sum + Math.abs(value - b.colour[i]), 0);
    const pairs = wide.flatMap((a, i) => wide.slice(i + 1).map((b) => ({ alike: a.module === b.module, distance: distance(a, b) })));
    const [alike, others] = [true, false].map((is) => pairs.filter((pair) => pair.alike === is).map((pair) => pair.distance));
    assert.ok(alike.length > 20 && Math.max(...alike) < 45, `${Math.max(...alike)}`);
    assert.ok(others.filter((far) => far > 45).length > others.length * 0.8);
  });

  test("frames on the canvas are where the API says", async () => {
    page = await pages.open("small");
    const jason = await frame(page, "Jason.encode!/2");
    const below = { ...jason, y: jason.y + 200 };
    assert.notEqual(await colourOf(page, jason), await colourOf(page, below));
  });

  test("frames too narrow to draw are drawn together", async () => {
    page = await pages.open("large");
    const tiny = (await frames(page)).filter((one) => one.kind === "tiny");
    assert.ok(tiny.length > 0);
    await page.mouse.move(...middle(tiny[0]));
    await nextPaint(page);
    assert.match(await textOf(page, "#about"), /too narrow to draw/);
  });
});

describe("zoom", () => {
  test("a click fills the width and the reset button undoes it", async () => {
    page = await pages.open("small");
    const width = await chartWidth();
    assert.ok(await page.locator("#reset").isDisabled());
    await clickFrame(page, "shop:price/1");
    near((await frame(page, "shop:price/1")).width, width);
    near((await frame(page, "shop:checkout/1")).width, width);
    assert.ok(!texts(await frames(page)).includes("Jason.encode!/2"));
    assert.equal(await textOf(page, "#zoomed"), "Zoomed: shop:price/1 · 40 ms · 20.00% of all");
    await page.locator("#reset").click();
    await nextPaint(page);
    near((await frame(page, "shop:price/1")).width, width / 5);
  });

  test("a click on a caller zooms out to it", async () => {
    page = await pages.open("small");
    await clickFrame(page, "shop:price/1");
    await clickFrame(page, "shop:checkout/1");
    assert.equal((await state(page)).zoom, "shop:checkout/1");
    near((await frame(page, "shop:price/1")).width, await chartWidth() * 40 / 101);
  });

  test("a click beside the frames does nothing", async () => {
    page = await pages.open("small");
    const { x, y } = await frame(page, "shop:price/1");
    await page.mouse.click(x, y + 150);
    assert.equal((await state(page)).zoom, "all");
  });

  test("the zoom slides where motion is welcome", async () => {
    page = await pages.open("small", { reducedMotion: "no-preference" });
    const spot = await frame(page, "shop:price/1");
    await page.mouse.click(...middle(spot));
    await page.waitForTimeout(600);
    const far = { ...spot, x: (await chartWidth()) - 20, width: 30 };
    assert.equal(await colourOf(page, { ...far, y: (await frame(page, "shop:price/1")).y }), await colourOf(page, await frame(page, "shop:price/1")));
    assert.equal((await state(page)).zoom, "shop:price/1");
  });
});

describe("details", () => {
  test("hover shows every metric with callees and own", async () => {
    page = await pages.open("small");
    const at = (await frames(page)).filter((one) => one.text === "lists:map/2").findIndex((one) => one.total.calls === 1050);
    await hoverFrame(page, "lists:map/2", at);
    assert.deepEqual(await detailRow("Time"), ["70 ms", "35.00%", "35.00%", "1.40 ms", "30 ms", "15.00%", "600 µs"]);
    assert.deepEqual(await detailRow("running"), ["60 ms", "30.00%", "30.00%", "1.20 ms", "20 ms", "10.00%", "400 µs"]);
    assert.deepEqual(await detailRow("GC"), ["10 ms", "5.00%", "5.00%", "200 µs", "10 ms", "5.00%", "200 µs"]);
    assert.deepEqual(await detailRow("Words"), ["4,900 (38.3 KiB)", "16.50%", "16.50%", "98 (784 B)", "4,000 (31.3 KiB)", "13.47%", "80 (640 B)"]);
    assert.deepEqual(await detailRow("Calls"), ["1,050", "75.00%", "75.00%", "–", "50", "3.57%", "–"]);
    assert.match(await textOf(page, "#about"), /lists:map\/2\s+50 calls from shop:checkout\/1\s+Process <0\.100\.0> shop:checkout\/1/);
    assert.match(await textOf(page, "#tip"), /lists:map\/2\s+70 ms · 35\.00% of all/);
  });

  test("shares of the zoomed frame are told apart", async () => {
    page = await pages.open("small");
    await clickFrame(page, "shop:checkout/1");
    await hoverFrame(page, "shop:price/1");
    const time = await detailRow("Time");
    assert.equal(time[1], "20.00%");
    assert.equal(time[2], "39.60%");
    assert.match(await textOf(page, "#tip"), /20\.00% of all · 39\.60% of zoomed/);
  });

  test("a process says what is known of it", async () => {
    page = await pages.open("small");
    await hoverFrame(page, "<0.101.0> pricing");
    assert.match(await textOf(page, "#about"), /pricing, exited while profiled\s+pricing:init\/1\s+spawned by <0\.100\.0> shop:checkout\/1/);
  });

  test("negative words are shown, and have no width", async () => {
    page = await pages.open("small");
    await hoverFrame(page, "gen_server:call/3");
    assert.equal((await detailRow("Words"))[0], "-300 (-2.34 KiB)");
    await choose("metric", "words");
    assert.ok(!texts(await frames(page)).includes("gen_server:call/3"));
    near((await frame(page, "shop:checkout/1")).width, await chartWidth() * 5000 / 30000);
  });

  test("the tip goes with the pointer", async () => {
    page = await pages.open("small");
    await hoverFrame(page, "shop:price/1");
    assert.ok(await page.locator("#tip").isVisible());
    await page.mouse.move(600, 5);
    await nextPaint(page);
    assert.ok(!await page.locator("#tip").isVisible());
  });
});

describe("search", () => {
  const search = async (pattern) => {
    await page.fill("#search", pattern);
    await nextPaint(page);
  };

  test("the share matched does not count a match inside a match", async () => {
    page = await pages.open("small");
    await search("^shop:");
    assert.match(await textOf(page, "#matched"), /^Matched: 50\.50% · 2 frames$/);
    await search("map|price");
    assert.match(await textOf(page, "#matched"), /^Matched: 55\.00% · 4 frames$/);
  });

  test("matches are marked in a colour of their own", async () => {
    page = await pages.open("small");
    const before = await colourOf(page, await frame(page, "lists:map/2", 1));
    await search("lists:");
    assert.equal(await colourOf(page, await frame(page, "lists:map/2", 1)), "196,0,196");
    assert.equal((await frames(page)).filter((one) => one.matched).length, 3);
    await search("");
    assert.equal(await colourOf(page, await frame(page, "lists:map/2", 1)), before);
    assert.equal(await textOf(page, "#matched"), "");
  });

  test("case counts only when asked to", async () => {
    page = await pages.open("small");
    await search("jason");
    assert.equal((await state(page)).matches, 1);
    await page.locator("#match-case").click();
    assert.equal((await state(page)).matches, 0);
    assert.equal(await page.locator("#match-case").getAttribute("aria-pressed"), "true");
    assert.match(await textOf(page, "#matched"), /0\.00% · 0 frames/);
    assert.ok(await page.locator("#next").isDisabled());
  });

  test("a broken expression is said to be one", async () => {
    page = await pages.open("small");
    await search("lists:(");
    assert.equal(await textOf(page, "#matched"), "Not a regular expression");
    assert.equal(await page.locator("#search").getAttribute("aria-invalid"), "true");
  });

  test("Ctrl-F opens it, Enter walks the matches, Escape leaves it", async () => {
    page = await pages.open("small");
    await press(page, "Control+f");
    assert.equal(await page.evaluate(() => document.activeElement.id), "search");
    await page.keyboard.type("lists:map");
    const seen = [];
    for (let i = 0; i < 4; i++) {
      await press(page, "Enter");
      seen.push((await frames(page)).find((one) => one.focused).total.calls);
    }
    assert.deepEqual(seen, [9, 1050, 300, 9]);
    assert.match(await textOf(page, "#matched"), /1 of 3 frames/);
    await press(page, "Escape");
    assert.equal((await state(page)).pattern, "");
    assert.equal(await page.evaluate(() => document.activeElement.id), "chart");
  });

  test("the arrows and n, N go to the next and previous match", async () => {
    page = await pages.open("small");
    await search("lists:map");
    const calls = async () => (await frames(page)).find((one) => one.focused).total.calls;
    await page.locator("#next").click();
    assert.equal(await calls(), 9);
    await page.locator("#previous").click();
    assert.equal(await calls(), 300);
    await page.locator("#chart").focus();
    await press(page, "n", "n");
    assert.equal(await calls(), 1050);
    await press(page, "N");
    assert.equal(await calls(), 9);
  });

  test("a match outside the zoomed frame is brought into view", async () => {
    page = await pages.open("small");
    await clickFrame(page, "shop:price/1");
    await search("Jason");
    assert.match(await textOf(page, "#matched"), /0\.00% of zoomed · 1 frame$/);
    await page.locator("#next").click();
    await nextPaint(page);
    assert.ok((await frame(page, "Jason.encode!/2")).focused);
  });

  test("a match too narrow to draw is zoomed to", async () => {
    page = await pages.open("large");
    await search("lists:");
    for (let i = 0; i < 25; i++) {
      await page.keyboard.press("Enter");
      const focused = (await frames(page)).find((one) => one.focused);
      assert.ok(focused?.matched && focused.width >= 1);
    }
  });

  test("every match of a regular expression over the special frames counts", async () => {
    page = await pages.open("small");
    await search("\\[(gc|waiting|preempted)\\]");
    assert.match(await textOf(page, "#matched"), /^Matched: 12\.50% · 3 frames$/);
  });
});

describe("keyboard", () => {
  test("arrow keys walk the frames, Enter zooms, Escape resets", async () => {
    page = await pages.open("small");
    await page.locator("#chart").focus();
    const focus = async () => (await state(page)).focus;
    await press(page, "ArrowDown");
    assert.equal(await focus(), "<0.100.0> shop:checkout/1");
    await press(page, "ArrowRight");
    assert.equal(await focus(), "<0.101.0> pricing");
    await press(page, "ArrowRight");
    assert.equal(await focus(), "<0.101.0> pricing");
    await press(page, "ArrowLeft", "ArrowDown", "ArrowDown");
    assert.equal(await focus(), "lists:map/2");
    await press(page, "ArrowUp");
    assert.equal(await focus(), "shop:checkout/1");
    await press(page, "Enter");
    assert.equal((await state(page)).zoom, "shop:checkout/1");
    await press(page, "Escape");
    assert.equal((await state(page)).zoom, "all");
    await press(page, "ArrowDown", "Home");
    assert.equal(await focus(), "all");
  });

  test("up and down follow the picture in a flame graph", async () => {
    page = await pages.open("small");
    await page.locator("#chart").focus();
    await press(page, "i", "ArrowUp", "ArrowUp");
    assert.equal((await state(page)).focus, "shop:checkout/1");
    await press(page, "ArrowDown");
    assert.equal((await state(page)).focus, "<0.100.0> shop:checkout/1");
  });

  test("the focus is seen and said", async () => {
    page = await pages.open("small");
    const edge = async () => {
      const { x, y } = await frame(page, "<0.100.0> shop:checkout/1");
      return colourOf(page, { x: x + 1, y: y + 5, width: 0, height: 8 });
    };
    const plain = await edge();
    await page.locator("#chart").focus();
    await press(page, "ArrowDown");
    assert.notEqual(await edge(), plain);
    assert.equal(await page.locator("#live").getAttribute("aria-live"), "polite");
    assert.match(await page.locator("#live").textContent(), /<0\.100\.0> shop:checkout\/1, 101 ms · 50\.50% of all, depth 1/);
    await press(page, "ArrowDown");
    assert.match(await page.locator("#live").textContent(), /shop:checkout\/1, 101 ms · 50\.50% of all, 1 call, depth 2/);
    assert.match(await textOf(page, "#about h2"), /shop:checkout\/1/);
  });

  test("Tab reaches every control and the chart", async () => {
    page = await pages.open("small");
    const seen = new Set();
    for (let i = 0; i < 14; i++) {
      await page.keyboard.press("Tab");
      seen.add(await page.evaluate(() => document.activeElement.id || document.activeElement.name));
    }
    for (const id of ["theme", "help-button", "metric", "processes", "direction", "search", "match-case", "chart"])
      assert.ok(seen.has(id), `${id} is not reached: ${[...seen]}`);
  });

  test("letters choose, but not while one searches", async () => {
    page = await pages.open("small");
    await press(page, "w");
    assert.equal((await state(page)).metric, "words");
    await press(page, "c");
    assert.equal((await state(page)).metric, "calls");
    await press(page, "p");
    assert.equal((await state(page)).processes, "merged");
    await press(page, "/");
    await page.keyboard.type("tip");
    const now = await state(page);
    assert.deepEqual([now.metric, now.processes, now.direction, now.pattern], ["calls", "merged", "icicle", "tip"]);
  });

  test("? shows the keys", async () => {
    page = await pages.open("small");
    await press(page, "?");
    assert.ok(await page.locator("#help").isVisible());
    await press(page, "Escape");
    assert.ok(!await page.locator("#help").isVisible());
  });
});

describe("choices", () => {
  test("time, words and calls change the widths", async () => {
    page = await pages.open("small");
    const width = await chartWidth();
    await choose("metric", "words");
    near((await frame(page, "Jason.encode!/2")).width, width * 25000 / 30000);
    await hoverFrame(page, "Jason.encode!/2");
    assert.match(await textOf(page, "#tip"), /25,000 words \(195 KiB\) · 83\.33% of all/);
    await choose("metric", "calls");
    near((await frame(page, "Jason.encode!/2")).width, width * 330 / 1400);
    await choose("metric", "time");
    near((await frame(page, "Jason.encode!/2")).width, width * 99 / 200);
  });

  test("the metric asked for is shown first", async () => {
    page = await pages.open("small", { metric: "words" });
    assert.equal((await state(page)).metric, "words");
    assert.ok(await page.locator('input[value="words"]').isChecked());
  });

  test("a zoom lasts over a change of metric", async () => {
    page = await pages.open("small");
    await clickFrame(page, "Jason.encode!/2");
    await choose("metric", "calls");
    assert.equal((await state(page)).zoom, "Jason.encode!/2");
    near((await frame(page, "Jason.encode!/2")).width, await chartWidth());
  });

  test("a zoomed frame with nothing of the metric gives way to its caller", async () => {
    page = await pages.open("small");
    await clickFrame(page, "[waiting]");
    await choose("metric", "words");
    assert.equal((await state(page)).zoom, "shop:checkout/1");
  });

  test("merged processes share their stacks", async () => {
    page = await pages.open("merge");
    const total = (await state(page)).total;
    assert.equal((await frames(page)).filter((one) => one.text === "work:run/0").length, 2);
    await choose("processes", "merged");
    const merged = (await frames(page)).filter((one) => one.text === "work:run/0");
    assert.equal(merged.length, 1);
    assert.deepEqual(merged[0].total, { time: 3000, words: 30, calls: 3, binaries: 0 });
    assert.equal(merged[0].depth, 1);
    assert.ok(!(await frames(page)).some((one) => one.kind === "process"));
    assert.equal((await state(page)).total, total);
    await choose("processes", "separate");
    assert.equal((await frames(page)).filter((one) => one.kind === "process").length, 2);
  });

  test("a flame graph grows from the bottom", async () => {
    page = await pages.open("small");
    await choose("direction", "flame");
    const all = await frame(page, "all");
    const checkout = await frame(page, "shop:checkout/1");
    assert.ok(checkout.y < all.y);
    const chart = await page.locator("#chart").boundingBox();
    near(all.y + all.height, chart.y + chart.height, 4);
    await clickFrame(page, "shop:checkout/1");
    assert.equal((await state(page)).zoom, "shop:checkout/1");
  });

  test("the system's colours are followed until the button is used", async () => {
    page = await pages.open("small", { colorScheme: "dark" });
    const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await back();
    assert.equal((await state(page)).theme, "dark");
    const darkFrame = await colourOf(page, await frame(page, "shop:price/1"));
    await page.locator("#theme").click();
    await nextPaint(page);
    assert.equal((await state(page)).theme, "light");
    assert.notEqual(await back(), dark);
    assert.notEqual(await colourOf(page, await frame(page, "shop:price/1")), darkFrame);
    await page.reload();
    assert.equal((await state(page)).theme, "light");
  });

  test("the graph follows the size of the window", async () => {
    page = await pages.open("small");
    const width = await chartWidth();
    await page.setViewportSize({ width: 800, height: 900 });
    await nextPaint(page);
    near(await chartWidth(), width - 400, 20);
  });

  test("labels stay sharp on a dense screen", async () => {
    page = await pages.open("small", { deviceScaleFactor: 2 });
    const [canvas, shown] = await page.evaluate(() => { const c = document.getElementById("canvas"); return [c.width, c.clientWidth]; });
    assert.equal(canvas, shown * 2);
    await clickFrame(page, "shop:price/1");
    assert.equal((await state(page)).zoom, "shop:price/1");
  });
});

describe("what is said about the profile", () => {
  test("the header", async () => {
    page = await pages.open("small");
    assert.equal(await page.title(), "shop:checkout/1 – emberl");
    assert.equal(await textOf(page, "#target"), "shop:checkout/1");
    const facts = (await textOf(page, "#facts")).replace(/\s+/g, " ");
    for (const fact of ["OTP release 27", "Started 2026-01-02 03:04:05.123 UTC", "Duration 1.23 s", "Captured calls 1", "Outcome returned", "Processes 2", "Events 48,211", "Lost events 0", "Tracing cost taken off 250 ms (25.00% of raw 1 s)", "Fallbacks none"])
      assert.ok(facts.includes(fact), `${fact} is not in: ${facts}`);
    assert.equal(await page.locator("#banners li").count(), 0);
  });

  test("banners for all that makes it less than whole", async () => {
    page = await pages.open("trouble");
    const banners = await page.locator("#banners li").allInnerTexts();
    assert.match(banners[0], /Events lost\s+1,789 of 50,000 \(3\.58%\)/);
    assert.match(banners.join("\n"), /Unfinished/);
    assert.match(banners.join("\n"), /Depth cut\s+12 calls/);
    for (const name of ["No stack pointer", "No heap pointer", "No invariant time-stamp counter"])
      assert.ok(banners.some((text) => text.startsWith(name)), name);
    assert.ok(await page.locator("#banners .loss").isVisible());
  });

  test("what was pruned", async () => {
    page = await pages.open("large");
    assert.match(await textOf(page, "#banners"), /150,000 of 200,000 stacks .* at most 0\.00\d+% of the total of any metric/);
    const [total, kept] = await page.evaluate(() => {
      const rows = JSON.parse(document.getElementById("profile").textContent).rows;
      let time = 0;
      for (let i = 0; i < rows.length; i += 9) time += rows[i + 3] + rows[i + 4] + rows[i + 5] + rows[i + 6];
      return [window.emberl.state().total, time];
    });
    assert.equal(total, kept);
    await page.fill("#search", "pruned: [0-9,]+ stack");
    await press(page, "Enter");
    const pruned = (await frames(page)).find((one) => one.focused);
    assert.equal(pruned.kind, "pruned");
    assert.match(await textOf(page, "#about"), /Stacks too small to be kept/);
  });

  test("an empty profile says so", async () => {
    page = await pages.open("empty");
    assert.match(await textOf(page, "#empty"), /This profile is empty/);
    assert.equal((await frames(page)).length, 0);
    await page.locator("#chart").focus();
    await press(page, "ArrowDown", "Enter", "Escape", "w", "i", "p");
    await page.fill("#search", "x");
    assert.match(await textOf(page, "#matched"), /0 frames/);
  });
});

describe("hard cases", () => {
  test("no name gets out of its place", async () => {
    page = await pages.open("hostile");
    const shown = texts(await frames(page));
    for (const name of ["</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 2'>", "\"];window.hacked = 3;//", "<!--<script>", "a;b;c 12", "åäö 日本語 🔥", "line\nbreak\r\ttab \x01\x1f\x7f", "\u2028\u2029 separators", "__proto__", "��� not utf-8 ���".slice(1)])
      assert.ok(shown.some((text) => text === name), JSON.stringify(name));
    for (const text of shown) await hoverFrame(page, text);
    await clickFrame(page, "<img src=x onerror='window.hacked = 2'>");
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.evaluate(() => document.images.length), 0);
    assert.equal(await textOf(page, "#target"), "</title><script>window.hacked = 4</script>");
  });

  test("ten thousand frames on top of each other scroll", async () => {
    page = await pages.open("deep");
    await page.locator("#chart").focus();
    const { rows } = await state(page);
    assert.ok(rows > 9900, `${rows} rows`);
    await page.evaluate(() => { document.getElementById("chart").scrollTop = 1e9; });
    await nextPaint(page);
    const last = (await frames(page)).at(-1);
    assert.equal(last.depth, rows - 1);
    await press(page, "Home");
    assert.ok((await frame(page, "all")).focused);
    await clickFrame(page, "deep:down/1", 5);
    await choose("direction", "flame");
    assert.ok((await frames(page)).some((one) => one.focused));
  });

  test("200,000 stacks: a small file that opens", async () => {
    const file = pages.write("large");
    assert.ok(statSync(file).size < 5e6, `${statSync(file).size} bytes`);
    page = await pages.open("large");
    assert.ok((await frames(page)).length > 1000);
  });

  test("the file asks for nothing from outside", async () => {
    const html = readFileSync(pages.write("small"), "utf8");
    assert.doesNotMatch(html, /https?:|src=|@import|url\(|fetch\(|XMLHttpRequest|innerHTML|insertAdjacentHTML|document\.write|eval\(/);
    assert.match(html, /default-src 'none'/);
    page = await pages.open("small");
  });
});
