// SPDX-License-Identifier: Apache-2.0
//
// How long the page of a profile of 200,000 stacks takes until it is drawn.
import { Pages } from "../test/browser/pages.mjs";

const rounds = Number(process.env.ROUNDS ?? 11);
const pages = new Pages();
await pages.start();
const times = [];
for (let round = 0; round < rounds; round++) {
  const page = await pages.open("large");
  times.push(await page.evaluate(() => performance.now()));
  await pages.closeAll();
}
await pages.stop();
times.sort((a, b) => a - b);
const at = (share) => Math.round(times[Math.floor(share * (rounds - 1))]);
console.log(`drawn after ${at(0.5)} ms (median of ${rounds}; ${at(0.25)} to ${at(0.75)})`);
