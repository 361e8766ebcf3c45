// What a page's clock says on a device that is slow for so many milliseconds of work, and then not; or, for
// Infinity, grows slower and slower; for NaN a sample takes two seconds:
//
//     node pace.mjs FOLDER SLOW_MS ...
//
// One line of JSON for all: of each the slowest sample of a candidate, and whether the device came to rest.

import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, ...slow] = process.argv.slice(2);
let now = 0;
Object.defineProperty(globalThis, "performance", { value: { now: () => now } });
const { measure } = await import(pathToFileURL(resolve(join(folder, "page", "measure.js"))).href);

const SAMPLE_MS = 10;
const found = [];
for (const slowMs of slow.map(Number)) {
  const began = now;
  const stopwatch = {
    dispatches: async () => 1,
    time: async () => {
      const worked = now - began;
      const idle = worked < slowMs ? 2.5 : 1;
      const factor = slowMs === Infinity ? 1 + worked / 2000 : Number.isNaN(slowMs) ? 200 : idle;
      now += SAMPLE_MS * factor;
      return SAMPLE_MS * factor;
    },
  };
  const rule = { least: 10, most: 50, spread: 0.01, budgetMs: 10000, settleMs: 500 };
  const { found: all, settled } = await measure(stopwatch, [{ encode: null }, { encode: null }], rule);
  found.push({ slowest: Math.max(...all[1].samples), settled, spent: now - began });
}
console.log(`\nresult: ${JSON.stringify(found)}`);
