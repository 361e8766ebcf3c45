// One device for all libraries: each library's request for a device gets this one.

import { within } from "../page/gpu.js";
import { traitsOf } from "../runtime.js";

const WANTED = ["timestamp-query", "shader-f16", "subgroups"];

/**
 * Open a device with all limits and features of the adapter, and return it for every later request.
 * @param {GPU} gpu
 * @returns {Promise<object>}
 */
export async function openMachine(gpu) {
  const adapter = await gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Error("WebGPU finds no adapter here");
  const requiredLimits = {};
  for (const name in adapter.limits) {
    const limit = adapter.limits[name];
    if (typeof limit === "number" && !/subgroup/i.test(name)) requiredLimits[name] = limit;
  }
  const requiredFeatures = WANTED.filter((name) => adapter.features.has(name));
  const device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
  Object.getPrototypeOf(adapter).requestDevice = async () => device;
  // onnxruntime-web destroys the device with its last session, but all libraries share it.
  Object.getPrototypeOf(device).destroy = () => {};
  const adapterInfo = adapter.info;
  return { device, adapterInfo, features: requiredFeatures, traits: traitsOf(device, adapterInfo) };
}

/** Make a buffer with these bytes for any storage or copy use. */
export function bufferWith(device, data) {
  const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
  const size = Math.ceil(data.byteLength / 16) * 16;
  const buffer = device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
  device.queue.writeBuffer(buffer, 0, padded(data));
  return buffer;
}

/** Pad bytes to whole words, as writes require. */
function padded(data) {
  if (data.byteLength % 4 === 0) return data;
  const bytes = new Uint8Array(Math.ceil(data.byteLength / 4) * 4);
  bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return bytes;
}

/** Submit a compute pass that `encode` fills. */
export function submitPass(device, encode) {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  encode(pass);
  pass.end();
  device.queue.submit([encoder.finish()]);
}

/** Read a part of a buffer. */
export async function readBuffer(device, buffer, offset, size) {
  const { MAP_READ, COPY_DST } = GPUBufferUsage;
  const whole = Math.ceil(size / 4) * 4;
  const staging = device.createBuffer({ size: whole, usage: MAP_READ | COPY_DST });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, offset, staging, 0, whole);
  device.queue.submit([encoder.finish()]);
  await within(staging.mapAsync(GPUMapMode.READ), "an answer was read", device);
  const found = staging.getMappedRange().slice(0, size);
  staging.destroy();
  return new Uint8Array(found);
}
