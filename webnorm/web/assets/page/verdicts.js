// The verdict on a GPU's outputs: the same rules as webnorm/lab/verify/accuracy.py, which explains them.
//
// rows and cols are names of the manifest's format. Usage, where `arrays` are the inputs decoded by storage.js:
//   const got = ...the outputs, decoded;
//   const problem = problemOf(manifest, rows, cols);
//   const answers = answersOf("h" in got ? { ...arrays, h: got.h } : arrays, problem);
//   const { ok, reason } = assess(got, answers, manifest, tolerance(shader, manifest, rows));

import { AMBIGUOUS_SHARE, DENORMAL, FEW, TIE, VAGUE, WITHOUT_NUMBERS } from "./numbers.js";
import { evaluate } from "../runtime.js";
import { roundTo } from "./storage.js";
import { comparedForm, outputTolerance, toleranceOf } from "./tolerance.js";

// The smallest normal float64.
const TINY = 2 ** -1022;

/**
 * The allowed error of an element: base * error_scale + slope * mean_error_scale + adding * abs_sum. `equal_share` of a
 * rounded output's elements must be equal to the rounded answer. `reason` is the origin of the numbers.
 * @typedef {{ base: number, slope: number, adding: number, equal_share: number, reason: string }} Tolerance
 */

/**
 * Return the tolerance for a kernel's header and a problem's size.
 * @param {{ accuracy: Object }} shader an entry of the manifest's shaders
 * @param {{ op: string }} manifest
 * @param {number} rows
 * @returns {Tolerance}
 */
export function tolerance(shader, manifest, rows) {
  if (manifest.op === "copy") {
    return { base: 0, slope: 0, adding: 0, equal_share: 1, reason: "a copy is exact" };
  }
  if (manifest.reference === "vectors") return derivedTolerance(shader.accuracy, rows);
  return toleranceOf(shader, manifest, rows);
}

/** Return the tolerance for an op of a user: its vectors contain the allowed error of each element and per term. */
function derivedTolerance({ serial_terms, column_terms }, rows) {
  const slope = evaluate(serial_terms, { rows }) + evaluate(column_terms, { rows });
  return { base: 1, slope, adding: 0, equal_share: 0, reason: "derived from the reference" };
}

/**
 * Compare every output with its answer, element by element.
 *
 * A float32 output may be off by the tolerance. An output of a narrower type must be the answer rounded to that type,
 * or a neighbour if the distance from the answer to the rounding boundary is within the tolerance.
 *
 * `allowed` is the tolerance of the element with `max_abs_error`. The errors and `worst` belong to the op's main output,
 * unless another output is wrong. They are relative to the answer before rounding. `non_finite` counts NaN and Inf where
 * a number was expected; elements whose answer is not finite are left out. `not_compared` is the reason why an output
 * proves nothing, right or wrong.
 * @param {Object<string, Float64Array>} outputs decoded, by tensor name, as the op's comparedForm takes them
 * @param {Object<string, Answer>} answers
 * @param {Object} manifest
 * @param {Tolerance} allowed
 * @returns {{ ok: boolean, max_abs_error: number, max_rel_error: number, allowed: number, non_finite: number,
 *   reason: string | null, not_compared: string | null, worst: Object | null }}
 */
export function assess(outputs, answers, manifest, allowed) {
  const written = manifest.tensors.filter((tensor) => tensor.access === "write");
  const derived = manifest.reference === "vectors";
  const found = written.map(({ name, dtype }) => {
    const own = (derived ? null : outputTolerance(name, dtype, manifest)) ?? allowed;
    const got = derived ? outputs[name] : comparedForm(name, outputs[name], manifest);
    const verdict = assessOutput(name, got, answers[name], dtype, own);
    return { ...verdict, not_compared: whyNotCompared(answers[name], dtype, own) };
  });
  const wrong = found.filter((verdict) => !verdict.ok);
  // Report the main output, unless only another output is wrong. An output that was never written comes first, since
  // others depend on it: y is compared with the norm of the stored h.
  const main = wrong.find((verdict) => verdict.non_finite) ?? wrong[0] ?? found[0];
  return { ...main, not_compared: found.find((verdict) => verdict.not_compared)?.not_compared ?? null };
}

/**
 * Return the verdict of an assessment.
 * @param {{ ok: boolean, not_compared: string | null }} assessment
 * @returns {"pass" | "fail" | "skip"}
 */
export function verdictOn({ ok, not_compared }) {
  if (!ok) return "fail";
  return not_compared ? "skip" : "pass";
}

function assessOutput(name, got, answer, dtype, allowed) {
  const size = answer.value.length;
  if (got?.length !== size) throw new Error(`${name} has ${got?.length ?? "no"} elements; expected ${size}`);
  let [maxAbsError, allowedThere, maxRelError] = [0, limitOf(answer, 0, allowed), 0];
  let [nonFinite, unequal, ambiguous] = [0, 0, 0];
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
      tolerated = Math.max(Math.abs(below - value), Math.abs(above - value));
      inside = got[i] >= below && got[i] <= above;
      // Implementations round an answer beyond the type's range differently; a finite number is still wrong.
      if (!Number.isFinite(tolerated) && (inside || !Number.isFinite(got[i]))) continue;
      if (below !== above) ambiguous++;
      if (got[i] !== roundTo(value, dtype) && !tied(value, TIE * limit, dtype)) unequal++;
    }
    if (!Number.isFinite(got[i])) nonFinite++;
    const error = !Number.isFinite(got[i]) ? Infinity : Math.abs(got[i] - value);
    const ratio = inside ? 0 : ratioOf(error, tolerated, dtype);
    if (error > maxAbsError) [maxAbsError, allowedThere] = [error, tolerated];
    maxRelError = Math.max(maxRelError, error / Math.max(1, Math.abs(value)));
    const key = ratio > 0 ? ratio : error * 1e-300;
    if (key > largest.key) largest = { key, ratio, i, error, tolerated };
  }
  const worst = largest.i < 0 ? null : worstOf(name, got, answer, largest);
  const reason = reasonFor(name, dtype, { size, nonFinite, unequal, ambiguous, largest, worst }, allowed);
  return {
    ok: reason === null,
    max_abs_error: maxAbsError,
    max_rel_error: maxRelError,
    allowed: allowedThere,
    non_finite: nonFinite,
    reason,
    worst,
  };
}

/** Return why an output proves nothing: at least half of its elements are vague, or int8 cannot store NaN. */
function whyNotCompared(answer, dtype, allowed) {
  let [counted, vague] = [0, 0];
  for (const [i, value] of answer.value.entries()) {
    if (!Number.isFinite(value)) continue;
    counted++;
    if (isVague(answer, i, allowed)) vague++;
  }
  if (counted) return 2 * vague >= counted ? VAGUE : null;
  return dtype === "int8" && answer.value.length ? WITHOUT_NUMBERS : null;
}

/** Return true if the allowed error of an element is at least its own size and the size of its terms. */
function isVague(answer, i, allowed) {
  // A derived tolerance does not contain the size of the terms.
  if (!(allowed.slope > 0) || allowed.base === 1) return false;
  const size = Math.max(answer.error_scale[i], Math.abs(answer.value[i]));
  return size > DENORMAL && limitOf(answer, i, allowed) >= size;
}

/** Return in words what is wrong with an output; null if nothing is. */
function reasonFor(name, dtype, { size, nonFinite, unequal, ambiguous, largest, worst }, allowed) {
  if (nonFinite > 0) {
    const what = `${nonFinite} of ${size} elements of ${name}`;
    return `${what} are NaN or Inf or were never written, first ${text(worst)}`;
  }
  if (largest.ratio > 1) return `${text(worst)} (${allowed.reason})`;
  if (ambiguous <= AMBIGUOUS_SHARE * size && unequal > (1 - allowed.equal_share) * size + FEW) {
    return `${unequal} of ${size} elements of ${name} are one step off the answer rounded to ${dtype}`;
  }
  return null;
}

/** Return true if a value is within a margin of the midpoint between two values of its type. */
function tied(value, margin, dtype) {
  return roundTo(value - margin, dtype) !== roundTo(value + margin, dtype);
}

/** Return the allowed error of an element. Scales with a factor of 0 are ignored, since they may be infinite. */
function limitOf(answer, i, { base, slope, adding }) {
  let limit = 0;
  if (base > 0) limit += base * answer.error_scale[i] + DENORMAL;
  if (slope > 0) limit += slope * answer.mean_error_scale[i];
  if (adding > 0 && answer.abs_sum) limit += adding * answer.abs_sum[i];
  return limit;
}

/** Return the error in units of its tolerance: above 1 outside a rounded type's interval, and for NaN. */
function ratioOf(error, tolerated, dtype) {
  // An error of 0 meets a tolerance of 0.
  if (error === 0 && dtype === "float32") return 0;
  // For an integer without rounding an error of 1 counts as 2, not as infinite.
  const least = /^u?int/.test(dtype) && tolerated === 0 ? 0.5 : TINY;
  const ratio = error / Math.max(tolerated, least);
  if (Number.isNaN(ratio)) return Infinity;
  return dtype === "float32" ? ratio : Math.max(ratio, 1 + Number.EPSILON);
}

function worstOf(name, got, { shape, value }, { i, error, tolerated }) {
  const index = placeOf(i, shape);
  return { output: name, index, got: got[i], expected: value[i], error, tolerance: tolerated };
}

/** Return the index of an element from its number in row-major order. */
function placeOf(i, shape) {
  let rest = i;
  return shape.toReversed().map((size) => {
    const at = rest % size;
    rest = Math.floor(rest / size);
    return at;
  }).toReversed();
}

function text({ output, index, got, expected, error, tolerance }) {
  const digits = (value, count) => String(Number(value.toPrecision(count)));
  return (
    `${output}[${index.join(", ")}] is ${digits(got, 9)}, expected ${digits(expected, 9)}: ` +
    `off by ${digits(error, 3)}, allowed ${digits(tolerance, 3)}`
  );
}
