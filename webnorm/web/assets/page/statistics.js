// Statistics of samples: median and percentiles, noise and drift, as in webnorm/gpu/timing.py.

import {
  AGREEING,
  DRIFTING,
  ERROR_OF_MEDIAN,
  FEW_SAMPLES,
  NOISY_SPREAD,
  THROTTLED_RATIO,
} from "./numbers.js";

// The fewest samples that a half or a third needs for a comparison.
export const LEAST_PART = 3;

/**
 * Return the median, the 20th and the 80th percentile, interpolated as in NumPy.
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
 * Return (p80 - p20) / median.
 * @param {number[]} samples
 * @returns {number}
 */
export function spread(samples) {
  const { median, p20, p80 } = statistics(samples);
  return median > 0 ? (p80 - p20) / median : Infinity;
}

/**
 * Return the warnings about a run: "few samples", or any of "noisy" and "throttled".
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
 * Return how much slower the last third of a run is than the first, as a fraction of the first.
 * @param {number[]} samples
 * @returns {number}
 */
export function drift(samples) {
  const third = Math.max(1, Math.floor(samples.length / 3));
  return statistics(samples.slice(-third)).median / statistics(samples.slice(0, third)).median - 1;
}

/**
 * Return true if a copy's samples drifted by more than noise, and by too much for percentages of the copy.
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

/** Return the standard error of the samples' median, as a fraction of it. */
function error(samples) {
  return (ERROR_OF_MEDIAN * spread(samples)) / Math.sqrt(samples.length);
}

/**
 * Return true if both halves of the samples are equally fast within their noise.
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
