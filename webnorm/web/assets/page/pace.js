// Warms a device up and keeps it warm, with samples of a reference kernel, like Pace in webnorm/gpu/timing.py, which
// gives the measured reasons.

import { AS_BEFORE, PAUSE_S } from "./numbers.js";
import { agree, LEAST_PART, statistics } from "./statistics.js";

// A device whose times do not settle within this many usual waits never settles.
const PATIENCE = 10;

/** A warm-up that runs until the device is as fast as under load. */
export class Pace {
  #sample;
  #settleMs;
  #limitMs;
  // The longest time of a reference sample on a settled device, in nanoseconds.
  #usual = Infinity;
  #last = -Infinity;
  /** False once the reference samples did not settle within the limit. */
  settled = true;

  /**
   * @param {() => Promise<number>} sample  submits a sample of the reference kernel, and returns nanoseconds
   * @param {number} settleMs  how long the samples must agree; 0 skips the warm-up
   * @param {boolean} [restless]  true if the device is known not to settle: the warm-up then ends after `settleMs`
   */
  constructor(sample, settleMs, restless = false) {
    this.#sample = sample;
    this.#settleMs = settleMs;
    this.#limitMs = restless ? settleMs : PATIENCE * settleMs;
  }

  /**
   * Wait until the device is as fast as under load; return at once if it has not paused.
   * @param {AbortSignal} [signal]
   */
  async ready(signal) {
    if (this.#settleMs === 0 || performance.now() - this.#last <= 1000 * PAUSE_S) return;
    const known = this.#usual < Infinity;
    if (known && statistics(await this.#samples()).median <= this.#usual) return;
    await this.#settle(signal);
  }

  /** Note that the device has worked just now. */
  worked() {
    this.#last = performance.now();
  }

  /** Take a few samples, each submitted before the previous one is read. */
  async #samples() {
    const found = [];
    let flying = this.#sample();
    for (let left = LEAST_PART; left > 0; left--) {
      const following = left > 1 ? this.#sample() : null;
      found.push(await flying);
      flying = following;
    }
    this.worked();
    return found;
  }

  async #settle(signal) {
    const began = performance.now();
    const taken = [];
    for (;;) {
      signal?.throwIfAborted();
      const found = await this.#samples();
      const now = performance.now();
      taken.push(...found.map((took) => ({ took, at: now })));
      while (now - taken[0].at > this.#settleMs && taken.length > 2 * LEAST_PART) taken.shift();
      const samples = taken.map(({ took }) => took);
      const { median, p80 } = statistics(samples);
      if (now - began >= this.#settleMs && median <= this.#usual && agree(samples)) {
        this.#usual = Math.min(this.#usual, Math.max(AS_BEFORE * median, p80));
        return;
      }
      if (now - began >= (this.settled ? this.#limitMs : this.#settleMs)) {
        // A reference kernel that takes seconds gives too few samples to compare, but it has warmed the device up.
        this.settled &&= samples.length < 2 * LEAST_PART;
        return;
      }
    }
  }
}
