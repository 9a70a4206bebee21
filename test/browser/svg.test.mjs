// SPDX-License-Identifier: Apache-2.0
//
// The svg view as a person uses it: what its script does in a browser.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { nextPaint, press, usePages } from "./pages.mjs";

const pages = usePages();
let page;

const open = async (sample, options) => {
  page = await pages.open(sample, { format: "svg", ...options });
  page.answer = (text) => page.once("dialog", (dialog) => (text === null ? dialog.dismiss() : dialog.accept(text)));
};

// The frames on the screen; x and width as parts of the window's.
const frames = () => page.evaluate(() =>
  [...document.querySelectorAll("#emberl-frames g")].filter((group) => group.style.display !== "none").map((group) => {
    const box = group.querySelector("rect").getBoundingClientRect();
    const title = group.querySelector("title").textContent.split("\n");
    return {
      name: title[0], details: title.slice(1).join("\n"), label: group.querySelector("text")?.textContent ?? "",
      x: box.x / window.innerWidth, width: box.width / window.innerWidth, y: box.y, height: box.height,
      fill: getComputedStyle(group.querySelector("rect")).fill, above: group.classList.contains("above"),
    };
  }));
const named = async (name) => (await frames()).find((one) => one.name === name);
const near = (value, expected) => assert.ok(Math.abs(value - expected) < 0.002, `${value} is not about ${expected}`);
const text = (id) => page.evaluate((name) => document.getElementById(`emberl-${name}`).textContent, id);

async function point(name, action) {
  const { x, width, y, height } = await named(name);
  const at = await page.evaluate(([part]) => part * window.innerWidth, [x + width / 2]);
  await page.mouse[action](at, y + height / 2);
  await nextPaint(page);
}

async function click(id) {
  const box = await page.evaluate((name) => {
    const { x, y, width, height } = document.getElementById(`emberl-${name}`).getBoundingClientRect();
    return [x + width / 2, y + height / 2];
  }, id);
  await page.mouse.click(...box);
  await nextPaint(page);
}

describe("what is drawn", () => {
  test("widths are shares, callees lie below their caller", async () => {
    await open("small");
    near((await named("all")).width, 1);
    near((await named("shop:checkout/1")).width, 101 / 200);
    near((await named("shop:price/1")).width, 40 / 200);
    near((await named("[waiting]")).width, 12 / 200);
    near((await named("[preempted]")).width, 3 / 200);
    assert.ok((await named("shop:price/1")).y > (await named("lists:map/2")).y);
    assert.match((await named("lists:map/2")).details, /^70\.000 ms, 35\.00 %, 20\.000 ms of its own\n4,900 words, 1,050 calls$/);
  });

  test("the metric asked for gives the widths", async () => {
    await open("small", { metric: "calls" });
    near((await named("shop:price/1")).width, 1000 / 1400);
    assert.equal(await named("[gc]"), undefined);
  });

  test("frames of a row do not overlap and stay inside their caller", async () => {
    await open("medium");
    const rows = new Map();
    for (const one of await frames()) rows.set(one.y, [...(rows.get(one.y) ?? []), one]);
    const sorted = [...rows.keys()].sort((a, b) => a - b);
    assert.ok(sorted.length > 10);
    let above;
    for (const y of sorted) {
      const row = rows.get(y).sort((a, b) => a.x - b.x);
      row.forEach((one, i) => assert.ok(i === 0 || one.x >= row[i - 1].x + row[i - 1].width - 1e-4));
      for (const one of row)
        assert.ok(!above || above.some((outer) => outer.x <= one.x + 1e-4 && outer.x + outer.width >= one.x + one.width - 1e-4));
      above = row;
    }
  });

  test("names and values of frames are what the profile says, losses stand at the top", async () => {
    await open("trouble");
    assert.match(await page.evaluate(() => document.querySelector(".heading").textContent), /^shop:checkout\/1, 2026-01-02/);
    assert.match(await page.evaluate(() => document.querySelector(".caveats").textContent), /1789 events lost; 12 calls/);
  });

  test("names cannot become markup or script", async () => {
    await open("hostile");
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.evaluate(() => document.querySelectorAll("script").length), 1);
    assert.ok(await named("</script><script>window.hacked = 1</script>"));
    assert.ok(await named("åäö 日本語 🔥"));
    await point("<img src=x onerror='window.hacked = 2'>", "click");
    assert.match(await text("details"), /onerror='window.hacked = 2'/);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  });

  test("empty, deep and large profiles open", async () => {
    await open("empty");
    assert.equal((await frames()).length, 0);
    await page.close();
    await open("deep");
    assert.equal((await frames()).length, 1003);
    await page.close();
    const start = performance.now();
    await open("large");
    assert.ok(performance.now() - start < 15000);
    assert.ok((await frames()).length > 1000);
  });
});

describe("zoom", () => {
  test("a click gives a frame the whole width, its callers too", async () => {
    await open("small");
    await point("lists:map/2", "click");
    near((await named("lists:map/2")).width, 1);
    near((await named("shop:price/1")).width, 40 / 70);
    assert.ok((await named("shop:checkout/1")).above);
    assert.equal(await named("gen_server:call/3"), undefined);
    await click("reset");
    near((await named("shop:price/1")).width, 40 / 200);
  });

  test("Escape goes back", async () => {
    await open("small");
    await point("shop:checkout/1", "click");
    near((await named("shop:checkout/1")).width, 1);
    await press(page, "Escape");
    near((await named("shop:checkout/1")).width, 101 / 200);
  });

  test("what was too narrow for its name gets it", async () => {
    await open("medium");
    const narrow = (await frames()).find((one) => one.label === "" && one.width > 0.01);
    await point(narrow.name, "click");
    assert.notEqual((await named(narrow.name)).label, "");
  });

  test("the address keeps where one is", async () => {
    await open("small");
    await point("lists:map/2", "click");
    await page.reload();
    await nextPaint(page);
    near((await named("lists:map/2")).width, 1);
  });
});

describe("search", () => {
  test("matches are coloured and summed up without overlap", async () => {
    await open("small");
    page.answer("checkout|price");
    await press(page, "Control+f");
    assert.equal((await named("shop:price/1")).fill, "rgb(230, 0, 230)");
    assert.notEqual((await named("lists:map/2")).fill, "rgb(230, 0, 230)");
    assert.equal(await text("matched"), "Matched: 50.5 %");
    await click("search");
    assert.equal(await text("matched"), "");
  });

  test("case counts until it is told not to", async () => {
    await open("small");
    page.answer("ENCODE");
    await click("search");
    assert.equal(await text("matched"), "Matched: 0.0 %");
    await click("case");
    assert.equal(await text("matched"), "Matched: 49.5 %");
  });

  test("what is no regular expression is searched as it is", async () => {
    await open("hostile");
    page.answer("\"];window.hacked = 3;//");
    await press(page, "F3");
    assert.match(await text("matched"), /^Matched: [1-9]/);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  });
});

describe("details and keys", () => {
  test("hovering shows a frame's numbers", async () => {
    await open("small");
    assert.match(await text("details"), /^Click a frame/);
    await point("gen_server:call/3", "move");
    assert.match(await text("details"), /gen_server:call\/3 .* 21\.000 ms, 10\.50 %, 5\.000 ms of its own/);
  });

  test("arrows walk through the frames, Enter zooms", async () => {
    await open("small");
    await press(page, "ArrowDown", "ArrowRight", "ArrowDown");
    assert.match(await text("details"), /^Jason\.encode!\/2/);
    await press(page, "Enter");
    near((await named("Jason.encode!/2")).width, 1);
    await press(page, "ArrowUp", "ArrowLeft");
    assert.match(await text("details"), /^<0\.10[01]\.0>/);
  });
});
