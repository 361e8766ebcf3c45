import * as ort from "../node_modules/onnxruntime-web/dist/ort.webgpu.min.mjs";
import { createLayerNorm } from "../layer-norm/index.js";
import { drawn, errorOf, layerNorm, show } from "../shared.js";

const [ROWS, COLS, EPS] = [256, 768, 1e-5];
const here = (path) => new URL(path, import.meta.url).href;

// Load the wasm files from this site. Several threads would need a page that is isolated from other origins.
ort.env.wasm.wasmPaths = here("../node_modules/onnxruntime-web/dist/");
ort.env.wasm.numThreads = 1;
const onGpu = { executionProviders: ["webgpu"], preferredOutputLocation: "gpu-buffer" };
const open = (name) => ort.InferenceSession.create(here(`models/${name}.onnx`), onGpu);

async function main() {
  // Open the sessions one after another, since onnxruntime-web cannot open its first sessions at the same time.
  const [before, behind, whole] = [await open("before"), await open("behind"), await open("whole")];

  // onnxruntime-web has a device once its first session is open.
  const device = await ort.env.webgpu.device;
  const norm = await createLayerNorm(device, { eps: EPS });
  document.querySelector("output").textContent = norm.reason;

  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffer = (label, data) => {
    const made = device.createBuffer({ label, size: norm.byteLength(label, ROWS), usage });
    if (data) device.queue.writeBuffer(made, 0, data);
    return made;
  };
  const tensor = (gpuBuffer, dims) => ort.Tensor.fromGpuBuffer(gpuBuffer, { dataType: "float32", dims });
  const numbers = drawn(ROWS * COLS, 0);
  const [scale, shift] = [drawn(COLS, 1), drawn(COLS, 0)];
  const [x, y, weight, bias] = [buffer("x", numbers), buffer("y"), buffer("weight", scale), buffer("bias", shift)];
  const parameters = { weight: tensor(weight, [COLS]), bias: tensor(bias, [COLS]) };

  for (const mean of [0, 1e2, 1e3, 1e4, 1e6]) {
    const inputs = { x: tensor(x, [ROWS, COLS]), mean: new ort.Tensor("float32", [mean], [1]) };
    const { out: theirs } = await whole.run({ ...inputs, ...parameters });

    const { h } = await before.run(inputs);
    const encoder = device.createCommandEncoder();
    norm.encode(encoder, { x: h.gpuBuffer, weight, bias, y, rows: ROWS });
    device.queue.submit([encoder.finish()]);
    h.dispose();
    const { out: ours } = await behind.run({ y: tensor(y, [ROWS, COLS]) });

    // Only here are results read back from the GPU; `true` also frees the buffer.
    const found = [await theirs.getData(true), await ours.getData(true)];
    const expected = layerNorm(numbers.map((value) => value + mean), scale, shift, EPS).map((value) => 2 * value);
    show(mean, ...found.map((one) => errorOf(one, expected)));
  }
}

main().catch((error) => (document.querySelector("output").textContent = error.message));
