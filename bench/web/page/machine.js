// One device for all libraries: each asks for an adapter and a device, and gets this one.

import { within } from "../page/gpu.js";
import { traitsOf } from "../runtime.js";

const WANTED = ["timestamp-query", "shader-f16", "subgroups"];

/**
 * Open a device with all that the adapter has, and have every later request for one give it.
 * @param {GPU} gpu
 * @returns {Promise<object>}
 */
export async function openMachine(gpu) {
  const adapter = await gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Error("WebGPU gives no adapter here");
  const requiredLimits = {};
  for (const name in adapter.limits) {
    const limit = adapter.limits[name];
    if (typeof limit === "number" && !/subgroup/i.test(name)) requiredLimits[name] = limit;
  }
  const requiredFeatures = WANTED.filter((name) => adapter.features.has(name));
  const device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
  Object.getPrototypeOf(adapter).requestDevice = async () => device;
  // onnxruntime-web destroys it with the last of its sessions; it is everybody's.
  Object.getPrototypeOf(device).destroy = () => {};
  const adapterInfo = adapter.info;
  return { device, adapterInfo, features: requiredFeatures, traits: traitsOf(device, adapterInfo) };
}

/** A buffer with these bytes, that anything may be done with. */
export function bufferWith(device, data) {
  const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
  const size = Math.ceil(data.byteLength / 16) * 16;
  const buffer = device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
  device.queue.writeBuffer(buffer, 0, padded(data));
  return buffer;
}

/** Bytes as they are written: a whole number of words. */
function padded(data) {
  if (data.byteLength % 4 === 0) return data;
  const bytes = new Uint8Array(Math.ceil(data.byteLength / 4) * 4);
  bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return bytes;
}

/** Put a compute pass on the queue, which `encode` fills. */
export function submitPass(device, encode) {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  encode(pass);
  pass.end();
  device.queue.submit([encoder.finish()]);
}

/** What is in a buffer, or in a part of it. */
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
