import { createLayerNorm, requestDevice, type Buffers, type TensorName } from "webnorm-layer-norm";
import "../../style.css";
import { errorOf, layerNorm } from "../../shared.js";
import { Picture } from "./picture.js";

const ROWS = 256;
const EPS = 1e-5;
const output = document.querySelector("output")!;

async function main(): Promise<void> {
  const device = await requestDevice({ powerPreference: "high-performance" });
  const norm = await createLayerNorm(device, { eps: EPS });
  const x = new Float32Array(ROWS * norm.cols);
  const weight = new Float32Array(norm.cols).fill(1);
  const bias = new Float32Array(norm.cols);

  // `run` takes typed arrays and gives some: once, to see that all is right.
  draw(x, norm.cols, 0);
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

  // One command encoder for all that a frame does. What goes wrong here ends main, too.
  for (;;) {
    const milliseconds = await new Promise<number>(requestAnimationFrame);
    draw(x, norm.cols, milliseconds / 1000);
    device.queue.writeBuffer(buffers.x, 0, x);
    const encoder = device.createCommandEncoder();
    norm.encode(encoder, buffers);
    for (const picture of pictures) picture.draw(encoder);
    device.queue.submit([encoder.finish()]);
  }
}

/** Rings that spread, each row of them with a mean of up to 1000 and a contrast from 1 to 10. */
function draw(x: Float32Array, cols: number, seconds: number): void {
  for (let i = 0; i < x.length; i++) {
    const row = Math.floor(i / cols);
    const distance = Math.hypot((i % cols) - cols / 2, row - ROWS / 2);
    const contrast = 1 + 9 * Math.sin(row * 5) ** 2;
    x[i] = 1000 * Math.sin(row * row) + contrast * Math.sin(distance / 9 - 4 * seconds);
  }
}

main().catch((error: Error) => (output.textContent = error.message));
