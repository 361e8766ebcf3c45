// The shaders other than LayerNorm's. They are simple: one invocation computes one output.
// Sizes are constants of the pipeline; only the number of rows follows from the buffers.

const SIZES = "override inputs: u32 = 1; override outputs: u32 = 1;";
const MAIN = "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u)";

/** y = x W + b */
export const linear = `${SIZES}
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
${MAIN} {
  if (id.x >= arrayLength(&y)) { return; }
  let row = id.x / outputs;
  let column = id.x % outputs;
  var sum = bias[column];
  for (var i = 0u; i < inputs; i++) { sum += x[row * inputs + i] * weight[i * outputs + column]; }
  y[id.x] = sum;
}`;

/** dx = dy W^T */
export const linearInput = `${SIZES}
@group(0) @binding(0) var<storage, read> dy: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;
${MAIN} {
  if (id.x >= arrayLength(&dx)) { return; }
  let row = id.x / inputs;
  let column = id.x % inputs;
  var sum = 0.0;
  for (var o = 0u; o < outputs; o++) { sum += dy[row * outputs + o] * weight[column * outputs + o]; }
  dx[id.x] = sum;
}`;

/** dW = x^T dy, and db, which is the gradient of an extra row of W for a constant input of 1 */
export const linearWeight = `${SIZES}
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dweight: array<f32>;
@group(0) @binding(3) var<storage, read_write> dbias: array<f32>;
${MAIN} {
  let row = id.x / outputs;
  let column = id.x % outputs;
  if (row > inputs) { return; }
  let rows = arrayLength(&dy) / outputs;
  var sum = 0.0;
  for (var r = 0u; r < rows; r++) {
    let d = dy[r * outputs + column];
    if (row < inputs) { sum += x[r * inputs + row] * d; } else { sum += d; }
  }
  if (row < inputs) { dweight[id.x] = sum; } else { dbias[column] = sum; }
}`;

export const relu = `
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
${MAIN} { if (id.x < arrayLength(&y)) { y[id.x] = max(x[id.x], 0.0); } }`;

export const reluInput = `
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;
${MAIN} { if (id.x < arrayLength(&dx)) { dx[id.x] = select(0.0, dy[id.x], x[id.x] > 0.0); } }`;

/** Softmax and cross-entropy of a row of logits: the loss, and the gradient of the mean loss of all rows. */
export const crossEntropy = `${SIZES}
@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> dlogits: array<f32>;
${MAIN} {
  let rows = arrayLength(&loss);
  if (id.x >= rows) { return; }
  let begin = id.x * outputs;
  // Subtract the largest logit first, since exp could overflow.
  var largest = logits[begin];
  for (var o = 1u; o < outputs; o++) { largest = max(largest, logits[begin + o]); }
  var total = 0.0;
  for (var o = 0u; o < outputs; o++) { total += exp(logits[begin + o] - largest); }
  let label = labels[id.x];
  loss[id.x] = log(total) + largest - logits[begin + label];
  for (var o = 0u; o < outputs; o++) {
    let probability = exp(logits[begin + o] - largest) / total;
    dlogits[begin + o] = (probability - select(0.0, 1.0, o == label)) / f32(rows);
  }
}`;

/** Store the mean loss and count the step. Both stay on the GPU, so that no step waits for the page. */
export const record = `
@group(0) @binding(0) var<storage, read> loss: array<f32>;
@group(0) @binding(1) var<storage, read_write> history: array<f32>;
@group(0) @binding(2) var<storage, read_write> step: u32;
@compute @workgroup_size(1) fn main() {
  var sum = 0.0;
  for (var r = 0u; r < arrayLength(&loss); r++) { sum += loss[r]; }
  if (step < arrayLength(&history)) { history[step] = sum / f32(arrayLength(&loss)); }
  step++;
}`;

/** Adam; step begins at 1. */
export const adam = `override rate: f32 = 0.01;
@group(0) @binding(0) var<storage, read> gradient: array<f32>;
@group(0) @binding(1) var<storage, read> step: u32;
@group(0) @binding(2) var<storage, read_write> moments: array<vec2f>;
@group(0) @binding(3) var<storage, read_write> value: array<f32>;
${MAIN} {
  if (id.x >= arrayLength(&value)) { return; }
  let g = gradient[id.x];
  let decay = vec2f(0.9, 0.999);
  let m = mix(vec2f(g, g * g), moments[id.x], decay);
  moments[id.x] = m;
  let unbiased = m / (1.0 - pow(decay, vec2f(f32(step))));
  value[id.x] -= rate * unbiased.x / (sqrt(unbiased.y) + 1e-8);
}`;
