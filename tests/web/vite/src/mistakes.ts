// Mistakes that the types find: the line below each comment is one.

import { createLayerNorm, manifest, requestDevice } from "webnorm-layer-norm";
import { create, type Buffers } from "@example/rms-gradient";

export async function mistakes(
  device: GPUDevice,
  pass: GPUComputePassEncoder,
  render: GPURenderPassEncoder,
  buffer: GPUBuffer,
) {
  const half = new Uint16Array(768);
  // @ts-expect-error there is a shader for 768 columns only
  const norm = await createLayerNorm(device, { cols: 1024 });
  // @ts-expect-error no scale without float8
  await createLayerNorm(device, { scale: 2 });
  // @ts-expect-error WebGPU names no such preference
  await requestDevice({ powerPreference: "fast" });
  // @ts-expect-error WebGPU names no such feature
  await requestDevice({ requiredFeatures: ["subgroup"] });
  // @ts-expect-error not a device
  await createLayerNorm(navigator.gpu);
  // @ts-expect-error bias is missing
  await norm.run({ x: half, weight: half });
  // @ts-expect-error the name is weight
  await norm.run({ x: half, weights: half, bias: half });
  // @ts-expect-error numbers are not typed arrays
  await norm.run({ x: [1, 2], weight: half, bias: half });
  // @ts-expect-error z is none of its tensors
  norm.byteLength("z", 4);
  const { y } = await norm.run({ x: half, weight: half, bias: half });
  // @ts-expect-error float16 comes as its bits
  const numbers: Float32Array = y;
  // @ts-expect-error rows is missing
  norm.encode(pass, { x: buffer, weight: buffer, bias: buffer, y: buffer });
  // @ts-expect-error typed arrays are for run
  norm.encode(pass, { x: half, weight: buffer, bias: buffer, y: buffer, rows: 1 });
  // @ts-expect-error of several numbers of columns one has to be chosen
  await create(device);
  // @ts-expect-error the gradient has no bias
  const buffers: Buffers["dbias"] = buffer;
  // @ts-expect-error the manifest is for reading
  manifest.op = "rms_norm";
  const tensors = { x: buffer, weight: buffer, bias: buffer, y: buffer };
  // @ts-expect-error a device is no encoder
  norm.encode(device, { ...tensors, rows: 1 });
  // @ts-expect-error nor is a render pass
  norm.encode(render, { ...tensors, rows: 1 });
  // @ts-expect-error rows is a number
  norm.encode(pass, { ...tensors, rows: buffer });
  // @ts-expect-error an offset in bytes
  norm.encode(pass, { ...tensors, y: { buffer, offset: "256" }, rows: 1 });
  // @ts-expect-error encode gives nothing to wait for
  norm.encode(pass, { ...tensors, rows: 1 }).then();
  return [numbers, buffers];
}
