// The norms in float64. This is the twin of webnorm/ops/norms/reference.py, which contains the derivations.

import {
  HI_LO_TOLERANCE,
  INT8_MAXIMUM,
  MEAN_DIGITS,
  NEARLY_LARGEST,
  SMALLEST_ROW_MAXIMUM,
  TIES,
} from "./numbers.js";
import { roundTo, stepAt } from "./storage.js";

/**
 * One output in float64, before it is rounded to its storage type, and the scales of the errors of every
 * element; see Expected in webnorm/op/op.py.
 * @typedef {{ shape: number[], value: Float64Array, error_scale: Float64Array | Float32Array,
 *   mean_error_scale: Float64Array | Float32Array, abs_sum?: Float64Array }} Answer
 */

/** The error scales of a large output are stored in float32. */
function blank(shape, Sizes = Float64Array) {
  const size = shape.reduce((product, n) => product * n, 1);
  return { shape, value: new Float64Array(size), error_scale: new Sizes(size), mean_error_scale: new Sizes(size) };
}

function blankSum(cols) {
  return { ...blank([cols]), abs_sum: new Float64Array(cols) };
}

/** The problem of a package's manifest with `rows` rows of `cols` columns. */
export function problemOf(manifest, rows, cols) {
  const { op, has_mean, problem } = manifest;
  return { ...problem, op, has_mean, rows, cols };
}

/**
 * The float64 answers of any op to its decoded inputs.
 * @param {Object<string, Float64Array>} arrays by tensor name; "h" if an implementation wrote it
 * @param {{ op: string, rows: number, cols: number, has_mean: boolean, dtype: string, eps: number,
 *   scale: number, options: Object }} problem
 * @returns {Object<string, Answer>}
 */
export function answersOf(arrays, problem) {
  if (problem.op === "copy") return copy(arrays, problem);
  return isGradient(problem) ? backward(arrays, problem) : forward(arrays, problem);
}

/** True for a gradient. */
export function isGradient({ op }) {
  return op.endsWith("_backward");
}

/** y = x. */
export function copy(arrays, { rows, cols }) {
  return { y: { ...blank([rows, cols]), value: arrays.x } };
}

/** The number that is added to weight, the nearest float32. */
export function offsetOf({ zero_centered_weight, weight_offset }) {
  return zero_centered_weight ? 1 : Math.fround(weight_offset);
}

/** The factor of x̂ and the offset. */
function parameters(arrays, { cols, options }) {
  const offset = offsetOf(options);
  return {
    weight: arrays.weight ? arrays.weight.map((w) => w + offset) : new Float64Array(cols).fill(1),
    bias: arrays.bias ?? new Float64Array(cols),
  };
}

/**
 * Write x̂ of the row that starts at `start` into `xhat`; return mean, rstd and |mean| * rstd.
 *
 * The row is first shifted by its first element. The differences are exact for float32 values of similar
 * magnitude, so constant rows have a variance of exactly 0.
 */
function normalize(x, start, { cols, eps, has_mean }, xhat) {
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

/** h = x + residual + residual_bias; missing arrays count as 0. */
function addResidual(arrays, { rows, cols }) {
  const h = blank([rows, cols]);
  const terms = [[arrays.x, false], [arrays.residual, false], [arrays.residual_bias, true]];
  for (const [term, perColumn] of terms) {
    if (!term) continue;
    for (let i = 0; i < h.value.length; i++) {
      const added = term[perColumn ? i % cols : i];
      h.value[i] += added;
      h.error_scale[i] += Math.abs(added);
    }
  }
  return h;
}

/** h in its storage type. Python's ml_dtypes rounds to bfloat16 via float32, which matters for near ties. */
function asStored(h, dtype) {
  return roundTo(dtype === "bfloat16" ? Math.fround(h) : h, dtype);
}

/**
 * y, and by the problem's options h, stats, y_scale or amax.
 *
 * With "h" among the arrays, y is the norm of that h, which an implementation wrote and rounded. stats is mean
 * and rstd, (rows, 2), or rstd alone if the norm has no mean. amax is [amax, scale_inv].
 */
export function forward(arrays, problem) {
  const { rows, cols, has_mean, options } = problem;
  const outDtype = options.out_dtype ?? problem.dtype;
  const { weight, bias } = parameters(arrays, problem);
  const answers = {};
  let { x } = arrays;
  if (options.residual) {
    answers.h = addResidual(arrays, problem);
    x = arrays.h ?? answers.h.value.map((h) => asStored(h, options.residual_dtype ?? problem.dtype));
  }
  const y = (answers.y = blank([rows, cols], Float32Array));
  if (options.return_stats) answers.stats = blank([rows, has_mean ? 2 : 1]);
  const block = options.scale_block || cols;
  if (outDtype === "int8") answers.y_scale = blank([rows, Math.ceil(cols / block)]);
  const early = earlyTypes(problem);
  const plain = blank([cols]);
  const exact = early ? blank([cols]) : plain;
  const xhat = new Float64Array(cols);
  for (let row = 0; row < rows; row++) {
    const start = row * cols;
    const found = normalize(x, start, problem, xhat);
    if (answers.stats) putStats(answers.stats, row, found, has_mean);
    putPlain(plain, xhat, weight, bias, found.condition);
    if (early) putRoundedEarly(exact, xhat, weight, bias, found.condition, early);
    putScaled(answers, row, exact, plain, block);
  }
  if (outDtype.startsWith("float8")) {
    answers.amax = amaxOf(y, problem.scale, early ? NEARLY_LARGEST : 0);
    for (const sizes of [y.value, y.error_scale, y.mean_error_scale]) {
      for (let i = 0; i < sizes.length; i++) sizes[i] *= problem.scale;
    }
  }
  return answers;
}

/** A y that is not divided by a scale. */
const UNSCALED = { q: 1, error_scale: 0, mean_error_scale: 0 };

/** A row of y, divided by the scale of each block of columns if y is int8. */
function putScaled({ y, y_scale }, row, exact, plain, block) {
  const cols = exact.value.length;
  const start = row * cols;
  for (let first = 0; first < cols; first += block) {
    const end = Math.min(first + block, cols);
    const at = row * Math.ceil(cols / block) + first / block;
    const sizes = y_scale ? int8Sizes(y_scale, at, exact, plain, first, end) : UNSCALED;
    for (let j = first; j < end; j++) {
      y.value[start + j] = exact.value[j] * sizes.q;
      y.error_scale[start + j] = (exact.error_scale[j] + sizes.error_scale) * sizes.q;
      y.mean_error_scale[start + j] = (exact.mean_error_scale[j] + sizes.mean_error_scale) * sizes.q;
    }
  }
}

/** A row of y that is rounded once, when it is stored. */
function putPlain({ value, error_scale, mean_error_scale }, xhat, weight, bias, condition) {
  for (let j = 0; j < xhat.length; j++) {
    const scaled = xhat[j] * weight[j];
    value[j] = scaled + bias[j];
    error_scale[j] = Math.max(Math.abs(weight[j]), Math.abs(scaled)) + Math.abs(bias[j]);
    mean_error_scale[j] = condition * error_scale[j];
  }
}

/** A row of y that every operation rounds, to the types of `early`. */
function putRoundedEarly({ value, error_scale, mean_error_scale }, xhat, weight, bias, condition, early) {
  for (let j = 0; j < xhat.length; j++) {
    const found = roundedEarly(xhat[j], weight[j], bias[j], condition, early);
    value[j] = found.value;
    error_scale[j] = found.error_scale;
    mean_error_scale[j] = found.mean_error_scale;
  }
}

/** The types of the option `rounding`; null if y is rounded once. */
function earlyTypes({ dtype, options }) {
  if (!options.rounding || dtype === "float32") return null;
  const same = (options.weight_dtype ?? dtype) === dtype;
  return { xhat: dtype, product: same ? dtype : "float32", shifted: options.bias };
}

/** x̂ is rounded, and then the product with weight and the sum with bias; see rounding.py. */
function roundedEarly(x, weight, bias, condition, early) {
  const size = Math.max(1, Math.abs(x));
  const xhat = rounded({ value: x, error_scale: size, mean_error_scale: condition * size }, early.xhat);
  const factor = Math.abs(weight);
  const product = rounded(
    {
      value: xhat.value * weight,
      error_scale: xhat.error_scale * factor,
      mean_error_scale: xhat.mean_error_scale * factor,
    },
    early.product,
  );
  if (!early.shifted) return product;
  const sum = { ...product, value: product.value + bias, error_scale: product.error_scale + Math.abs(bias) };
  return rounded(sum, early.product);
}

/** A rounded element. A value near the boundary of two values may be rounded to either. */
function rounded({ value, error_scale, mean_error_scale }, dtype) {
  if (dtype === "float32") return { value, error_scale, mean_error_scale };
  const step = stepAt(value, dtype);
  const steps = Math.abs(value) / step;
  const distance = Math.abs(steps - Math.floor(steps) - 0.5) * step;
  const margin = Math.max(HI_LO_TOLERANCE * error_scale, 2 ** -1022);
  const share = step / Math.max(distance, margin);
  const growth = distance <= 2 * margin ? 1 + TIES * share : share;
  return {
    value: asStored(value, dtype),
    error_scale: error_scale * growth,
    mean_error_scale: mean_error_scale * growth,
  };
}

/** The largest |y| of a block of columns is its scale. An error of the scale affects every element of the block. */
function int8Sizes(scale, at, exact, plain, first, end) {
  let top = 0;
  for (let j = first; j < end; j++) top = Math.max(top, Math.abs(exact.value[j]));
  const largest = Math.max(top, SMALLEST_ROW_MAXIMUM);
  let [error_scale, mean_error_scale] = [0, 0];
  for (let j = first; j < end; j++) {
    const near = Math.abs(exact.value[j]) < NEARLY_LARGEST * top ? plain : exact;
    error_scale = Math.max(error_scale, near.error_scale[j], plain.error_scale[j]);
    mean_error_scale = Math.max(mean_error_scale, near.mean_error_scale[j], plain.mean_error_scale[j]);
  }
  scale.value[at] = largest / INT8_MAXIMUM;
  scale.error_scale[at] = error_scale / INT8_MAXIMUM;
  scale.mean_error_scale[at] = mean_error_scale / INT8_MAXIMUM;
  return { q: INT8_MAXIMUM / largest, error_scale, mean_error_scale };
}

/** The mean, with an error scale of the standard deviation and the mean's last bits, and rstd. */
function putStats(stats, row, { mean, rstd, condition }, hasMean) {
  const put = (i, value, error_scale, mean_error_scale) => {
    stats.value[i] = value;
    stats.error_scale[i] = error_scale;
    stats.mean_error_scale[i] = mean_error_scale;
  };
  const width = hasMean ? 2 : 1;
  if (hasMean) put(row * width, mean, 1 / rstd + Math.abs(mean) * MEAN_DIGITS, Math.abs(mean));
  put(row * width + width - 1, rstd, rstd, condition * rstd);
}

/** amax of the unscaled y, and scale_inv. Only elements of at least `share` times amax contribute to its error. */
function amaxOf(y, scale, share) {
  const amax = y.value.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const largest = (sizes) =>
    sizes.reduce((most, size, i) => (Math.abs(y.value[i]) < share * amax ? most : Math.max(most, size)), 0);
  return {
    shape: [2],
    value: Float64Array.of(amax, 1 / scale),
    error_scale: Float64Array.of(largest(y.error_scale), 1 / scale),
    mean_error_scale: Float64Array.of(largest(y.mean_error_scale), 0),
  };
}

/**
 * dx, and by the problem's options dweight, dbias and dresidual_bias, from x, dy, weight, dh and stats:
 * dx = (g - mean(g) - x̂ * mean(g * x̂)) * rstd + dh with g = dy * weight, without mean(g) if the norm has no
 * mean. dweight, dbias and dresidual_bias are sums over rows of dy * x̂, dy and dx.
 */
export function backward(arrays, problem) {
  const { rows, cols, options } = problem;
  const { weight } = parameters(arrays, problem);
  const answers = { dx: blank([rows, cols], Float32Array) };
  if (options.weight) answers.dweight = blankSum(cols);
  if (options.bias) answers.dbias = blankSum(cols);
  if (options.residual_bias) answers.dresidual_bias = blankSum(cols);
  const xhat = new Float64Array(cols);
  for (let row = 0; row < rows; row++) {
    const found = options.saved_stats
      ? bySaved(arrays, row, problem, xhat)
      : normalize(arrays.x, row * cols, problem, xhat);
    putGradients(answers, row, arrays, weight, xhat, found, problem.has_mean);
  }
  for (const { error_scale, mean_error_scale } of Object.values(answers).filter((answer) => answer.abs_sum)) {
    for (let j = 0; j < cols; j++) {
      error_scale[j] = Math.sqrt(error_scale[j]);
      mean_error_scale[j] = Math.sqrt(mean_error_scale[j]);
    }
  }
  return answers;
}

/** dx of a row; adds the row to the sums over rows. */
function putGradients(answers, row, { dy, dh }, weight, xhat, { rstd, condition }, hasMean) {
  const { dx, dweight, dbias, dresidual_bias } = answers;
  const start = row * xhat.length;
  const means = gradientMeans(dy, start, weight, xhat, hasMean);
  for (let j = 0; j < xhat.length; j++) {
    const size = Math.max(1, Math.abs(xhat[j]));
    const d = dy[start + j];
    const g = d * weight[j];
    let value = (g - xhat[j] * means.along - means.g) * rstd;
    let error_scale = (Math.abs(g) + size * means.size + means.absolute) * rstd;
    const mean_error_scale = condition * error_scale;
    if (dh) {
      value += dh[start + j];
      error_scale += Math.abs(dh[start + j]);
    }
    dx.value[start + j] = value;
    dx.error_scale[start + j] = error_scale;
    dx.mean_error_scale[start + j] = mean_error_scale;
    if (dweight) addTerm(dweight, j, d * xhat[j], d * size, d * condition);
    if (dbias) addTerm(dbias, j, d, d, 0);
    if (dresidual_bias) addTerm(dresidual_bias, j, value, error_scale, mean_error_scale);
  }
}

/** x̂ of a row with the statistics that a forward pass saved, for any eps. */
function bySaved({ x, stats }, row, { cols, has_mean }, xhat) {
  const width = has_mean ? 3 : 1;
  const rstd = stats[row * width + width - 1];
  const mean = has_mean ? stats[row * width] + stats[row * width + 1] : 0;
  for (let j = 0; j < cols; j++) xhat[j] = (x[row * cols + j] - mean) * rstd;
  return { rstd, condition: Math.abs(mean) * rstd };
}

/** The row's means of g * x̂, of g, and of both sizes; the means of g only if the norm has a mean. */
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

/** The errors of the terms count as independent, so their squares are added. */
function addTerm(sum, j, term, error_scale, mean_error_scale) {
  sum.value[j] += term;
  sum.error_scale[j] += error_scale * error_scale;
  sum.mean_error_scale[j] += mean_error_scale * mean_error_scale;
  sum.abs_sum[j] += Math.abs(term);
}
