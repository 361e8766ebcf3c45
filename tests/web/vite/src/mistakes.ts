// Mistakes that the types detect: each comment describes the mistake in the next line.

import { createLayerNorm, manifest, requestDevice } from "webnorm-layer-norm";
import { create, type Buffers } from "@example/rms-gradient";

export async function mistakes(
  device: GPUDevice,
  pass: GPUComputePassEncoder,
  render: GPURenderPassEncoder,
  buffer: GPUBuffer,
) {
  const half = new Uint16Array(768);
  // @ts-expect-error the package has shaders only for 768 columns
  const norm = await createLayerNorm(device, { cols: 1024 });
  // @ts-expect-error only float8 outputs have a scale
  await createLayerNorm(device, { scale: 2 });
  // @ts-expect-error WebGPU has no such preference
  await requestDevice({ powerPreference: "fast" });
  // @ts-expect-error WebGPU has no such feature
  await requestDevice({ requiredFeatures: ["subgroup"] });
  // @ts-expect-error not a device
  await createLayerNorm(navigator.gpu);
  // @ts-expect-error bias is missing
  await norm.run({ x: half, weight: half });
  // @ts-expect-error the name is weight
  await norm.run({ x: half, weights: half, bias: half });
  // @ts-expect-error numbers are not typed arrays
  await norm.run({ x: [1, 2], weight: half, bias: half });
  // @ts-expect-error z is not a tensor
  norm.byteLength("z", 4);
  const { y } = await norm.run({ x: half, weight: half, bias: half });
  // @ts-expect-error float16 is returned as its bits
  const numbers: Float32Array = y;
  // @ts-expect-error rows is missing
  norm.encode(pass, { x: buffer, weight: buffer, bias: buffer, y: buffer });
  // @ts-expect-error typed arrays are for run
  norm.encode(pass, { x: half, weight: buffer, bias: buffer, y: buffer, rows: 1 });
  // @ts-expect-error cols is missing, and the package has several
  await create(device);
  // @ts-expect-error the gradient has no bias
  const buffers: Buffers["dbias"] = buffer;
  // @ts-expect-error the manifest is read-only
  manifest.op = "rms_norm";
  const tensors = { x: buffer, weight: buffer, bias: buffer, y: buffer };
  // @ts-expect-error a device is not an encoder
  norm.encode(device, { ...tensors, rows: 1 });
  // @ts-expect-error a render pass is not an encoder for compute
  norm.encode(render, { ...tensors, rows: 1 });
  // @ts-expect-error rows is a number
  norm.encode(pass, { ...tensors, rows: buffer });
  // @ts-expect-error an offset is a number of bytes
  norm.encode(pass, { ...tensors, y: { buffer, offset: "256" }, rows: 1 });
  // @ts-expect-error encode returns no promise
  norm.encode(pass, { ...tensors, rows: 1 }).then();
  return [numbers, buffers];
}
