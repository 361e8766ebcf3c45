// The ops in float64 and the verdict on what a GPU gave: the twin of webnorm/norms/reference.py and of
// webnorm/lab/accuracy.py, which derive what is only computed here.
//
// What a page does, with `arrays` the inputs as storage.js decodes them:
//   const got = ...the outputs, decoded;
//   const problem = problemOf(manifest, rows, cols);
//   const answers = answersOf("h" in got ? { ...arrays, h: got.h } : arrays, problem);
//   const { ok, reason } = assess(got, answers, manifest, tolerance(shader, manifest, rows));

import { evaluate } from "../runtime.js";
import { roundTo } from "./storage.js";

/** Numbers of webnorm/lab/accuracy.py and webnorm/norms/reference.py, under their names: the reasons stand there. */
export const NUMBERS = Object.freeze({
  UNIT_ROUNDOFF: 2 ** -24,
  HI_LO_TOLERANCE: 2e-6,
  SERIAL_TERMS: 64,
  ROUNDED_MEAN_FACTOR: 4,
  GRADIENT_FACTOR: 4,
  SUM_TOLERANCE: 2 * 2 ** -24,
  EQUAL_SHARE: 0.999,
  FEW: 8,
  TIE: 0.05,
  AMBIGUOUS_SHARE: 0.03,
  DENORMAL: 2 ** -126,
  LOW_WORD: 2 ** -10,
  SMALLEST_ROW_MAXIMUM: 2 ** -100,
  INT8_MAXIMUM: 127,
});
// The mean's own last bits, in reference.py's _stats_answer.
const MEAN_DIGITS = 2 ** -22;
// The smallest normal float64.
const TINY = 2 ** -1022;

/**
 * One output in float64, before it is rounded to its storage type, and the sizes that errors scale with, for
 * every element; see Answer in webnorm/norms/reference.py.
 * @typedef {{ shape: number[], value: Float64Array, unit: Float64Array | Float32Array,
 *   shaky: Float64Array | Float32Array, summed?: Float64Array }} Answer
 */

/** Sizes of a large output are kept in float32. */
function blank(shape, Sizes = Float64Array) {
  const size = shape.reduce((product, n) => product * n, 1);
  return { shape, value: new Float64Array(size), unit: new Sizes(size), shaky: new Sizes(size) };
}

function blankSum(cols) {
  return { ...blank([cols]), summed: new Float64Array(cols) };
}

/** What a package's manifest says of `rows` rows of `cols` columns. */
export function problemOf(manifest, rows, cols) {
  const { op, has_mean, problem } = manifest;
  return { ...problem, op, has_mean, rows, cols };
}

/**
 * The float64 answers of any op to its decoded inputs.
 * @param {Object<string, Float64Array>} arrays by tensor name; "h" where an implementation wrote it
 * @param {{ op: string, rows: number, cols: number, has_mean: boolean, dtype: string, eps: number,
 *   scale: number, options: Object }} problem
 * @returns {Object<string, Answer>}
 */
export function answersOf(arrays, problem) {
  if (problem.op === "copy") return copy(arrays, problem);
  return isGradient(problem) ? backward(arrays, problem) : forward(arrays, problem);
}

function isGradient({ op }) {
  return op.endsWith("_backward");
}

/** y = x. */
export function copy(arrays, { rows, cols }) {
  return { y: { ...blank([rows, cols]), value: arrays.x } };
}

/** What x̂ is multiplied by and what is added. */
function parameters(arrays, { cols, options }) {
  const first = options.zero_centered_weight ? 1 : 0;
  return {
    weight: arrays.weight ? arrays.weight.map((w) => w + first) : new Float64Array(cols).fill(1),
    bias: arrays.bias ?? new Float64Array(cols),
  };
}

/**
 * x̂ of the row that starts at `start`, into `xhat`; gives mean, rstd and |mean| * rstd.
 *
 * The row is first shifted by its own first element: the differences are exact for float32 values of like
 * magnitude, so that constant rows have a variance of exactly 0.
 */
function normalise(x, start, { cols, eps, has_mean }, xhat) {
  let mean = 0;
  if (has_mean) {
    const pivot = x[start];
    let sum = 0;
    for (let j = 0; j < cols; j++) {
      xhat[j] = x[start + j] - pivot;
      sum += xhat[j];
    }
    const low = sum / cols;
    for (let j = 0; j < cols; j++) xhat[j] -= low;
    mean = pivot + low;
  } else {
    for (let j = 0; j < cols; j++) xhat[j] = x[start + j];
  }
  let squares = 0;
  for (let j = 0; j < cols; j++) squares += xhat[j] * xhat[j];
  const rstd = 1 / Math.sqrt(squares / cols + eps);
  for (let j = 0; j < cols; j++) xhat[j] *= rstd;
  return { mean, rstd, condition: Math.abs(mean) * rstd };
}

/** h = x + residual + residual_bias, what is there of it. */
function addResidual(arrays, { rows, cols }) {
  const h = blank([rows, cols]);
  const terms = [[arrays.x, false], [arrays.residual, false], [arrays.residual_bias, true]];
  for (const [term, perColumn] of terms) {
    if (!term) continue;
    for (let i = 0; i < h.value.length; i++) {
      const added = term[perColumn ? i % cols : i];
      h.value[i] += added;
      h.unit[i] += Math.abs(added);
    }
  }
  return h;
}

/** h in its storage type. Python's ml_dtypes rounds to bfloat16 by way of float32, which decides near ties. */
function asStored(h, dtype) {
  return roundTo(dtype === "bfloat16" ? Math.fround(h) : h, dtype);
}

/**
 * y, and by the problem's options h, stats, y_scale or amax.
 *
 * With "h" among the arrays y is the norm of that h: what an implementation wrote, rounded. stats is mean and
 * rstd, (rows, 2), or rstd alone where the norm has no mean. amax is [amax, scale_inv].
 */
export function forward(arrays, problem) {
  const { rows, cols, has_mean, options } = problem;
  const outDtype = options.out_dtype ?? problem.dtype;
  const { weight, bias } = parameters(arrays, problem);
  const answers = {};
  let { x } = arrays;
  if (options.residual) {
    answers.h = addResidual(arrays, problem);
    x = arrays.h ?? answers.h.value.map((h) => asStored(h, problem.dtype));
  }
  const y = (answers.y = blank([rows, cols], Float32Array));
  if (options.return_stats) answers.stats = blank([rows, has_mean ? 2 : 1]);
  if (outDtype === "int8") answers.y_scale = blank([rows, 1]);
  const xhat = new Float64Array(cols);
  for (let row = 0; row < rows; row++) {
    const start = row * cols;
    const found = normalise(x, start, problem, xhat);
    if (answers.stats) putStats(answers.stats, row, found, has_mean);
    const { condition } = found;
    const sizes = answers.y_scale ? int8Sizes(answers.y_scale, row, xhat, weight, bias, condition) : null;
    for (let j = 0; j < cols; j++) {
      const scaled = xhat[j] * weight[j];
      const unit = unitOf(scaled, weight[j], bias[j]);
      const value = scaled + bias[j];
      y.value[start + j] = sizes ? value * sizes.q : value;
      y.unit[start + j] = sizes ? (unit + sizes.unit) * sizes.q : unit;
      y.shaky[start + j] = sizes ? (condition * unit + sizes.shaky) * sizes.q : condition * unit;
    }
  }
  if (outDtype.startsWith("float8")) {
    answers.amax = amaxOf(y, problem.scale);
    for (const sizes of [y.value, y.unit, y.shaky]) {
      for (let i = 0; i < sizes.length; i++) sizes[i] *= problem.scale;
    }
  }
  return answers;
}

/** The size of what was added up to make an element of y. */
function unitOf(scaled, weight, bias) {
  return Math.max(Math.abs(weight), Math.abs(scaled)) + Math.abs(bias);
}

/** The row's largest |y| is its scale; what is off in that is off in every element. */
function int8Sizes(scale, row, xhat, weight, bias, condition) {
  let largest = NUMBERS.SMALLEST_ROW_MAXIMUM;
  let unit = 0;
  for (let j = 0; j < xhat.length; j++) {
    const scaled = xhat[j] * weight[j];
    largest = Math.max(largest, Math.abs(scaled + bias[j]));
    unit = Math.max(unit, unitOf(scaled, weight[j], bias[j]));
  }
  const shaky = condition * unit;
  scale.value[row] = largest / NUMBERS.INT8_MAXIMUM;
  scale.unit[row] = unit / NUMBERS.INT8_MAXIMUM;
  scale.shaky[row] = shaky / NUMBERS.INT8_MAXIMUM;
  return { q: NUMBERS.INT8_MAXIMUM / largest, unit, shaky };
}

/** Mean in units of the standard deviation (and its own last bits), rstd in units of itself. */
function putStats(stats, row, { mean, rstd, condition }, hasMean) {
  const put = (i, value, unit, shaky) => {
    stats.value[i] = value;
    stats.unit[i] = unit;
    stats.shaky[i] = shaky;
  };
  const width = hasMean ? 2 : 1;
  if (hasMean) put(row * width, mean, 1 / rstd + Math.abs(mean) * MEAN_DIGITS, Math.abs(mean));
  put(row * width + width - 1, rstd, rstd, condition * rstd);
}

/** From the unscaled y. */
function amaxOf(y, scale) {
  const largest = (sizes) => sizes.reduce((most, size) => Math.max(most, Math.abs(size)), 0);
  return {
    shape: [2],
    value: Float64Array.of(largest(y.value), 1 / scale),
    unit: Float64Array.of(largest(y.unit), 1 / scale),
    shaky: Float64Array.of(largest(y.shaky), 0),
  };
}

/**
 * dx, and by the problem's options dweight, dbias and dresidual_bias, given x, dy, weight, dh and stats:
 * dx = (g - mean(g) - x̂ * mean(g * x̂)) * rstd + dh with g = dy * weight, without mean(g) where the norm has
 * no mean; dweight, dbias and dresidual_bias are sums over rows of dy * x̂, dy and dx.
 */
export function backward(arrays, problem) {
  const { rows, cols, has_mean, options } = problem;
  const { weight } = parameters(arrays, problem);
  const answers = { dx: blank([rows, cols], Float32Array) };
  if (options.weight) answers.dweight = blankSum(cols);
  if (options.bias) answers.dbias = blankSum(cols);
  if (options.residual_bias) answers.dresidual_bias = blankSum(cols);
  const { dx, dweight, dbias, dresidual_bias } = answers;
  const { dy, dh } = arrays;
  const xhat = new Float64Array(cols);
  for (let row = 0; row < rows; row++) {
    const start = row * cols;
    const { rstd, condition } = options.saved_stats
      ? bySaved(arrays, row, problem, xhat)
      : normalise(arrays.x, start, problem, xhat);
    const means = gradientMeans(dy, start, weight, xhat, has_mean);
    for (let j = 0; j < cols; j++) {
      const size = Math.max(1, Math.abs(xhat[j]));
      const d = dy[start + j];
      const g = d * weight[j];
      let value = (g - xhat[j] * means.along - means.g) * rstd;
      let unit = (Math.abs(g) + size * means.size + means.absolute) * rstd;
      const shaky = condition * unit;
      if (dh) {
        value += dh[start + j];
        unit += Math.abs(dh[start + j]);
      }
      dx.value[start + j] = value;
      dx.unit[start + j] = unit;
      dx.shaky[start + j] = shaky;
      if (dweight) addTerm(dweight, j, d * xhat[j], d * size, d * condition);
      if (dbias) addTerm(dbias, j, d, d, 0);
      if (dresidual_bias) addTerm(dresidual_bias, j, value, unit, shaky);
    }
  }
  for (const sum of [dweight, dbias, dresidual_bias]) {
    for (let j = 0; sum && j < cols; j++) {
      sum.unit[j] = Math.sqrt(sum.unit[j]);
      sum.shaky[j] = Math.sqrt(sum.shaky[j]);
    }
  }
  return answers;
}

/** x̂ of a row by the statistics that a forward pass saved, whatever its eps was. */
function bySaved({ x, stats }, row, { cols, has_mean }, xhat) {
  const width = has_mean ? 3 : 1;
  const rstd = stats[row * width + width - 1];
  const mean = has_mean ? stats[row * width] + stats[row * width + 1] : 0;
  for (let j = 0; j < cols; j++) xhat[j] = (x[row * cols + j] - mean) * rstd;
  return { rstd, condition: Math.abs(mean) * rstd };
}

/** The row's means of g * x̂ and of g, and of the sizes of both; of g only where the norm has a mean. */
function gradientMeans(dy, start, weight, xhat, hasMean) {
  const cols = xhat.length;
  let [along, size, sum, absolute] = [0, 0, 0, 0];
  for (let j = 0; j < cols; j++) {
    const g = dy[start + j] * weight[j];
    along += g * xhat[j];
    size += Math.abs(g) * Math.max(1, Math.abs(xhat[j]));
    sum += g;
    absolute += Math.abs(g);
  }
  return {
    along: along / cols,
    size: size / cols,
    g: hasMean ? sum / cols : 0,
    absolute: hasMean ? absolute / cols : 0,
  };
}

/** The terms' errors are taken to be independent: their squares add up. */
function addTerm(sum, j, term, unit, shaky) {
  sum.value[j] += term;
  sum.unit[j] += unit * unit;
  sum.shaky[j] += shaky * shaky;
  sum.summed[j] += Math.abs(term);
}

/**
 * Allowed error of an element: base * unit + slope * shaky + adding * summed. `equal_share` of a rounded
 * output's elements must be equal to the rounded answer. `reason` says where the numbers come from.
 * @typedef {{ base: number, slope: number, adding: number, equal_share: number, reason: string }} Tolerance
 */

/**
 * The tolerance that a kernel's header and the problem's size give.
 * @param {{ accuracy: Object }} shader an entry of the manifest's shaders
 * @param {{ op: string }} manifest
 * @param {number} rows
 * @returns {Tolerance}
 */
export function tolerance(shader, manifest, rows) {
  if (manifest.op === "copy") {
    return { base: 0, slope: 0, adding: 0, equal_share: 1, reason: "a copy is exact" };
  }
  const { UNIT_ROUNDOFF, SERIAL_TERMS } = NUMBERS;
  const rules = shader.accuracy;
  const terms = Math.max(1, evaluate(rules.serial_terms, { rows }));
  const columns = Math.max(1, evaluate(rules.column_terms, { rows }));
  const rounded = Boolean(evaluate(rules.rounded_mean, { rows }));
  const gradient = isGradient(manifest);
  const factor = gradient ? NUMBERS.GRADIENT_FACTOR : 1;
  const base = factor * NUMBERS.HI_LO_TOLERANCE * Math.max(1, terms / SERIAL_TERMS);
  const slope = rounded ? factor * NUMBERS.ROUNDED_MEAN_FACTOR * UNIT_ROUNDOFF * Math.sqrt(terms) : 0;
  const adding = gradient ? UNIT_ROUNDOFF * Math.sqrt(columns) : 0;
  let reason = `${terms} terms per accumulator`;
  if (rounded) reason += `, mean rounded to float32: + ${slope.toExponential(1)}*|mean|/sd`;
  if (gradient) reason += `, ${columns} rows per accumulator: + ${adding.toExponential(1)}*sum of sizes`;
  const exact = !rounded && terms <= SERIAL_TERMS && !gradient;
  return { base, slope, adding, equal_share: exact ? NUMBERS.EQUAL_SHARE : 0, reason };
}

/**
 * Hold every output against its answer, element by element.
 *
 * A float32 output may be off by the tolerance. One of a narrower type has to be the answer rounded to that
 * type, or a neighbour where the answer is as near to the rounding boundary as the tolerance.
 *
 * The errors and `worst` are those of the op's main output, unless another one is wrong; they are against the
 * answer before it is rounded. `non_finite` counts NaN and Inf where a number was expected; elements whose
 * answer is not finite are left out.
 * @param {Object<string, Float64Array>} outputs decoded, by tensor name; stats with the mean in two words
 * @param {Object<string, Answer>} answers
 * @param {Object} manifest
 * @param {Tolerance} allowed
 * @returns {{ ok: boolean, max_abs_error: number, max_rel_error: number, non_finite: number,
 *   reason: string | null, worst: Object | null }}
 */
export function assess(outputs, answers, manifest, allowed) {
  const written = manifest.tensors.filter((tensor) => tensor.access === "write");
  const found = written.map(({ name, dtype }) => {
    const joined = name === "stats" && manifest.has_mean ? joinedStats(outputs.stats) : outputs[name];
    const own = name === "h" ? toleranceOfH(dtype, manifest.problem.options.residual_bias) : allowed;
    return assessOutput(name, joined, answers[name], dtype, own);
  });
  // The main output speaks for the op unless another one is wrong and it is not.
  return found.find((verdict) => !verdict.ok) ?? found[0];
}

/** The sum of two values of a narrow type is exact in float32, unless they lie far apart: rounded once. */
function toleranceOfH(dtype, hasBias) {
  const plain = { slope: 0, adding: 0, equal_share: 0 };
  if (dtype === "float32" || hasBias) {
    return { ...plain, base: NUMBERS.SUM_TOLERANCE, reason: "two additions in float32" };
  }
  return { ...plain, base: NUMBERS.DENORMAL, reason: "one rounding" };
}

/**
 * (rows, 2) of the rows of (rows, 3): the mean's two words added up, and rstd. NaN where the second word is no
 * correction of the first.
 */
function joinedStats(stats) {
  const joined = new Float64Array((stats.length / 3) * 2);
  for (let row = 0; row < stats.length / 3; row++) {
    const [mean, low, rstd] = stats.subarray(3 * row);
    const large = Math.abs(low) * rstd > NUMBERS.LOW_WORD * (Math.abs(mean) * rstd + 1);
    joined[2 * row] = large ? NaN : mean + low;
    joined[2 * row + 1] = rstd;
  }
  return joined;
}

function assessOutput(name, got, answer, dtype, allowed) {
  const size = answer.value.length;
  if (got?.length !== size) throw new Error(`${name} has ${got?.length ?? "no"} elements; expected ${size}`);
  let [maxAbsError, maxRelError, nonFinite, unequal, ambiguous] = [0, 0, 0, 0, 0];
  // The largest error in units of its tolerance; among right elements the largest error.
  let largest = { key: -1, ratio: 0, i: -1, error: 0, tolerated: 0 };
  for (let i = 0; i < size; i++) {
    const value = answer.value[i];
    const limit = limitOf(answer, i, allowed);
    let [tolerated, inside] = [limit, false];
    if (!Number.isFinite(value)) continue;
    if (dtype !== "float32") {
      const below = roundTo(value - limit, dtype);
      const above = roundTo(value + limit, dtype);
      // An answer beyond the type's range has no rounding that anyone agrees on.
      if (!Number.isFinite(below) || !Number.isFinite(above)) continue;
      tolerated = Math.max(Math.abs(below - value), Math.abs(above - value));
      inside = got[i] >= below && got[i] <= above;
      if (below !== above) ambiguous++;
      if (got[i] !== roundTo(value, dtype) && !tied(value, NUMBERS.TIE * limit, dtype)) unequal++;
    }
    const missing = !Number.isFinite(got[i]);
    if (missing) nonFinite++;
    const error = missing ? Infinity : Math.abs(got[i] - value);
    const ratio = inside ? 0 : ratioOf(error, tolerated, dtype);
    maxAbsError = Math.max(maxAbsError, error);
    maxRelError = Math.max(maxRelError, error / Math.max(1, Math.abs(value)));
    const key = ratio > 0 ? ratio : error * 1e-300;
    if (key > largest.key) largest = { key, ratio, i, error, tolerated };
  }
  const worst = largest.i < 0 ? null : worstOf(name, got, answer, largest);
  let reason = null;
  if (nonFinite > 0) {
    const what = `${nonFinite} of ${size} elements of ${name}`;
    reason = `${what} are NaN or Inf or were never written, first ${text(worst)}`;
  } else if (largest.ratio > 1) {
    reason = `${text(worst)} (${allowed.reason})`;
  } else if (
    ambiguous <= NUMBERS.AMBIGUOUS_SHARE * size && unequal > (1 - allowed.equal_share) * size + NUMBERS.FEW
  ) {
    reason = `${unequal} of ${size} elements of ${name} are a neighbour of the answer rounded to ${dtype}`;
  }
  return {
    ok: reason === null,
    max_abs_error: maxAbsError,
    max_rel_error: maxRelError,
    non_finite: nonFinite,
    reason,
    worst,
  };
}

/** Whether a value is as good as half way between two of its type. */
function tied(value, margin, dtype) {
  return roundTo(value - margin, dtype) !== roundTo(value + margin, dtype);
}

/** A size that is not finite counts only where the tolerance looks at it. */
function limitOf(answer, i, { base, slope, adding }) {
  let limit = 0;
  if (base > 0) limit += base * answer.unit[i] + NUMBERS.DENORMAL;
  if (slope > 0) limit += slope * answer.shaky[i];
  if (adding > 0 && answer.summed) limit += adding * answer.summed[i];
  return limit;
}

/** The error in units of what is tolerated: above 1 outside a rounded type's interval. NaN is no excuse. */
function ratioOf(error, tolerated, dtype) {
  // A tolerance of nothing is met by an error of nothing.
  if (error === 0 && dtype === "float32") return 0;
  const ratio = error / Math.max(tolerated, TINY);
  if (Number.isNaN(ratio)) return Infinity;
  return dtype === "float32" ? ratio : Math.max(ratio, 1 + Number.EPSILON);
}

function worstOf(name, got, { shape, value }, { i, error, tolerated }) {
  const index = shape.length === 1 ? [i] : [Math.floor(i / shape[1]), i % shape[1]];
  return { output: name, index, got: got[i], expected: value[i], error, tolerance: tolerated };
}

function text({ output, index, got, expected, error, tolerance }) {
  const digits = (value, count) => String(Number(value.toPrecision(count)));
  return (
    `${output}[${index.join(", ")}] is ${digits(got, 9)}, expected ${digits(expected, 9)}: ` +
    `off by ${digits(error, 3)}, allowed ${digits(tolerance, 3)}`
  );
}
