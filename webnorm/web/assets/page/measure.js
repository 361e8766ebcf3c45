// Time on the GPU: samples of several candidates taken in turn until a rule says stop, as webnorm/gpu/timing.py.

import { within } from "./gpu.js";
import { AGREEING, ERROR_OF_MEDIAN, FEW_SAMPLES, NOISY_SPREAD, THROTTLED_RATIO } from "./numbers.js";

// Browsers round timestamps to 0.1 ms and clocks to 1 ms, so that their attackers see less: a sample is much
// longer. On a software adapter, which computes slowly, a rough time is enough.
const SAMPLE_MS = { timestamp: 10, "wall clock": 50 };
const SOFTWARE_SAMPLE_MS = { timestamp: 2, "wall clock": 10 };
const MOST_DISPATCHES = 1024;

/**
 * @typedef {(pass: GPUComputePassEncoder, index: number) => void} Encode  puts one dispatch into a pass
 * @typedef {{ least: number, most: number, spread: number, budgetMs: number, settleMs: number }} Rule
 */

/**
 * Median, 20th and 80th percentile, interpolated as NumPy does.
 * @param {number[]} samples
 * @returns {{ median: number, p20: number, p80: number }}
 */
export function statistics(samples) {
  const sorted = Float64Array.from(samples).sort();
  const at = (share) => {
    const place = share * (sorted.length - 1);
    const below = Math.floor(place);
    const above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
  };
  return { median: at(0.5), p20: at(0.2), p80: at(0.8) };
}

/**
 * What is wrong with a run: "few samples", or "noisy" and "throttled".
 * @param {number[]} samples
 * @returns {string[]}
 */
export function flags(samples) {
  if (samples.length < FEW_SAMPLES) return ["few samples"];
  const found = spread(samples) > NOISY_SPREAD ? ["noisy"] : [];
  const third = Math.floor(samples.length / 3);
  if (third >= 3) {
    const [first, last] = [samples.slice(0, third), samples.slice(-third)];
    if (statistics(last).median > THROTTLED_RATIO * statistics(first).median) found.push("throttled");
  }
  return found;
}

function spread(samples) {
  const { median, p20, p80 } = statistics(samples);
  return median > 0 ? (p80 - p20) / median : Infinity;
}

/** Times dispatches on one device: by timestamp queries where they work, else by the wall clock. */
export class Stopwatch {
  #device;
  #sampleMs;
  #queries;
  #ticks;
  #staging;

  /**
   * @param {GPUDevice} device
   * @param {boolean} software
   */
  constructor(device, software) {
    this.#device = device;
    this.#sampleMs = software ? SOFTWARE_SAMPLE_MS : SAMPLE_MS;
    /** @type {"timestamp" | "wall clock"} */
    this.method = "wall clock";
    if (device.features.has("timestamp-query")) {
      const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
      this.#queries = device.createQuerySet({ type: "timestamp", count: 2 });
      this.#ticks = device.createBuffer({ size: 16, usage: QUERY_RESOLVE | COPY_SRC });
      this.#staging = device.createBuffer({ size: 16, usage: COPY_DST | MAP_READ });
      this.method = "timestamp";
    }
  }

  /**
   * Nanoseconds that so many dispatches took, in one pass.
   * @param {Encode} encode
   * @param {number} dispatches
   * @returns {Promise<number>}
   */
  async time(encode, dispatches) {
    const stamped = this.method === "timestamp";
    const encoder = this.#device.createCommandEncoder();
    const timestampWrites = { querySet: this.#queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
    const pass = encoder.beginComputePass(stamped ? { timestampWrites } : {});
    for (let index = 0; index < dispatches; index++) encode(pass, index);
    pass.end();
    if (stamped) {
      encoder.resolveQuerySet(this.#queries, 0, 2, this.#ticks, 0);
      encoder.copyBufferToBuffer(this.#ticks, 0, this.#staging, 0, 16);
      this.#device.queue.submit([encoder.finish()]);
      await this.#wait(this.#staging.mapAsync(GPUMapMode.READ));
      const [begin, end] = new BigUint64Array(this.#staging.getMappedRange().slice(0));
      this.#staging.unmap();
      return Number(end - begin);
    }
    const commands = encoder.finish();
    await this.#wait(this.#device.queue.onSubmittedWorkDone());
    const began = performance.now();
    this.#device.queue.submit([commands]);
    await this.#wait(this.#device.queue.onSubmittedWorkDone());
    return (performance.now() - began) * 1e6;
  }

  /**
   * Warm up, and find how many dispatches make a sample long enough for the clock.
   * @param {Encode} encode
   * @param {number} [least]  so many at least: one for each set of buffers, so that each is written
   * @returns {Promise<number>}
   */
  async dispatches(encode, least = 1) {
    const target = this.#sampleMs[this.method] * 1e6;
    await this.time(encode, 1);
    let count = 1;
    let took = await this.time(encode, count);
    while (took < target / 4 && count < MOST_DISPATCHES) {
      count *= 4;
      took = await this.time(encode, count);
    }
    if (!(took > 0) && this.method === "timestamp") {
      // Some drivers have the feature and write zeros.
      this.method = "wall clock";
      return this.dispatches(encode, least);
    }
    const needed = Math.ceil((count * target) / Math.max(took, 1));
    return Math.max(least, Math.min(needed, MOST_DISPATCHES));
  }

  /** Free what was made for the queries. */
  destroy() {
    for (const made of [this.#queries, this.#ticks, this.#staging]) made?.destroy();
  }

  #wait(promise) {
    return within(promise, "shaders were timed", this.#device);
  }
}

/**
 * Keep a device at work until it works as it does under load: a GPU that idled lowers its clock, and takes a third
 * of a second of work to raise it again. Ends when the earlier and the later half of the samples of `settleMs` agree.
 * @param {Stopwatch} stopwatch
 * @param {Encode} encode
 * @param {number} settleMs
 * @param {AbortSignal} [signal]
 * @returns {Promise<boolean>}  false where they did not within ten times that long
 */
async function settle(stopwatch, encode, settleMs, signal) {
  if (settleMs === 0) return true;
  const dispatches = await stopwatch.dispatches(encode);
  const taken = [];
  const began = performance.now();
  for (;;) {
    signal?.throwIfAborted();
    taken.push({ took: await stopwatch.time(encode, dispatches), at: performance.now() });
    const { at: now } = taken.at(-1);
    while (now - taken[0].at > settleMs && taken.length > FEW_SAMPLES) taken.shift();
    const enough = taken.length > FEW_SAMPLES;
    if (now - began >= settleMs && enough && agree(taken.map(({ took }) => took))) return true;
    // Samples too few for a verdict take seconds each: the device has warmed up.
    if (now - began >= 10 * settleMs) return !enough;
  }
}

/** Whether the later half is as fast as the earlier, as far as their noise can tell. */
function agree(samples) {
  const half = Math.floor(samples.length / 2);
  const halves = [samples.slice(0, half), samples.slice(-half)];
  const [before, after] = halves.map((some) => statistics(some).median);
  const errors = halves.map((some) => (ERROR_OF_MEDIAN * spread(some)) / Math.sqrt(half));
  return Math.abs(after / before - 1) <= Math.max(AGREEING, 2 * Math.hypot(...errors));
}

/**
 * Take samples of all candidates in turn, one each per round, until for each of them
 * (p80 - p20) / median / sqrt(rounds) is at most the rule's spread, or the rule's rounds or time are over. The first
 * candidate, a copy where there is one, brings the device to its working state before.
 * @param {Stopwatch} stopwatch
 * @param {{ encode: Encode }[]} candidates
 * @param {Rule} rule
 * @param {{ sets?: number, onRound?: (done: number) => void, signal?: AbortSignal }} [options]
 * @returns {Promise<{ found: { samples: number[], dispatches: number }[], settled: boolean }>}  nanoseconds per
 *   dispatch, and whether the device came to rest
 */
export async function measure(stopwatch, candidates, rule, { sets = 1, onRound, signal } = {}) {
  const found = [];
  if (candidates.length === 0) return { found, settled: true };
  const settled = await settle(stopwatch, candidates[0].encode, rule.settleMs, signal);
  for (const { encode } of candidates) {
    signal?.throwIfAborted();
    found.push({ samples: [], dispatches: await stopwatch.dispatches(encode, sets) });
  }
  const began = performance.now();
  for (let rounds = 0; !enough(found, rounds, rule, began); rounds++) {
    for (const [at, { encode }] of candidates.entries()) {
      signal?.throwIfAborted();
      const { samples, dispatches } = found[at];
      samples.push((await stopwatch.time(encode, dispatches)) / dispatches);
    }
    onRound?.(rounds + 1);
  }
  return { found, settled };
}

function enough(found, rounds, rule, began) {
  if (rounds >= rule.most || (rounds > 0 && performance.now() - began >= rule.budgetMs)) return true;
  return (
    rounds >= rule.least && found.every(({ samples }) => spread(samples) / Math.sqrt(rounds) <= rule.spread)
  );
}
