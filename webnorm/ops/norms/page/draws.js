// Inputs drawn from a seed. The distributions are from webnorm/ops/copy/problem.py, the generator is not.

import { answersOf, offsetOf } from "./answers.js";
import { decode, encode, roundTo } from "./storage.js";

/** For each distribution, a function that draws x row by row, and the largest size of its values. */
const DISTRIBUTIONS = {
  normal: shifted(0),
  uniform: { largest: 1, draw: (random) => random.uniform() },
  mean100: shifted(1e2),
  mean1000: shifted(1e3),
  mean1e4: shifted(1e4),
  mean1e6: shifted(1e6),
  triton: { largest: 10, draw: (random) => -2.3 + 0.5 * random.normal() },
  outlier: {
    largest: 1e4,
    draw: (random, { cols }, row, col) => (col === Math.floor(cols / 2) ? 1e4 : random.normal()),
  },
  row_scales: {
    largest: 1e7,
    draw: (random, { rows }, row) => random.normal() * 10 ** (rows > 1 ? -6 + (12 * row) / (rows - 1) : -6),
  },
};

function shifted(mean) {
  return { largest: mean + 10, draw: (random) => random.normal() + mean };
}

/**
 * The names of the distributions whose values a storage type can represent.
 * @param {string} dtype
 * @returns {string[]}
 */
export function distributionsFor(dtype) {
  const held = (name) => Number.isFinite(roundTo(DISTRIBUTIONS[name].largest, dtype));
  return Object.keys(DISTRIBUTIONS).filter(held);
}

/** Uniform and normal numbers from a seed: sfc32 (Doty-Humphrey, "PractRand"), Box and Muller. */
class Random {
  #state;
  #spare = null;

  /** @param {number} seed */
  constructor(seed) {
    this.#state = Uint32Array.of(0, seed, seed / 2 ** 32, 1);
    for (let i = 0; i < 15; i++) this.#next();
  }

  /** In [0, 1), with 32 bits. */
  uniform() {
    return this.#next() / 2 ** 32;
  }

  /** Mean 0, standard deviation 1. */
  normal() {
    if (this.#spare !== null) {
      const spare = this.#spare;
      this.#spare = null;
      return spare;
    }
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    const angle = 2 * Math.PI * this.uniform();
    this.#spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  }

  #next() {
    const s = this.#state;
    const result = (s[0] + s[1] + s[3]) >>> 0;
    s[3] += 1;
    s[0] = s[1] ^ (s[1] >>> 9);
    s[1] = s[2] + (s[2] << 3);
    s[2] = ((s[2] << 21) | (s[2] >>> 11)) + result;
    return result;
  }
}

/**
 * Every input of a problem, in its storage type and as numbers. weight lies in [0.5, 1.5) and bias in
 * [-0.5, 0.5), so a kernel that swaps or drops one is wrong by much more than rounding.
 * @param {{ tensors: object[] }} manifest
 * @param {object} problem  from problemOf of answers.js, with distribution and seed
 * @returns {{ stored: Record<string, ArrayBufferView>, arrays: Record<string, Float64Array> }}
 */
export function drawInputs(manifest, problem) {
  const random = new Random(problem.seed);
  const stored = {};
  const arrays = {};
  for (const tensor of manifest.tensors.filter(({ access }) => access === "read")) {
    stored[tensor.name] = encode(drawTensor(tensor, problem, arrays, random), tensor.dtype);
    arrays[tensor.name] = decode(stored[tensor.name], tensor.dtype);
  }
  return { stored, arrays };
}

function drawTensor({ name, shape }, problem, arrays, random) {
  const { rows, cols } = problem;
  const size = shape.reduce((product, length) => product * (problem[length] ?? length), 1);
  const filled = (draw) => Float64Array.from({ length: size }, draw);
  switch (name) {
    case "x": {
      const { draw } = DISTRIBUTIONS[problem.distribution];
      return filled((_, i) => draw(random, { rows, cols }, Math.floor(i / cols), i % cols));
    }
    case "weight": {
      const least = 0.5 - offsetOf(problem.options);
      return filled(() => random.uniform() + least);
    }
    case "bias":
      return filled(() => random.uniform() - 0.5);
    case "stats":
      return savedStats(arrays.x, problem);
    case "residual":
    case "residual_bias": {
      // An array that is added to x must not be larger than x.
      const largest = arrays.x.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      return filled(() => random.normal() * Math.min(1, largest));
    }
    default:
      return filled(() => random.normal());
  }
}

/** The statistics that a forward pass saves: the mean in two float32 words, if the norm has one, and rstd. */
function savedStats(x, problem) {
  const op = problem.has_mean ? "layer_norm" : "rms_norm";
  const { stats } = answersOf({ x }, { ...problem, op, options: { return_stats: true } });
  if (!problem.has_mean) return stats.value;
  const saved = new Float64Array(3 * problem.rows);
  for (let row = 0; row < problem.rows; row++) {
    const [mean, rstd] = stats.value.subarray(2 * row);
    const high = Math.fround(mean);
    saved.set([high, mean - high, rstd], 3 * row);
  }
  return saved;
}
