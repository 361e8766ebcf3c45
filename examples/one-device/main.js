import { AutoTokenizer } from "@huggingface/transformers";
import * as tf from "@tensorflow/tfjs-core";
import { createLayerNorm } from "../layer-norm/index.js";
import { drawn, errorOf, layerNorm } from "../shared.js";
import { sharedDevice } from "./device.js";
import * as tfjs from "./tfjs.js";
import * as transformers from "./transformers.js";

const EPS = 1e-5;
const output = document.querySelector("output");

async function main() {
  const device = await sharedDevice();
  const norm = await createLayerNorm(device, { eps: EPS });
  await tfjs.start(device);
  const embedding = await transformers.load("embedding", device);
  const head = await transformers.load("head", device);
  const tokenizer = await AutoTokenizer.from_pretrained("embedding");
  output.textContent = norm.reason;

  const buffer = (size, data) => {
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const made = device.createBuffer({ size, usage });
    if (data) device.queue.writeBuffer(made, 0, data);
    return made;
  };
  const [scale, shift] = [drawn(norm.cols, 1), drawn(norm.cols, 0)];
  const parameters = { weight: buffer(scale.byteLength, scale), bias: buffer(shift.byteLength, shift) };

  const tokens = await tokenizer("to be or not to be");
  const { last_hidden_state: hidden } = await embedding(tokens);
  step("transformers.js: hidden states", hidden.location, hidden.ort_tensor.gpuBuffer);

  const inputs_embeds = transformers.normed(norm, device, hidden, parameters);
  step("webnorm: their norm", inputs_embeds.location, inputs_embeds.ort_tensor.gpuBuffer);

  const { last_hidden_state: doubled } = await head({ inputs_embeds });
  step("transformers.js: twice the norm", doubled.location, doubled.ort_tensor.gpuBuffer);

  const halved = tf.mul(tfjs.tensorOf(doubled.ort_tensor.gpuBuffer, doubled.dims), 0.5);
  const y = buffer(norm.byteLength("y", halved.size / norm.cols));
  const last = tfjs.normed(norm, halved, { ...parameters, y });
  step("TensorFlow.js: half of that; webnorm: its norm", "gpu-buffer", y);

  // Until here nothing was read back from the GPU.
  const found = await last.data();
  const expected = again(again(embedded(tokens.input_ids.tolist()[0], norm.cols)));
  output.textContent = `${norm.reason}; largest error ${errorOf(found, expected).text}`;

  function again(x) {
    return layerNorm(x, scale, shift, EPS);
  }
}

/** Return rows of the model's table, with the same numbers as in models.py. */
function embedded(ids, cols) {
  return Float32Array.from({ length: ids.length * cols }, (_, i) => {
    const at = Number(ids[Math.floor(i / cols)]) * cols + (i % cols);
    return (at % 61) / 8 - 3;
  });
}

function step(what, location, { size }) {
  const row = document.querySelector("tbody").insertRow();
  for (const text of [what, location, size]) row.insertCell().textContent = text;
}

main().catch((error) => (output.textContent = error.message));
