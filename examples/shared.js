// What the examples share: numbers to try a norm on, its answer in float64, and a row of the page's table.

/**
 * As many numbers about `mean`, of a standard deviation of 1: the same whenever they are asked for.
 *
 * @param {number} length
 * @param {number} mean
 */
export function drawn(length, mean) {
  // Multiples of the golden ratio lie evenly between 0 and 1.
  return Float32Array.from({ length }, (_, i) => mean + Math.sqrt(12) * (((i * 0.6180339887498949) % 1) - 0.5));
}

/**
 * LayerNorm of rows as long as `weight`, in float64.
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
 * The largest error of what was found, in words, and whether it is no more than rounding: float32 has 7 digits.
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
 * Shows a mean and the errors that came of it.
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
