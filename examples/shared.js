// Helpers of the examples: inputs, the expected result in float64, and a row of the page's table.

/**
 * Return `length` numbers with a given mean and a standard deviation of 1; the same numbers on every call.
 *
 * @param {number} length
 * @param {number} mean
 */
export function drawn(length, mean) {
  // The fractions of multiples of the golden ratio are spread evenly between 0 and 1.
  return Float32Array.from({ length }, (_, i) => mean + Math.sqrt(12) * (((i * 0.6180339887498949) % 1) - 0.5));
}

/**
 * Return the LayerNorm of rows in float64; `weight` has the length of a row.
 *
 * @param {Float32Array} x
 * @param {Float32Array} weight
 * @param {Float32Array} bias
 * @param {number} eps
 */
export function layerNorm(x, weight, bias, eps) {
  const cols = weight.length;
  const y = new Float64Array(x.length);
  for (let first = 0; first < x.length; first += cols) {
    const row = Float64Array.from(x.subarray(first, first + cols));
    const mean = row.reduce((sum, value) => sum + value) / cols;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / cols;
    const rstd = 1 / Math.sqrt(variance + eps);
    y.set(row.map((value, i) => (value - mean) * rstd * Number(weight[i]) + Number(bias[i])), first);
  }
  return y;
}

/**
 * Return the largest error as text; `right` is true if rounding explains it, since float32 has 7 digits.
 *
 * @param {ArrayLike<number>} found
 * @param {Float64Array} expected
 */
export function errorOf(found, expected) {
  const errors = expected.map((value, i) => Math.abs(Number(found[i]) - value));
  const largest = errors.reduce((most, error) => (error > most ? error : most), 0);
  const strange = errors.some(Number.isNaN);
  return { text: largest.toExponential(1) + (strange ? " and NaN" : ""), right: !strange && largest < 1e-4 };
}

/**
 * Show a mean and its errors in a row of the table.
 *
 * @param {number} mean
 * @param {ReturnType<typeof errorOf>[]} errors
 */
export function show(mean, ...errors) {
  const row = document.createElement("tr");
  row.insertCell().textContent = mean.toExponential(0);
  for (const { text, right } of errors) {
    const cell = row.insertCell();
    cell.textContent = text;
    cell.className = right ? "right" : "wrong";
  }
  document.querySelector("tbody")?.append(row);
}
