// What samples say: median and percentiles, noise, and how far they moved; as webnorm/gpu/timing.py.

import {
  AGREEING,
  DRIFTING,
  ERROR_OF_MEDIAN,
  FEW_SAMPLES,
  NOISY_SPREAD,
  THROTTLED_RATIO,
} from "./numbers.js";

// Halves and thirds of fewer samples say nothing.
export const LEAST_PART = 3;

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
 * (p80 - p20) / median.
 * @param {number[]} samples
 * @returns {number}
 */
export function spread(samples) {
  const { median, p20, p80 } = statistics(samples);
  return median > 0 ? (p80 - p20) / median : Infinity;
}

/**
 * What is wrong with a run: "few samples", or "noisy" and "throttled".
 * @param {number[]} samples
 * @returns {string[]}
 */
export function flags(samples) {
  if (samples.length < FEW_SAMPLES) return ["few samples"];
  const found = spread(samples) > NOISY_SPREAD ? ["noisy"] : [];
  if (moved(samples, THROTTLED_RATIO - 1) && drift(samples) > 0) found.push("throttled");
  return found;
}

/**
 * By how much the last third of a run is slower than the first, as a share of the first.
 * @param {number[]} samples
 * @returns {number}
 */
export function drift(samples) {
  const third = Math.max(1, Math.floor(samples.length / 3));
  return statistics(samples.slice(-third)).median / statistics(samples.slice(0, third)).median - 1;
}

/**
 * Whether a copy's samples moved by more than noise does, and by more than a share of it should bear.
 * @param {number[]} samples
 * @returns {boolean}
 */
export function drifting(samples) {
  return moved(samples, DRIFTING);
}

function moved(samples, least) {
  const third = Math.floor(samples.length / 3);
  if (third < LEAST_PART) return false;
  const noise = 3 * Math.hypot(error(samples.slice(-third)), error(samples.slice(0, third)));
  return Math.abs(drift(samples)) > Math.max(least, noise);
}

/** The standard error of the samples' median, as a share of it. */
function error(samples) {
  return (ERROR_OF_MEDIAN * spread(samples)) / Math.sqrt(samples.length);
}

/**
 * Whether the later half of the samples is as fast as the earlier, as far as their noise can tell.
 * @param {number[]} samples
 * @returns {boolean}
 */
export function agree(samples) {
  const half = Math.floor(samples.length / 2);
  if (half < LEAST_PART) return false;
  const [before, after] = [samples.slice(0, half), samples.slice(-half)];
  const noise = 2 * Math.hypot(error(before), error(after));
  return Math.abs(statistics(after).median / statistics(before).median - 1) <= Math.max(AGREEING, noise);
}
