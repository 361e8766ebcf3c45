// The inputs and float64 answers of a problem, and the error of an output.

import { answersOf } from "../page/answers.js";
import { decode, encode } from "../page/storage.js";

// So many rows are drawn and checked against float64. Further rows repeat them.
export const CHECKED_ROWS = 256;

/** Return a generator of standard normal numbers, which are the same on every host. */
function normals() {
  let state = 0x2545f491;
  const uniform = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
  return () => Math.sqrt(-2 * Math.log(uniform() + 2 ** -33)) * Math.cos(2 * Math.PI * uniform());
}

/**
 * Draw x (standard deviation 1 around a mean), weight and bias in their storage type, and compute the float64
 * answer for the stored values.
 * @param {{ op: string, dtype: string, rows: number, cols: number, eps: number, mean: number }} problem
 */
export function drawn({ op, dtype, rows, cols, eps, mean }) {
  const normal = normals();
  const stored = {};
  const some = Math.min(rows, CHECKED_ROWS);
  stored.x = encode(Float64Array.from({ length: some * cols }, () => mean + normal()), dtype);
  stored.weight = encode(Float64Array.from({ length: cols }, () => 1 + 0.25 * normal()), dtype);
  if (op === "layer_norm") stored.bias = encode(Float64Array.from({ length: cols }, () => 0.5 * normal()), dtype);
  const arrays = Object.fromEntries(Object.entries(stored).map(([name, data]) => [name, decode(data, dtype)]));
  const has_mean = op === "layer_norm";
  const problem = { op, dtype, rows: some, cols, eps, has_mean, scale: 1, options: { weight_offset: 0 } };
  const { value } = answersOf(arrays, problem).y;
  return { stored: { ...stored, x: repeated(stored.x, rows * cols) }, expected: value };
}

function repeated(data, length) {
  if (data.length >= length) return data;
  const found = new data.constructor(length);
  for (let at = 0; at < length; at += data.length) {
    found.set(data.subarray(0, Math.min(data.length, length - at)), at);
  }
  return found;
}

/**
 * Return the largest error of an output's bytes; "NaN" if any element is NaN.
 * @param {Uint8Array} bytes
 * @param {Float64Array} expected
 * @param {string} dtype
 * @returns {number | "NaN" | "inf"}
 */
export function largestError(bytes, expected, dtype) {
  const found = decode(bytes, dtype);
  if (found.length < expected.length) throw new Error(`it gave ${found.length} of ${expected.length} elements`);
  let most = 0;
  for (let i = 0; i < expected.length; i++) {
    const error = Math.abs(found[i] - expected[i]);
    if (Number.isNaN(error)) return "NaN";
    if (error > most) most = error;
  }
  return most === Infinity ? "inf" : most;
}
