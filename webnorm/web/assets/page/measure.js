// Timing on the GPU: samples of several candidates, taken in turn until a rule stops, as in webnorm/gpu/timing.py.

import { finished } from "../runtime.js";
import { within } from "./gpu.js";
import { Pace } from "./pace.js";
import { spread } from "./statistics.js";

export { statistics } from "./statistics.js";

// Browsers round timestamps to 0.1 ms and clocks to 1 ms, to make attacks harder; a sample is much longer. A software
// adapter is slow, and a rough time is enough there.
const SAMPLE_MS = { timestamp: 10, "wall clock": 50 };
const SOFTWARE_SAMPLE_MS = { timestamp: 2, "wall clock": 10 };
const MOST_DISPATCHES = 1024;

/**
 * @typedef {(pass: GPUComputePassEncoder, index: number) => void} Encode  encodes one dispatch into a pass
 * @typedef {{ least: number, most: number, spread: number, budgetMs: number, settleMs: number }} Rule
 */

/** A timer for dispatches on one device: by timestamp queries if they work, else by the wall clock. */
export class Stopwatch {
  #device;
  #sampleMs;
  // Buffers for the two timestamps of a sample; the buffers of a running sample are in use.
  #slots = [];
  #free = [];
  // The wall clock would include other samples that run at the same time, so each waits for the previous one.
  #before = Promise.resolve();

  /**
   * @param {GPUDevice} device
   * @param {boolean} software
   */
  constructor(device, software) {
    this.#device = device;
    this.#sampleMs = software ? SOFTWARE_SAMPLE_MS : SAMPLE_MS;
    /** @type {"timestamp" | "wall clock"} */
    this.method = device.features.has("timestamp-query") ? "timestamp" : "wall clock";
  }

  /**
   * Submit a sample: a number of dispatches in one pass.
   * @param {Encode} encode
   * @param {number} dispatches
   * @returns {Promise<number>}  the nanoseconds of all of them together
   */
  submit(encode, dispatches) {
    const encoder = this.#device.createCommandEncoder();
    const sample =
      this.method === "timestamp"
        ? this.#byTimestamps(encoder, encode, dispatches)
        : (this.#before = this.#before.catch(() => {}).then(() => this.#alone(encoder, encode, dispatches)));
    // A caller that was stopped does not read the sample, and an unread rejection would be an error.
    sample.catch(() => {});
    return sample;
  }

  async #byTimestamps(encoder, encode, dispatches) {
    const slot = this.#free.pop() ?? this.#slot();
    const { querySet, ticks, staging } = slot;
    const timestampWrites = { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
    putPass(encoder, { timestampWrites }, encode, dispatches);
    encoder.resolveQuerySet(querySet, 0, 2, ticks, 0);
    encoder.copyBufferToBuffer(ticks, 0, staging, 0, 16);
    this.#device.queue.submit([encoder.finish()]);
    await this.#wait(staging.mapAsync(GPUMapMode.READ));
    const [begin, end] = new BigUint64Array(staging.getMappedRange().slice(0));
    staging.unmap();
    this.#free.push(slot);
    return Number(end - begin);
  }

  async #alone(encoder, encode, dispatches) {
    putPass(encoder, {}, encode, dispatches);
    const commands = encoder.finish();
    await this.#wait(this.#device.queue.onSubmittedWorkDone());
    const began = performance.now();
    this.#device.queue.submit([commands]);
    await this.#wait(this.#device.queue.onSubmittedWorkDone());
    return (performance.now() - began) * 1e6;
  }

  #slot() {
    const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
    const slot = {
      querySet: this.#device.createQuerySet({ type: "timestamp", count: 2 }),
      ticks: this.#device.createBuffer({ size: 16, usage: QUERY_RESOLVE | COPY_SRC }),
      staging: this.#device.createBuffer({ size: 16, usage: COPY_DST | MAP_READ }),
    };
    this.#slots.push(slot);
    return slot;
  }

  /**
   * Warm up, and return the number of dispatches that makes a sample long enough for the clock.
   * @param {Encode} encode
   * @param {number} [least]  the minimum: one per set of buffers, so that each set is written
   * @returns {Promise<number>}
   */
  async dispatches(encode, least = 1) {
    const target = this.#sampleMs[this.method] * 1e6;
    await this.submit(encode, 1);
    let count = 1;
    let took = await this.submit(encode, count);
    while (took < target / 4 && count < MOST_DISPATCHES) {
      count *= 4;
      took = await this.submit(encode, count);
    }
    if (!(took > 0) && this.method === "timestamp") {
      // Some drivers have the feature but write zeros.
      this.method = "wall clock";
      return this.dispatches(encode, least);
    }
    const needed = Math.ceil((count * target) / Math.max(took, 1));
    return Math.max(least, Math.min(needed, MOST_DISPATCHES));
  }

  /** Free the query sets and buffers. */
  destroy() {
    for (const made of this.#slots.flatMap(Object.values)) made.destroy();
  }

  #wait(promise) {
    return within(finished(this.#device, promise), "timing shaders", this.#device);
  }
}

function putPass(encoder, descriptor, encode, dispatches) {
  const pass = encoder.beginComputePass(descriptor);
  for (let index = 0; index < dispatches; index++) encode(pass, index);
  pass.end();
}

/**
 * Take samples of all candidates in turn, one each per round. Stop when (p80 - p20) / median / sqrt(rounds) of every
 * candidate is at most the rule's spread, or when the rule's rounds or time are over. Each sample is submitted before
 * the previous one is read, so the device does not idle. The first candidate, usually a copy, warms the device up before
 * the first round, and again after a pause of the page.
 * @param {Stopwatch} stopwatch
 * @param {{ encode: Encode }[]} candidates
 * @param {Rule} rule
 * @param {{ sets?: number, restless?: boolean, onRound?: (done: number) => void, signal?: AbortSignal }} options
 *   `restless`: an earlier run found that the device's times do not settle
 * @returns {Promise<{ found: { samples: number[], dispatches: number }[], settled: boolean }>}  nanoseconds per
 *   dispatch; `settled` is false if the device's times did not settle
 */
export async function measure(stopwatch, candidates, rule, options = {}) {
  const { sets = 1, restless = false, signal } = options;
  if (candidates.length === 0) return { found: [], settled: true };
  const [{ encode: yardstick }] = candidates;
  const usual = rule.settleMs && (await stopwatch.dispatches(yardstick));
  const pace = new Pace(() => stopwatch.submit(yardstick, usual), rule.settleMs, restless);
  await pace.ready(signal);
  const found = [];
  for (const { encode } of candidates) {
    signal?.throwIfAborted();
    found.push({ encode, samples: [], dispatches: await stopwatch.dispatches(encode, sets) });
    pace.worked();
  }
  await takeTurns(stopwatch, found, rule, pace, options);
  return { found: found.map(({ samples, dispatches }) => ({ samples, dispatches })), settled: pace.settled };
}

async function takeTurns(stopwatch, running, rule, pace, { onRound, signal }) {
  const began = performance.now();
  let land = async () => {};
  for (let rounds = 0; ; ) {
    for (const own of running) {
      signal?.throwIfAborted();
      await pace.ready(signal);
      const sample = stopwatch.submit(own.encode, own.dispatches);
      await land();
      land = async () => {
        own.samples.push((await sample) / own.dispatches);
        pace.worked();
      };
      const done = running.at(-1).samples.length;
      if (done === rounds) continue;
      rounds = done;
      onRound?.(rounds);
      if (enough(running, rounds, rule, began)) {
        await sample;
        return;
      }
    }
  }
}

function enough(running, rounds, rule, began) {
  if (rounds >= rule.most || performance.now() - began >= rule.budgetMs) return true;
  return (
    rounds >= rule.least &&
    running.every(({ samples }) => spread(samples.slice(0, rounds)) / Math.sqrt(rounds) <= rule.spread)
  );
}
