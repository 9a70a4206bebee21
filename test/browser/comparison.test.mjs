// SPDX-License-Identifier: Apache-2.0
//
// Two profiles beside each other, in html and svg. The numbers of the sample
// "comparison" stand in test/c/sample_profiles.h: 200 ms after, 206 ms before.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { clickFrame, colourOf, frame, frames, hoverFrame, nextPaint, press, state, textOf, usePages } from "./pages.mjs";

const pages = usePages();
let page;

const near = (value, expected, slack = 1.5) =>
  assert.ok(Math.abs(value - expected) <= slack, `${value} is not about ${expected}`);

// More red than blue, by how much.
const redness = (colour) => {
  const [red, , blue] = colour.match(/[0-9]+/g).map(Number);
  return red - blue;
};

describe("html", () => {
  const open = async (options) => { page = await pages.open("comparison", options); };
  const row = async (name) => page.locator("#numbers tbody tr").filter({ has: page.locator(`th:text-is("${name}")`) }).locator("td").allInnerTexts();
  const deepest = async (text) => (await frames(page)).filter((one) => one.text === text).at(-1);

  test("the numbers of both sides", async () => {
    await open();
    const all = await frame(page, "all");
    assert.equal(all.after.total.time, 200e6);
    assert.equal(all.before.total.time, 206e6);
    await hoverFrame(page, "Jason.encode!/2");
    assert.deepEqual(await row("Time"), ["131 ms", "99 ms", "−32 ms", "−24.4%", "92 ms", "60 ms", "−32 ms", "−34.8%"]);
    assert.deepEqual(await row("Calls"), ["330", "330", "0", "same", "30", "30", "0", "same"]);
    assert.match(await textOf(page, "#tip"), /131 ms → 99 ms · −24\.4% · 49\.50% of all/);
    await hoverFrame(page, "shop:price/1");
    assert.deepEqual((await row("Time")).slice(0, 4), ["0 ns", "40 ms", "+40 ms", "new"]);
    assert.match(await textOf(page, "#about"), /New: not in the profile before/);
  });

  test("widths are those of a side, or of the larger", async () => {
    await open();
    const { width } = await frame(page, "all");
    near((await frame(page, "Jason.encode!/2")).width, width * 99 / 200);
    assert.ok(!(await frames(page)).some(({ text }) => text === "shop:total/2"));
    assert.match(await textOf(page, "#zoomed"), /Vanished stacks have no width/);
    await press(page, "b");
    assert.equal((await state(page)).width, "before");
    near((await frame(page, "Jason.encode!/2")).width, width * 131 / 206);
    near((await frame(page, "shop:total/2")).width, width * 30 / 206);
    assert.ok(!(await frames(page)).some(({ text }) => text === "shop:price/1"));
    await page.locator('input[name="width"][value="both"]').check({ force: true });
    for (const name of ["shop:total/2", "shop:price/1"]) assert.ok(await frame(page, name));
  });

  for (const colorScheme of ["light", "dark"])
    test(`red has grown, blue has shrunk, ${colorScheme}`, async () => {
      await open({ colorScheme });
      await page.locator('input[name="width"][value="both"]').check({ force: true });
      await nextPaint(page);
      const of = async (one) => redness(await colourOf(page, one));
      const same = await of(await deepest("lists:map/2"));
      assert.ok(Math.abs(same) < 20, `${same}`);
      assert.ok(await of(await frame(page, "gen_server:call/3")) > same + 25);
      assert.ok(await of(await frame(page, "Jason.encode!/2")) < same - 12);
      assert.ok(await of(await frame(page, "shop:price/1")) > same + 25);
      assert.ok(await of(await frame(page, "shop:total/2")) < same - 25);
      const doubled = await of(await frame(page, "gen_server:call/3"));
      assert.ok(doubled > await of(await frame(page, "shop:checkout/1")));
    });

  test("new and vanished have stripes, not a colour alone", async () => {
    await open();
    const price = await frame(page, "shop:price/1");
    const seen = new Set();
    for (let i = 0; i < 8; i++) seen.add(await colourOf(page, { ...price, width: price.width - i }));
    assert.ok(seen.size > 1);
    const call = await frame(page, "gen_server:call/3");
    assert.equal(await colourOf(page, call), await colourOf(page, { ...call, width: call.width - 3 }));
    for (const name of ["vanished", "new", "half"]) assert.match(await textOf(page, ".legend"), new RegExp(name));
  });

  test("the table has changes and sorts by them", async () => {
    await open();
    await press(page, "f");
    const names = () => page.locator("#functions tbody th").allInnerTexts();
    const change = (column) => page.getByRole("button", { name: `${column}: change` });
    await change("Total").click();
    assert.deepEqual((await names()).slice(0, 2), ["lists:map/2", "shop:price/1"]);
    await change("Total").click();
    assert.equal((await names())[0], "Jason.encode!/2");
    const cells = await page.locator("#functions tbody tr").filter({ hasText: "shop:total/2" }).locator("td").allInnerTexts();
    assert.deepEqual(cells.slice(0, 6), ["0", "−2", "0 ns", "−30 ms", "0 ns", "−30 ms"]);
    await page.evaluate(() => { location.hash = document.getElementById("link").hash; });
    await page.reload();
    await nextPaint(page);
    assert.equal((await state(page)).tab, "functions");
    assert.equal((await names())[0], "Jason.encode!/2");
  });

  test("callers and callees have both sides, a removed stack goes from both", async () => {
    await open();
    await clickFrame(page, "shop:price/1");
    await press(page, "x", "Escape", "b");
    assert.equal((await state(page)).total, 206e6);
    await press(page, "b", "b");
    assert.equal((await state(page)).total, 160e6);
    await page.evaluate(() => { location.hash = "#tab=callers&function=1&width=both"; });
    await page.waitForFunction(() => window.emberl.state().function === "lists:map/2");
    await nextPaint(page);
    assert.deepEqual([(await frame(page, "lists:map/2")).before.total.time, (await frame(page, "lists:map/2")).after.total.time], [70e6, 110e6]);
  });

  test("the header has both, losses of the one before too", async () => {
    await open();
    const facts = (await textOf(page, "#facts")).replace(/\s+/g, " ");
    assert.match(facts, /Before shop:checkout\/1 Scaled by calls, × 2\.00/);
    assert.match(facts, /Started 2026-01-01 03:04:05\.123 UTC → 2026-01-02/);
    assert.match(facts, /Lost events 3 → 0/);
    assert.match(await textOf(page, "#banners"), /Events lost \(before\)/);
  });

  test("another profile has nothing of it", async () => {
    page = await pages.open("small");
    assert.equal(await page.locator('input[name="width"]').first().isVisible(), false);
    assert.doesNotMatch(await textOf(page, ".legend"), /vanished/);
  });
});

describe("svg", () => {
  const open = async (options) => { page = await pages.open("comparison", { format: "svg", ...options }); };
  const all = () => page.evaluate(() => [...document.querySelectorAll("#emberl-frames g")].map((group) => {
    const rect = group.querySelector("rect");
    const [name, ...details] = group.querySelector("title").textContent.split("\n");
    return { name, details: details.join("\n"), shown: group.style.display !== "none", width: rect.getBoundingClientRect().width / window.innerWidth, fill: getComputedStyle(rect).fill };
  }));
  const named = async (name) => (await all()).find((one) => one.name === name && one.shown);

  test("both sides in the details, red for grown and blue for shrunk", async () => {
    await open();
    const encode = await named("Jason.encode!/2");
    near(encode.width, 99 / 200, 0.002);
    assert.match(encode.details, /131\.000 ms → 99\.000 ms \(−24\.43 %\), 49\.50 %/);
    assert.ok(redness(encode.fill) < -10);
    assert.ok(redness((await named("gen_server:call/3")).fill) > 30);
    assert.match((await named("shop:price/1")).fill, /#emberl-new/);
    assert.equal(await named("shop:total/2"), undefined);
    assert.match(await page.evaluate(() => document.getElementById("emberl-legend").textContent), /vanished.*new/);
  });

  test("widths switch, vanished frames come", async () => {
    await open();
    await press(page, "b");
    near((await named("Jason.encode!/2")).width, 131 / 206, 0.002);
    assert.match((await named("shop:total/2")).fill, /#emberl-vanished/);
    assert.equal(await named("shop:price/1"), undefined);
    await page.reload();
    await nextPaint(page);
    assert.ok(await named("shop:total/2"));
    await page.focus("#emberl-width");
    await press(page, "Enter");
    assert.equal(await named("shop:total/2"), undefined);
  });

  test("another profile has no switch", async () => {
    page = await pages.open("small", { format: "svg" });
    assert.equal(await page.evaluate(() => getComputedStyle(document.getElementById("emberl-width")).display), "none");
    assert.equal(await page.evaluate(() => document.getElementById("emberl-legend")), null);
  });
});
