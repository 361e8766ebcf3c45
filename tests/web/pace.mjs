// A page's timing on simulated devices:
//
//     node pace.mjs FOLDER
//
// Prints one line of JSON that begins with "result: ". For each device it contains the slowest samples of a copy and of a
// kernel, in units of their time on a warm device; true if the device settled; and the milliseconds of the whole run.

import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder] = process.argv.slice(2);
let now = 0;
Object.defineProperty(globalThis, "performance", { value: { now: () => now } });
const load = (name) => import(pathToFileURL(resolve(join(folder, "page", name))).href);
const { measure } = await load("measure.js");
const { drift, drifting } = await load("statistics.js");

const SAMPLE_MS = 10;
// The time in which an idle device raises its clock, and the factor by which it is slower until then.
const WAKING_MS = 350;
const IDLE = 2.5;
const PAUSE_MS = 5000;
const RULE = { least: 10, most: 50, spread: 0.01, budgetMs: 10000, settleMs: 500 };
const SOFTWARE_RULE = { least: 5, most: 10, spread: 0.03, budgetMs: 3000, settleMs: 100 };

/** Simulate a device that is `slower(worked, sample)` times as slow after some milliseconds of work and samples. */
async function on(slower, { rule = RULE, restless = false, pausing = 0 } = {}) {
  const began = now;
  let worked = 0;
  let samples = 0;
  let flying = 0;
  let most = 0;
  const stopwatch = {
    dispatches: async () => 1,
    submit: (name) => {
      most = Math.max(most, ++flying);
      return (async () => {
        const took = SAMPLE_MS * slower(worked, samples++, name);
        now += took;
        worked += took;
        // The caller reads it later.
        await null;
        flying--;
        return took;
      })();
    },
  };
  const candidates = [{ encode: "copy" }, { encode: "kernel" }];
  const onRound = (round) => {
    if (round !== pausing) return;
    // The page is hidden, so the device is idle.
    now += PAUSE_MS;
    worked = 0;
  };
  const { found, settled } = await measure(stopwatch, candidates, rule, { restless, onRound });
  const [copy, kernel] = found.map((one) => one.samples.map((took) => took / SAMPLE_MS));
  return {
    copy: Math.max(...copy),
    kernel: Math.max(...kernel),
    settled,
    drift: drift(copy),
    drifting: drifting(copy),
    most,
    spent: now - began,
  };
}

const waking = (worked) => (worked < WAKING_MS ? IDLE : 1);
const restless = (_, sample) => 1 + sample / 200;
const found = {
  awake: await on(() => 1),
  idled: await on(waking),
  // The device slows down during the samples, after it had settled.
  paused: await on(waking, { pausing: 5 }),
  restless: await on(restless),
  still_restless: await on(restless, { restless: true }),
  // Each sample takes two seconds.
  slow: await on(() => 200),
  software: await on(() => 1, { rule: SOFTWARE_RULE }),
  heating: await on((_, sample) => 1 + Math.max(0, sample - 55) / 100),
};
console.log(`\nresult: ${JSON.stringify(found)}`);
