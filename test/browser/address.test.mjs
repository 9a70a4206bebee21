// SPDX-License-Identifier: Apache-2.0
//
// What the html view keeps in its address, and the stacks one takes out of it.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { clickFrame, frame, frames, middle, nextPaint, press, state, textOf, usePages } from "./pages.mjs";

const pages = usePages();
let page;

const link = () => page.locator("#link").getAttribute("href");

async function follow(sample, hash) {
  const other = await pages.open(sample);
  await other.evaluate((to) => { location.hash = to; }, hash);
  await other.reload();
  await nextPaint(other);
  return other;
}

test("a link keeps that waiting is left out, where there is any", async () => {
  page = await pages.open("small");
  await press(page, "k");
  const hash = await link();
  assert.match(hash, /hideWaiting=true/);
  const other = await follow("small", hash);
  assert.deepEqual([(await state(other)).hideWaiting, (await state(other)).total], [true, 188e6]);
  await other.close();
  const untold = await follow("untold", hash);
  assert.deepEqual([(await state(untold)).hideWaiting, (await state(untold)).total], [false, 200e6]);
  await untold.close();
});

describe("removing stacks", () => {
  test("a stack and all it called count no more, and come back", async () => {
    page = await pages.open("small");
    const price = await frame(page, "shop:price/1");
    await page.mouse.click(...middle(price), { button: "left" });
    await press(page, "Escape");
    await page.locator("#chart").focus();
    await press(page, "Home", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown");
    assert.equal((await state(page)).focus, "shop:price/1");
    await press(page, "x");
    assert.equal((await state(page)).total, 160e6);
    assert.equal((await state(page)).focus, "lists:map/2");
    assert.ok(!(await frames(page)).some(({ text }) => text === "shop:price/1"));
    assert.equal((await frame(page, "shop:checkout/1")).total.calls, 70);
    assert.match(await textOf(page, "#removed"), /1 stack removed/);
    assert.match(await page.locator("#live").textContent(), /Removed shop:price\/1\. 1 stack removed/);
    await press(page, "u");
    assert.equal((await state(page)).total, 200e6);
    assert.ok(!await page.locator("#removed").isVisible());
  });

  test("Ctrl and a click, the button, Undo and Restore all", async () => {
    page = await pages.open("small");
    await page.keyboard.down("Control");
    await page.mouse.click(...middle(await frame(page, "Jason.encode!/2")));
    await page.keyboard.up("Control");
    assert.equal((await state(page)).total, 101e6);
    await clickFrame(page, "gen_server:call/3");
    await page.mouse.move(5, 5);
    await page.locator("#remove").click();
    assert.equal((await state(page)).total, 80e6);
    assert.match(await textOf(page, "#removed"), /2 stacks removed/);
    await page.locator("#restore-last").click();
    assert.equal((await state(page)).total, 101e6);
    await page.locator("#restore-all").click();
    assert.equal((await state(page)).total, 200e6);
  });

  test("time off the CPU or in collections alone can go", async () => {
    page = await pages.open("small");
    await clickFrame(page, "[gc]");
    await press(page, "Delete");
    assert.equal((await state(page)).zoom, "lists:map/2");
    await press(page, "Escape");
    assert.equal((await state(page)).total, 190e6);
    assert.equal((await frame(page, "all")).total.calls, 1400);
  });

  test("what is removed is removed everywhere", async () => {
    page = await pages.open("small");
    await clickFrame(page, "shop:checkout/1");
    await page.locator("#remove").click();
    const rows = async () => Object.fromEntries((await page.evaluate(() => window.emberl.functions())).map((row) => [row.name, row.after.total / 1e6]));
    assert.deepEqual(await rows(), { "Jason.encode!/2": 99, "lists:map/2": 39 });
    await press(page, "p");
    assert.equal((await state(page)).total, 99e6);
    await clickFrame(page, "lists:map/2");
    await page.locator("#remove").click();
    assert.deepEqual(await rows(), { "Jason.encode!/2": 60 });
    await press(page, "p");
    assert.equal((await state(page)).total, 60e6);
  });

  test("the root stays, and all else may go", async () => {
    page = await pages.open("merge");
    await page.locator("#chart").focus();
    assert.ok(await page.locator("#remove").isDisabled());
    await press(page, "Home", "x");
    assert.equal((await state(page)).removed, 0);
    await press(page, "ArrowDown", "x", "ArrowDown", "x");
    assert.match(await textOf(page, "#empty"), /Nothing is left/);
    await press(page, "r");
    assert.equal((await state(page)).total, 4000 - 1000);
  });
});

describe("the link", () => {
  const same = ["tab", "metric", "processes", "direction", "pattern", "matchCase", "function", "removed", "zoom", "matches", "total"];
  const chosen = (all) => Object.fromEntries(same.map((name) => [name, all[name]]));

  test("a fresh page has none", async () => {
    page = await pages.open("small");
    await page.waitForTimeout(300);
    assert.equal(await link(), "#");
    assert.equal(await page.evaluate(() => location.hash), "");
  });

  test("the graph: zoom, search, metric, processes, direction, removed", async () => {
    page = await pages.open("medium");
    await press(page, "w", "p", "i");
    await page.fill("#search", "parse|expr & %");
    await page.locator("#match-case").click();
    const wide = (await frames(page)).filter(({ kind, depth }) => kind === "function" && depth === 1);
    await clickFrame(page, wide.at(-1).text);
    await page.locator("#remove").click();
    const next = (await frames(page)).find(({ kind, depth }) => kind === "function" && depth === 2);
    await clickFrame(page, next.text);
    const was = chosen(await state(page));
    assert.equal(was.removed, 1);
    const other = await follow("medium", await link());
    assert.deepEqual(chosen(await state(other)), was);
    assert.equal(await other.inputValue("#search"), "parse|expr & %");
    await other.close();
  });

  test("the address has it too, and following it changes the page", async () => {
    page = await pages.open("small");
    await press(page, "w");
    await page.waitForFunction(() => location.hash === "#metric=words");
    await page.evaluate(() => { location.hash = "#metric=calls&direction=flame"; });
    await page.waitForFunction(() => window.emberl.state().metric === "calls");
    assert.equal((await state(page)).direction, "flame");
    await page.evaluate(() => { location.hash = ""; });
    await page.waitForFunction(() => window.emberl.state().metric === "time");
  });

  test("the table keeps its order and its filter", async () => {
    page = await pages.open("small");
    await press(page, "f");
    await page.locator("#functions thead button").filter({ hasText: "Calls" }).click();
    await page.locator("#functions thead button").filter({ hasText: "Calls" }).click();
    await page.fill("#search", "shop");
    const other = await follow("small", await link());
    assert.equal((await state(other)).tab, "functions");
    assert.deepEqual(await other.locator("#functions tbody th").allInnerTexts(), ["shop:checkout/1", "shop:price/1"]);
    assert.equal(await other.locator('th[aria-sort="ascending"]').innerText(), "Calls▲");
    await other.close();
  });

  test("a function between its callers and callees", async () => {
    page = await pages.open("small");
    await page.evaluate(() => { location.hash = "#tab=callers&function=3"; });
    await page.waitForFunction(() => window.emberl.state().function === "Jason.encode!/2");
    await nextPaint(page);
    assert.equal((await frame(page, "Jason.encode!/2")).depth, 0);
  });

  test("what fits no page is left out", async () => {
    const other = await follow("small", "#tab=x&metric=__proto__&processes=&direction=flame&width=before&function=99999&zoom=-4&removed=s0.q3.s99999.m.s1e3.s2&sort=constructor.change&pattern=%28");
    const now = await state(other);
    assert.deepEqual([now.tab, now.metric, now.processes, now.direction, now.width], ["graph", "time", "separate", "flame", "after"]);
    assert.deepEqual([now.function, now.zoom, now.removed], [null, "all", 1]);
    assert.equal(await textOf(other, "#matched"), "Not a regular expression");
    await other.close();
  });

  test("a pattern cannot become markup", async () => {
    const other = await follow("small", `#pattern=${encodeURIComponent("<img src=x onerror='window.hacked = 5'>")}`);
    assert.equal(await other.inputValue("#search"), "<img src=x onerror='window.hacked = 5'>");
    assert.equal(await other.evaluate(() => [window.hacked, document.images.length].join()), ",0");
    await other.close();
  });

  test("l and the button copy it", async () => {
    page = await pages.open("small");
    await press(page, "i", "l");
    await page.waitForFunction(() => /Link copied|address bar has the link/.test(document.getElementById("live").textContent));
    assert.match(page.url(), /#direction=flame$/);
  });
});

describe("what a reader of screens hears", () => {
  test("every control has a name, every region one of its own", async () => {
    page = await pages.open("small");
    for (const key of ["g", "f", "s"]) {
      await press(page, key);
      const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, input, a, [role]")]
        .filter((one) => one.checkVisibility())
        .filter((one) => !(one.getAttribute("aria-label") || one.getAttribute("aria-labelledby") || one.textContent.trim() || one.labels?.length || ["status", "presentation"].includes(one.getAttribute("role"))))
        .map((one) => one.outerHTML));
      assert.deepEqual(unnamed, []);
    }
    assert.equal(await page.locator("#chart").getAttribute("role"), "application");
    assert.equal(await page.locator("main, nav, header").count(), 3);
  });

  for (const colorScheme of ["light", "dark"])
    test(`text stands out from its ground, ${colorScheme}`, async () => {
      page = await pages.open("trouble", { colorScheme });
      for (const key of ["g", "f"]) {
        await press(page, key);
        for (const { contrast, text } of await page.evaluate(contrasts)) assert.ok(contrast >= 4.5, `${contrast.toFixed(2)}: ${text}`);
      }
    });
});

// Of every visible text against the nearest ground that is not transparent.
function contrasts() {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).slice(0, 3).map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) if (channels(getComputedStyle(one).backgroundColor)[3] === 255) return getComputedStyle(one).backgroundColor;
    return "white";
  };
  return [...document.querySelectorAll("body *")]
    .filter((one) => [...one.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()) && one.checkVisibility() && !one.disabled && !one.closest("script, style, #live"))
    .map((one) => {
      const [light, dark] = [luminance(getComputedStyle(one).color), luminance(ground(one))].sort((a, b) => b - a);
      return { text: one.textContent.trim().slice(0, 40), contrast: (light + 0.05) / (dark + 0.05) };
    });
}
