import { createLayerNorm, requestDevice, type Buffers, type TensorName } from "webnorm-layer-norm";
import "../../style.css";
import { errorOf, layerNorm } from "../../shared.js";
import { Picture } from "./picture.js";
import { drawRings } from "./rings.js";

const ROWS = 256;
const EPS = 1e-5;
const output = document.querySelector("output")!;

async function main(): Promise<void> {
  const device = await requestDevice({ powerPreference: "high-performance" });
  const norm = await createLayerNorm(device, { eps: EPS });
  const x = new Float32Array(ROWS * norm.cols);
  const weight = new Float32Array(norm.cols).fill(1);
  const bias = new Float32Array(norm.cols);

  // `run` works on typed arrays. It is called once here, to check the result.
  drawRings(x, norm.cols, 0);
  const { y } = await norm.run({ x, weight, bias });
  const { text } = errorOf(y, layerNorm(x, weight, bias, EPS));
  output.textContent = `${norm.reason}; largest error ${text}`;

  const { STORAGE, COPY_DST } = GPUBufferUsage;
  const buffer = (label: TensorName) =>
    device.createBuffer({ label, size: norm.byteLength(label, ROWS), usage: STORAGE | COPY_DST });
  const buffers = {
    x: buffer("x"),
    weight: buffer("weight"),
    bias: buffer("bias"),
    y: buffer("y"),
    rows: ROWS,
  } satisfies Buffers;
  device.queue.writeBuffer(buffers.weight, 0, weight);
  device.queue.writeBuffer(buffers.bias, 0, bias);
  const pictures = [
    new Picture(device, "#before", buffers.x, -1000, 1000),
    new Picture(device, "#after", buffers.y, -2, 2),
  ];

  // One command encoder per frame. An error in this loop also ends main.
  for (;;) {
    const milliseconds = await new Promise<number>(requestAnimationFrame);
    drawRings(x, norm.cols, milliseconds / 1000);
    device.queue.writeBuffer(buffers.x, 0, x);
    const encoder = device.createCommandEncoder();
    norm.encode(encoder, buffers);
    for (const picture of pictures) picture.draw(encoder);
    device.queue.submit([encoder.finish()]);
  }
}

main().catch((error: Error) => (output.textContent = error.message));
