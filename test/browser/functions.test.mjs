// SPDX-License-Identifier: Apache-2.0
//
// The table of functions and the callers and callees of one, in the html view. The
// numbers of the samples "small" and "recursive" stand in test/c/sample_profiles.h.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { clickFrame, frame, frames, nextPaint, press, state, textOf, usePages } from "./pages.mjs";

const pages = usePages();
let page;

const near = (value, expected, slack = 1.5) =>
  assert.ok(Math.abs(value - expected) <= slack, `${value} is not about ${expected}`);

const names = () => page.locator("#functions tbody th").allInnerTexts();
const cells = (name) => page.locator("#functions tbody tr").filter({ has: page.getByRole("rowheader", { name, exact: true }) }).locator("td").allInnerTexts();
const focused = () => page.evaluate(() => document.activeElement.textContent);

async function openTable(sample, options) {
  page = await pages.open(sample, options);
  await press(page, "f");
}

async function sort(name) {
  await page.locator("#functions thead button").filter({ hasText: new RegExp(`^${name}`) }).click();
  await nextPaint(page);
}

describe("the table of functions", () => {
  test("one row a function, with its sums, largest total first", async () => {
    await openTable("small");
    assert.equal((await state(page)).tab, "functions");
    assert.deepEqual(await names(), ["lists:map/2", "shop:checkout/1", "Jason.encode!/2", "shop:price/1", "gen_server:call/3"]);
    assert.deepEqual(await cells("lists:map/2"), ["359", "60 ms", "110 ms", "0 ns", "0 ns", "10 ms", "24,000", "64 KiB"]);
    assert.deepEqual(await cells("gen_server:call/3"), ["10", "5 ms", "21 ms", "12 ms", "3 ms", "0 ns", "-300", "0 B"]);
  });

  test("a function inside itself counts once in its total", async () => {
    await openTable("recursive");
    const totals = Object.fromEntries((await page.evaluate(() => window.emberl.functions())).map((row) => [row.name, row.after]));
    assert.equal(totals["tree:walk/1"].total, 75826);
    assert.equal(totals["lists:foldl/3"].total, 74622);
    assert.equal(totals["tree:leaf/1"].total, 70587);
    assert.equal(totals["tree:walk/1"].calls, 7);
  });

  test("the sums of its columns are the whole profile's", async () => {
    for (const sample of ["medium", "large"]) {
      await openTable(sample);
      const rows = await page.evaluate(() => window.emberl.functions().map((row) => row.after));
      const time = rows.reduce((sum, { own, waiting, offCpu, gc }) => sum + own + waiting + offCpu + gc, 0);
      await press(page, "g");
      assert.equal(time, (await frame(page, "all")).total.time);
      assert.equal(rows.reduce((sum, { calls }) => sum + calls, 0), (await frame(page, "all")).total.calls);
      await page.close();
    }
  });

  test("every column sorts, both ways, and says so", async () => {
    await openTable("small");
    for (const [name, first] of [["Calls", "shop:price/1"], ["Own", "Jason.encode!/2"], ["Waiting", "gen_server:call/3"], ["Preempted", "gen_server:call/3"], ["GC", "lists:map/2"], ["Binaries", "lists:map/2"], ["Words", "lists:map/2"]]) {
      await sort(name);
      assert.equal((await names())[0], first, name);
    }
    await sort("Words");
    assert.equal((await names())[0], "gen_server:call/3");
    const order = () => page.locator('#functions th[aria-sort]:not([aria-sort="none"])').evaluateAll((all) => all.map((one) => [one.textContent, one.getAttribute("aria-sort")]));
    assert.deepEqual(await order(), [["Words▲", "ascending"]]);
    assert.match(await page.locator("#live").textContent(), /Sorted by words, smallest first/);
    await sort("Function");
    assert.deepEqual(await names(), ["Jason.encode!/2", "gen_server:call/3", "lists:map/2", "shop:checkout/1", "shop:price/1"]);
  });

  test("the search filters it", async () => {
    await openTable("small");
    await press(page, "/");
    await page.keyboard.type("^shop");
    await nextPaint(page);
    assert.deepEqual(await names(), ["shop:checkout/1", "shop:price/1"]);
    assert.match(await textOf(page, "#function-count"), /2 of 5 rows match/);
    await page.fill("#search", "(");
    assert.equal(await textOf(page, "#function-count"), "Not a regular expression");
    assert.deepEqual(await names(), []);
    assert.equal(await page.locator("#search").getAttribute("aria-invalid"), "true");
    await press(page, "Escape");
    assert.equal((await names()).length, 5);
  });

  test("arrows walk its rows, Enter goes to callers and callees", async () => {
    await openTable("small");
    await page.locator("#functions button.name").first().focus();
    await press(page, "ArrowDown", "ArrowDown");
    assert.equal(await focused(), "Jason.encode!/2");
    await press(page, "End");
    assert.equal(await focused(), "gen_server:call/3");
    await press(page, "ArrowUp", "Enter");
    assert.deepEqual([(await state(page)).tab, (await state(page)).function], ["callers", "shop:price/1"]);
    assert.equal(await page.evaluate(() => document.activeElement.id), "chart");
  });

  test("only one row is a stop of the Tab key", async () => {
    await openTable("medium");
    assert.equal(await page.locator('#functions button.name[tabindex="0"]').count(), 1);
  });

  test("headers and rows have their scope, the tabs their panels", async () => {
    await openTable("small");
    assert.equal(await page.locator('#functions thead th:not([scope="col"])').count(), 0);
    assert.equal(await page.locator('#functions tbody tr > :first-child:not(th[scope="row"])').count(), 0);
    assert.equal(await page.locator('[role="tab"][aria-selected="true"]').getAttribute("aria-controls"), "functions-panel");
    assert.ok(await page.getByRole("table", { name: "Functions" }).isVisible());
    assert.ok(await page.getByRole("tabpanel", { name: "Functions" }).isVisible());
    assert.equal(await page.locator("#chart").isVisible(), false);
  });

  test("many rows come when asked for", async () => {
    await openTable("large");
    assert.equal((await names()).length, 200);
    await page.locator("#more").click();
    assert.ok((await names()).length > 900);
    assert.ok(!await page.locator("#more").isVisible());
  });

  test("names stay text", async () => {
    await openTable("hostile");
    assert.ok((await names()).includes("<img src=x onerror='window.hacked = 2'>"));
    for (const name of ["</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 2'>"]) {
      await page.locator("#functions button.name").filter({ hasText: name }).click();
      await nextPaint(page);
      assert.equal((await state(page)).function, name);
      await press(page, "f");
    }
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.evaluate(() => document.images.length), 0);
  });

  test("an empty profile has an empty one", async () => {
    await openTable("empty");
    assert.deepEqual(await names(), []);
    await press(page, "s", "x", "Enter", "f", "g");
    assert.equal((await state(page)).tab, "graph");
  });
});

describe("callers and callees", () => {
  const show = async (sample, name) => {
    await openTable(sample);
    await page.locator("#functions button.name").filter({ hasText: name }).first().click();
    await nextPaint(page);
  };

  test("all callers lie above the function, all callees below", async () => {
    await show("small", "lists:map/2");
    const all = await frames(page);
    const at = (depth) => all.filter((one) => one.depth === depth).map(({ text, total }) => [text, total.time / 1e6]);
    assert.deepEqual(at(0), [["lists:map/2", 110]]);
    assert.deepEqual(at(1), [["shop:price/1", 40], ["[gc]", 10]]);
    assert.deepEqual(at(-1).sort(), [["Jason.encode!/2", 39], ["gen_server:call/3", 1], ["shop:checkout/1", 70]]);
    assert.deepEqual(at(-2).sort(), [["<0.100.0> shop:checkout/1", 70], ["<0.101.0> pricing", 39], ["shop:checkout/1", 1]]);
    const centre = await frame(page, "lists:map/2");
    near((await frame(page, "Jason.encode!/2")).width, centre.width * 39 / 110);
    assert.ok((await frame(page, "Jason.encode!/2")).y < centre.y && (await frame(page, "shop:price/1")).y > centre.y);
  });

  test("the callers' parts sum up to the function's total, whatever the metric", async () => {
    await show("medium", "gen_server:expr_3/2");
    for (const metric of ["t", "w", "c"]) {
      await press(page, metric);
      const { width } = await frame(page, "gen_server:expr_3/2");
      const callers = (await frames(page)).filter(({ depth }) => depth === -1);
      assert.ok(callers.length > 0);
      near(callers.reduce((sum, one) => sum + one.width, 0), width, 2);
    }
  });

  test("a function inside itself is one of its callees", async () => {
    await show("recursive", "tree:walk/1");
    const all = await frames(page);
    assert.equal(all.find(({ depth }) => depth === 0).total.time, 75826);
    assert.deepEqual(all.filter(({ depth }) => depth < 0).map(({ text }) => text), ["<0.1.0> walker"]);
    assert.ok(all.some(({ depth, text }) => depth === 1 && text === "tree:walk/1"));
  });

  test("a click puts another function in the middle, Back returns", async () => {
    await show("small", "lists:map/2");
    await clickFrame(page, "Jason.encode!/2");
    assert.equal((await state(page)).function, "Jason.encode!/2");
    assert.equal((await frame(page, "Jason.encode!/2")).depth, 0);
    await page.waitForFunction(() => location.hash.includes("function=3"));
    await page.goBack();
    await page.waitForFunction(() => window.emberl.state().function === "lists:map/2");
    await nextPaint(page);
    assert.equal((await frame(page, "lists:map/2")).depth, 0);
  });

  test("s shows those of the frame in focus, arrows walk both sides", async () => {
    page = await pages.open("small");
    await page.locator("#chart").focus();
    await press(page, "ArrowDown", "ArrowDown", "ArrowDown", "s");
    assert.equal((await state(page)).function, (await state(page)).focus);
    assert.equal((await state(page)).function, "lists:map/2");
    await press(page, "ArrowUp");
    assert.equal((await state(page)).focus, "shop:checkout/1");
    assert.match(await page.locator("#live").textContent(), /shop:checkout\/1, 70 ms · 35\.00% of all · 63\.64% of function, caller 1/);
    await press(page, "ArrowUp", "ArrowDown", "ArrowDown");
    assert.equal((await state(page)).focus, "lists:map/2");
    await press(page, "ArrowDown");
    assert.match(await page.locator("#live").textContent(), /shop:price\/1, 40 ms · 20\.00% of all · 36\.36% of function, 1,000 calls, callee 1/);
    await press(page, "Enter");
    assert.equal((await state(page)).function, "shop:price/1");
  });

  test("in a flame graph the callees lie above", async () => {
    await show("small", "lists:map/2");
    await press(page, "i");
    assert.ok((await frame(page, "shop:price/1")).y < (await frame(page, "lists:map/2")).y);
    assert.ok((await frame(page, "Jason.encode!/2")).y > (await frame(page, "lists:map/2")).y);
  });

  test("merged processes merge their stacks here too", async () => {
    await show("merge", "work:run/0");
    assert.equal((await frames(page)).filter(({ depth }) => depth < 0).length, 2);
    await press(page, "p");
    assert.deepEqual((await frames(page)).map(({ text, total }) => [text, total.time]), [["work:run/0", 3000], ["work:step/1", 1500]]);
  });

  test("a name can be typed, with suggestions", async () => {
    await show("small", "lists:map/2");
    await page.fill("#function", "shop");
    assert.deepEqual(await page.locator("#function-names option").evaluateAll((all) => all.map((one) => one.value)), ["shop:checkout/1", "shop:price/1"]);
    await press(page, "Tab");
    assert.equal(await page.locator("#function").getAttribute("aria-invalid"), "true");
    await page.fill("#function", "shop:price/1");
    await press(page, "Enter");
    assert.equal((await state(page)).function, "shop:price/1");
  });

  test("matches are counted among the callees", async () => {
    await show("small", "lists:map/2");
    await page.fill("#search", "price|encode");
    assert.match(await textOf(page, "#matched"), /^Matched: 36\.36% of callees · 2 frames$/);
  });

  test("the largest profile answers", async () => {
    await show("large", "lists:");
    assert.ok((await frames(page)).some(({ depth }) => depth < 0));
    assert.ok((await frames(page)).some(({ depth }) => depth > 0));
  });
});

describe("the tabs", () => {
  test("a click, a letter and the arrows choose them", async () => {
    page = await pages.open("small");
    await page.locator("#tab-callers").click();
    assert.equal((await state(page)).tab, "callers");
    await press(page, "ArrowLeft");
    assert.equal((await state(page)).tab, "functions");
    assert.equal(await page.evaluate(() => document.activeElement.id), "tab-functions");
    await press(page, "ArrowRight", "ArrowRight");
    assert.equal((await state(page)).tab, "graph");
    assert.equal(await page.locator('[role="tab"][tabindex="0"]').count(), 1);
  });

  test("the zoom of the graph is there again", async () => {
    page = await pages.open("small");
    await clickFrame(page, "Jason.encode!/2");
    await press(page, "f", "s", "g");
    assert.equal((await state(page)).zoom, "Jason.encode!/2");
  });

  for (const width of [340, 560, 900])
    test(`nothing lies beside a window of ${width} pixels`, async () => {
      page = await pages.open("medium", { viewport: { width, height: 700 } });
      for (const key of ["g", "f", "s"]) {
        await press(page, key);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), key);
      }
    });
});
