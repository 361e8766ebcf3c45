// An app with a package of every op: `found` is what each gave for numbers that every storage type holds.

import { createLayerNorm, requestDevice } from "webnorm-layer-norm";
import * as rms from "webnorm-rms-norm";
import * as gradient from "webnorm-layer-norm-backward";
import { createRmsNormBackward, manifest, type Inputs, type Norm } from "@example/rms-gradient";

type Numbers = Float32Array | Uint16Array;
type Found = Record<string, Record<string, number[]>>;

declare global {
  interface Window {
    found?: Found | { error: string };
  }
}

const ROWS = 5;

/** Multiples of 1/8 between -3 and 4.5. */
function ramp(length: number, step: number): Float32Array {
  return Float32Array.from({ length }, (_, i) => ((i * step) % 61) / 8 - 3);
}

function bfloat16(numbers: Float32Array): Uint16Array {
  return Uint16Array.from(new Uint32Array(numbers.buffer), (bits) => bits >>> 16);
}

function listed(outputs: object): Record<string, number[]> {
  const entries: [string, Numbers][] = Object.entries(outputs);
  return Object.fromEntries(entries.map(([name, array]) => [name, Array.from(array)]));
}

async function run(): Promise<Found> {
  const device = await requestDevice({
    powerPreference: "high-performance",
    requiredLimits: { maxComputeWorkgroupStorageSize: 16384 },
  });

  const layerNorm = await createLayerNorm(device, { eps: 1e-3, label: undefined });
  const { cols } = layerNorm;
  const y = await layerNorm.run({
    x: new Float16Array(ramp(ROWS * cols, 7)),
    weight: new Float16Array(ramp(cols, 3)),
    bias: new Float16Array(ramp(cols, 5)),
  });

  const wide = await rms.create(device);
  const [x, residual] = [ramp(ROWS * wide.cols, 7), ramp(ROWS * wide.cols, 11)];
  const normed = await rmsOnBuffers(device, wide, { x, residual, weight: ramp(wide.cols, 3) });

  const backward = await gradient.createLayerNormBackward(device);
  const gradients = await backward.run({
    x: ramp(ROWS * backward.cols, 7),
    dy: ramp(ROWS * backward.cols, 11),
    weight: ramp(backward.cols, 3),
  });

  const narrow: Norm = await createRmsNormBackward(device, { cols: 61 });
  const inputs: Inputs = {
    x: bfloat16(ramp(ROWS * narrow.cols, 7)),
    dy: bfloat16(ramp(ROWS * narrow.cols, 11)),
    weight: bfloat16(ramp(narrow.cols, 3)),
  };
  return {
    layer_norm: listed(y),
    rms_norm: listed(normed),
    layer_norm_backward: listed(gradients),
    [manifest.op]: listed(await narrow.run(inputs)),
  };
}

/** y and h, by dispatches of this app's own on buffers of its own. */
async function rmsOnBuffers(device: GPUDevice, norm: rms.Norm, inputs: rms.Inputs): Promise<rms.Outputs> {
  const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
  const buffer = (name: rms.TensorName) => {
    const size = norm.byteLength(name, ROWS);
    return device.createBuffer({ size, usage: STORAGE | COPY_DST | COPY_SRC });
  };
  const [x, residual, weight] = [buffer("x"), buffer("residual"), buffer("weight")];
  const [y, h] = [buffer("y"), buffer("h")];
  device.queue.writeBuffer(x, 0, new Float32Array(inputs.x));
  device.queue.writeBuffer(residual, 0, new Float32Array(inputs.residual));
  device.queue.writeBuffer(weight, 0, new Float32Array(inputs.weight));
  const encoder = device.createCommandEncoder();
  norm.encode(encoder, { x, residual: { buffer: residual, offset: 0 }, weight, y, h, rows: ROWS });
  const binding: GPUBufferBinding = { buffer: residual };
  const pass = encoder.beginComputePass();
  norm.encode(pass, { x, residual: binding, weight, y: { buffer: y, size: undefined }, h, rows: ROWS });
  pass.end();
  const staging = [y, h].map((source) => {
    const target = device.createBuffer({ size: source.size, usage: COPY_DST | MAP_READ });
    encoder.copyBufferToBuffer(source, 0, target, 0, source.size);
    return target;
  });
  device.queue.submit([encoder.finish()]);
  const read = async (target: GPUBuffer) => {
    await target.mapAsync(GPUMapMode.READ);
    return new Float32Array(target.getMappedRange().slice(0, 4 * ROWS * norm.cols));
  };
  const [first, second] = staging as [GPUBuffer, GPUBuffer];
  return { y: await read(first), h: await read(second) };
}

run().then(
  (found) => (window.found = found),
  (error: Error) => (window.found = { error: error.message }),
);
