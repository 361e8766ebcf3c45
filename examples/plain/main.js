import { createLayerNorm, requestDevice } from "../layer-norm/index.js";
import { drawn, errorOf, layerNorm, show } from "../shared.js";

const ROWS = 256;
const EPS = 1e-5;

async function main() {
  const device = await requestDevice();
  const norm = await createLayerNorm(device, { eps: EPS });
  document.querySelector("output").textContent = norm.reason;

  // The app creates its buffers once; the norm binds them without a copy.
  const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
  const buffer = (name, usage) => device.createBuffer({ size: norm.byteLength(name, ROWS), usage });
  const x = buffer("x", STORAGE | COPY_DST);
  const weight = buffer("weight", STORAGE | COPY_DST);
  const bias = buffer("bias", STORAGE | COPY_DST);
  const y = buffer("y", STORAGE | COPY_SRC);
  const staging = buffer("y", COPY_DST | MAP_READ);

  const scale = drawn(norm.cols, 1);
  const shift = drawn(norm.cols, 0);
  device.queue.writeBuffer(weight, 0, scale);
  device.queue.writeBuffer(bias, 0, shift);

  for (const mean of [0, 1e2, 1e4, 1e6]) {
    const numbers = drawn(ROWS * norm.cols, mean);
    device.queue.writeBuffer(x, 0, numbers);

    const encoder = device.createCommandEncoder();
    norm.encode(encoder, { x, weight, bias, y, rows: ROWS });
    encoder.copyBufferToBuffer(y, 0, staging, 0, staging.size);
    device.queue.submit([encoder.finish()]);

    await staging.mapAsync(GPUMapMode.READ);
    const found = new Float32Array(staging.getMappedRange().slice(0));
    staging.unmap();
    show(mean, errorOf(found, layerNorm(numbers, scale, shift, EPS)));
  }
}

main().catch((error) => (document.querySelector("output").textContent = error.message));
