// Brings a device to its working state and holds it there, by samples of a yardstick: the twin of Pace in
// webnorm/gpu/timing.py, which has the measured reasons.

import { AS_BEFORE, PAUSE_S } from "./numbers.js";
import { agree, LEAST_PART, statistics } from "./statistics.js";

// A device that has not come to rest within so many times the usual wait will not.
const PATIENCE = 10;

/** Keeps a device at work until it works as it does under load. */
export class Pace {
  #sample;
  #settleMs;
  #limitMs;
  // What the yardstick's samples take at most on a device that has come to rest.
  #usual = Infinity;
  #last = -Infinity;
  /** False once the yardstick has not come to rest within the limit. */
  settled = true;

  /**
   * @param {() => Promise<number>} sample  puts a sample of the yardstick under way, and gives nanoseconds
   * @param {number} settleMs  so long the yardstick's samples have to agree; 0 does without
   * @param {boolean} [restless]  whether the device is known not to come to rest: it gets no more than that
   */
  constructor(sample, settleMs, restless = false) {
    this.#sample = sample;
    this.#settleMs = settleMs;
    this.#limitMs = restless ? settleMs : PATIENCE * settleMs;
  }

  /**
   * Return when the device works as it does under load; at once where it has not paused.
   * @param {AbortSignal} [signal]
   */
  async ready(signal) {
    if (this.#settleMs === 0 || performance.now() - this.#last <= 1000 * PAUSE_S) return;
    const known = this.#usual < Infinity;
    if (known && statistics(await this.#samples()).median <= this.#usual) return;
    await this.#settle(signal);
  }

  /** The device has done something just now. */
  worked() {
    this.#last = performance.now();
  }

  /** A few samples, each under way before the last is read. */
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
        // Too few samples for a verdict come from a yardstick that takes seconds: it has warmed up.
        this.settled &&= samples.length < 2 * LEAST_PART;
        return;
      }
    }
  }
}
