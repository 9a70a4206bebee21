// SPDX-License-Identifier: Apache-2.0
//
// Makes sample pages and opens them in a browser.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, afterEach, before } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const sampleProgram = process.env.EMBER_VIEW_SAMPLE ?? join(root, "build/plain/view_sample");

const browserOptions = {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
  ],
};

// For the tests of a file. The pages that a test opens are closed after it, and an
// error in one or a request for another file fails it.
export function usePages() {
  const pages = new Pages();
  before(() => pages.start());
  after(() => pages.stop());
  afterEach(() => pages.closeAll());
  return pages;
}

export class Pages {
  opened = [];

  async start() {
    this.folder = mkdtempSync(join(tmpdir(), "emberl-html-"));
    this.browser = await chromium.launch(browserOptions);
  }

  async stop() {
    await this.browser?.close();
    rmSync(this.folder, { recursive: true });
  }

  async closeAll() {
    const pages = this.opened.splice(0);
    for (const page of pages) await page.close();
    assert.deepEqual(pages.flatMap((page) => page.problems), []);
  }

  write(sample, metric = "time", format = "html") {
    const file = join(this.folder, `${sample}-${metric}.${format}`);
    execFileSync(sampleProgram, [sample, format, file, metric], { stdio: ["ignore", "ignore", "inherit"] });
    return file;
  }

  // Motion is off, so that what a test sees is final.
  async open(sample, { metric, format, ...options } = {}) {
    const file = this.write(sample, metric, format);
    const page = await this.browser.newPage({ viewport: { width: 1200, height: 900 }, reducedMotion: "reduce", ...options });
    page.problems = [];
    this.opened.push(page);
    page.on("pageerror", (error) => page.problems.push(`error: ${error.message}`));
    page.on("console", (message) => {
      if (message.type() === "error") page.problems.push(`console: ${message.text()}`);
    });
    page.on("request", (request) => {
      if (request.url() !== pathToFileURL(file).href && !request.url().startsWith("data:"))
        page.problems.push(`request: ${request.url()}`);
    });
    await page.goto(pathToFileURL(file).href);
    await nextPaint(page);
    return page;
  }
}

// Resolves when what was asked for so far is on the screen.
export function nextPaint(page) {
  return page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));
}

export const frames = (page) => page.evaluate(() => window.emberl.frames());
export const state = (page) => page.evaluate(() => window.emberl.state());
export const textOf = (page, selector) => page.locator(selector).innerText();

export async function frame(page, text, at = 0) {
  const found = (await frames(page)).filter((one) => one.text === text);
  if (!found[at]) throw new Error(`no frame ${text} (${at}) on the screen`);
  return found[at];
}

export const middle = ({ x, y, width, height }) => [x + width / 2, y + height / 2];

export async function hoverFrame(page, text, at) {
  await page.mouse.move(...middle(await frame(page, text, at)));
  await nextPaint(page);
}

export async function clickFrame(page, text, at) {
  await page.mouse.click(...middle(await frame(page, text, at)));
  await nextPaint(page);
}

export async function press(page, ...keys) {
  for (const key of keys) await page.keyboard.press(key);
  await nextPaint(page);
}

// The colour in the lower right of a frame, where no label is: "r,g,b".
export function colourOf(page, { x, y, width, height }) {
  return page.evaluate(([left, top]) => {
    const canvas = document.getElementById("canvas");
    const box = canvas.getBoundingClientRect();
    const ratio = window.devicePixelRatio;
    const pixel = canvas.getContext("2d").getImageData((left - box.left) * ratio, (top - box.top) * ratio, 1, 1);
    return pixel.data.slice(0, 3).join(",");
  }, [x + width - Math.min(6, width / 2), y + height - 3]);
}
