// The allowed errors of the norms' outputs, and the form in which they are compared: the twin of
// webnorm/ops/norms/reference.py.

import { evaluate } from "../runtime.js";
import { isGradient } from "./answers.js";
import {
  DENORMAL,
  EQUAL_SHARE,
  GRADIENT_FACTOR,
  HI_LO_TOLERANCE,
  LOW_WORD,
  ROUNDED_MEAN_FACTOR,
  SERIAL_TERMS,
  SUM_TOLERANCE,
  UNIT_ROUNDOFF,
} from "./numbers.js";

/**
 * The tolerance of a kernel for a problem, from its header and the problem's size.
 * @param {{ accuracy: Object, cols: number }} shader  an entry of the manifest's shaders
 * @param {{ op: string }} manifest
 * @param {number} rows
 * @returns {import("./verdicts.js").Tolerance}
 */
export function toleranceOf(shader, manifest, rows) {
  const rules = shader.accuracy;
  // No accumulator adds more terms than there are, even if a header declares more.
  const terms = Math.max(1, Math.min(evaluate(rules.serial_terms, { rows }), shader.cols));
  const columns = Math.max(1, Math.min(evaluate(rules.column_terms, { rows }), rows));
  const rounded = Number(evaluate(rules.rounded_mean, { rows }));
  const gradient = isGradient(manifest);
  const factor = gradient ? GRADIENT_FACTOR : 1;
  const base = factor * HI_LO_TOLERANCE * Math.max(1, terms / SERIAL_TERMS);
  const roundings = rounded ? Math.max(rounded, Math.sqrt(terms)) : 0;
  const slope = factor * ROUNDED_MEAN_FACTOR * UNIT_ROUNDOFF * roundings;
  const adding = gradient ? UNIT_ROUNDOFF * Math.sqrt(columns) : 0;
  let reason = `${terms} terms per accumulator`;
  if (rounded) reason += `, mean rounded to float32: + ${slope.toExponential(1)}*|mean|/sd`;
  if (gradient) reason += `, ${columns} rows per accumulator: + ${adding.toExponential(1)}*sum of sizes`;
  const exact = !rounded && terms <= SERIAL_TERMS && !gradient;
  return { base, slope, adding, equal_share: exact ? EQUAL_SHARE : 0, reason };
}

/**
 * The tolerance of h, which is the same for every kernel. Null for other outputs.
 * @param {string} name
 * @param {string} dtype
 * @param {Object} manifest
 * @returns {import("./verdicts.js").Tolerance | null}
 */
export function outputTolerance(name, dtype, manifest) {
  if (name !== "h") return null;
  const { problem } = manifest;
  return toleranceOfH(dtype === problem.dtype && dtype !== "float32" && !problem.options.residual_bias);
}

/**
 * An output in the form of the answers: the two words of the mean in stats are added.
 * @param {string} name
 * @param {Float64Array} output
 * @param {{ has_mean: boolean }} manifest
 * @returns {Float64Array}
 */
export function comparedForm(name, output, manifest) {
  return name === "stats" && manifest.has_mean ? joinedStats(output) : output;
}

/** The sum of two values of one narrow type is exact in float32, unless they differ much in size. */
function toleranceOfH(exact) {
  const plain = { slope: 0, adding: 0, equal_share: 0 };
  if (!exact) {
    return { ...plain, base: SUM_TOLERANCE, reason: "two additions in float32" };
  }
  return { ...plain, base: DENORMAL, reason: "one rounding" };
}

/**
 * Turn (rows, 3) into (rows, 2): the sum of the mean's two words, and rstd. The sum is NaN if the second word is
 * too large to be a correction.
 */
function joinedStats(stats) {
  const joined = new Float64Array((stats.length / 3) * 2);
  for (let row = 0; row < stats.length / 3; row++) {
    const [mean, low, rstd] = stats.subarray(3 * row);
    const large = Math.abs(low) * rstd > LOW_WORD * (Math.abs(mean) * rstd + 1);
    joined[2 * row] = large ? NaN : mean + low;
    joined[2 * row + 1] = rstd;
  }
  return joined;
}
