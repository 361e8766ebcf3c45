// Helpers of the drivers: Dawn in node, the modules under test, buffers with guards.
//
// node DRIVER.mjs PACKAGE FOLDER
// PACKAGE is the npm package webgpu. FOLDER contains runtime.js and page/ like an export, and the driver's
// inputs. The results go to FOLDER/found.json, with unhandled errors as `faults`.

import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [packaged, folder] = process.argv.slice(2);
const imported = (path) => import(pathToFileURL(resolve(path)).href);

// Dawn polls its threads by setImmediate without a pause, which takes a core from the threads.
globalThis.setImmediate = (call, ...given) => setTimeout(call, 1, ...given);

const { create, globals } = await imported(join(packaged, "index.js"));
Object.assign(globalThis, globals);

export const runtime = await imported(join(folder, "runtime.js"));
export const reference = await imported(join(folder, "page/answers.js"));
const accuracy = await imported(join(folder, "page/verdicts.js"));
export const storage = await imported(join(folder, "page/storage.js"));
/** Import the modules of a whole package. */
export const packageAt = (name) => imported(join(folder, name, "index.js"));

export const bytesOf = (name) => readFileSync(join(folder, name));
export const json = (name) => JSON.parse(bytesOf(name).toString());
export const put = (name, data) => writeFileSync(join(folder, name), data);

const faults = [];
process.on("unhandledRejection", (error) => faults.push(`unhandled rejection: ${error?.message ?? error}`));

export const gpu = create([]);
export const adapter = await gpu.requestAdapter();

/**
 * Let the runtime find the GPU object, as in a browser. Otherwise it does not know the language features of devices
 * that these drivers make themselves.
 */
export function offerGpu() {
  globalThis.navigator ??= {};
  Object.defineProperty(globalThis.navigator, "gpu", { value: gpu, configurable: true });
}

/** Open a device whose errors are faults unless a scope catches them. */
export async function open(descriptor) {
  // An adapter gives only one device.
  const device = await (await gpu.requestAdapter()).requestDevice(descriptor);
  device.addEventListener("uncapturederror", ({ error }) => faults.push(`uncaptured: ${error.message}`));
  return device;
}

/** Return a device with some members replaced, which the runtime accepts as a device. */
export function altered(device, members) {
  return new Proxy(device, {
    get(target, key) {
      if (Object.hasOwn(members, key)) return members[key];
      const value = target[key];
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** Return a device that seems to have other limits. */
export function limited(device, limits) {
  const all = {};
  for (const name in device.limits) all[name] = device.limits[name];
  return altered(device, { limits: { ...all, ...limits } });
}

/** Return the message of the error that a function throws or rejects with, or null. */
export async function messageOf(call) {
  try {
    await call();
    return null;
  } catch (error) {
    return error.message;
  }
}

/** Write the results and exit, since Dawn's threads would keep node alive. */
export async function finish(found) {
  // Rejections and errors of the last calls arrive in later turns.
  await new Promise((done) => setTimeout(done, 50));
  put("found.json", JSON.stringify({ found, faults }));
  process.exit(0);
}

// --- tensors ---------------------------------------------------------------------------------------

/** Return the inputs of a file of test vectors by name, as typed arrays for `run`. */
export function inputsOf(file) {
  const { tensors } = storage.readSafetensors(new Uint8Array(bytesOf(file)).buffer);
  const inputs = Object.entries(tensors).filter(([name]) => !name.startsWith("expected."));
  return Object.fromEntries(inputs.map(([name, { dtype, bytes }]) => [name, typed(bytes, dtype)]));
}

const arrayOf = (dtype) => storage.encode(new Float64Array(), dtype).constructor;
const typed = (bytes, dtype) => new (arrayOf(dtype))(bytes.slice().buffer);

export function dataBytes({ shape, dtype }, rows, cols) {
  const sizes = shape.map((size) => runtime.evaluate(size, { rows, cols }));
  return sizes.reduce((product, size) => product * size, arrayOf(dtype).BYTES_PER_ELEMENT);
}

export const sameBytes = (a, b) =>
  Object.keys(a).length === Object.keys(b).length &&
  Object.keys(a).every((name) => Buffer.from(view(a[name])).equals(Buffer.from(view(b[name]))));
export const view = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

// NaN in float32 and in both halves of a word, with different bits, so that overwriting is visible.
const POISON = 0x7fc17fc1;
const INPUT_GUARD = 0x7fc27fc2;
const GUARD_BYTES = 256;

/**
 * Make a buffer for each tensor of a norm, which begins `offset` bytes into it, between guards. Outputs contain poison
 * first; NaN surrounds the inputs. The binding has `spare` bytes more than the tensor needs.
 */
export function guarded(device, norm, arrays, rows, { offset = 0, spare = GUARD_BYTES } = {}) {
  const bound = {};
  for (const { name, access } of norm.tensors) {
    const needed = Math.ceil(norm.byteLength(name, rows) / 4) * 4;
    const size = offset + needed + GUARD_BYTES;
    const { STORAGE, COPY_DST, COPY_SRC } = GPUBufferUsage;
    const buffer = device.createBuffer({
      size,
      usage: STORAGE | COPY_DST | COPY_SRC,
      mappedAtCreation: true,
    });
    const mapped = buffer.getMappedRange();
    new Uint32Array(mapped).fill(access === "read" ? INPUT_GUARD : POISON);
    if (access === "read") new Uint8Array(mapped).set(view(arrays[name]), offset);
    buffer.unmap();
    bound[name] = { buffer, offset, size: needed + spare };
  }
  return bound;
}

/** Read the outputs of guarded buffers by name, and the names of tensors whose guards were overwritten. */
export async function written(device, norm, bound, rows) {
  const outputs = {};
  const hit = [];
  const read = async (tensor) => {
    const { buffer, offset } = bound[tensor.name];
    const bytes = await contentOf(device, buffer);
    const size = dataBytes(tensor, rows, norm.cols);
    outputs[tensor.name] = typed(bytes.subarray(offset, offset + size), tensor.dtype);
    const words = new Uint32Array(bytes.buffer);
    // The rest of the last element's word may have any value.
    const [first, after] = [offset / 4, Math.ceil((offset + size) / 4)];
    if (words.some((word, at) => (at < first || at >= after) && word !== POISON)) hit.push(tensor.name);
  };
  await Promise.all(norm.tensors.filter(({ access }) => access === "write").map(read));
  return { outputs, hit };
}

export async function contentOf(device, buffer) {
  const { MAP_READ, COPY_DST } = GPUBufferUsage;
  const staging = device.createBuffer({ size: buffer.size, usage: MAP_READ | COPY_DST });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, staging, 0, buffer.size);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const bytes = new Uint8Array(staging.getMappedRange().slice(0));
  staging.destroy();
  return bytes;
}

export const release = (bound) => Object.values(bound).forEach(({ buffer }) => buffer.destroy());

/** Run `encode` on a compute pass, and submit the pass. */
export function submit(device, encode) {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  encode(pass);
  pass.end();
  device.queue.submit([encoder.finish()]);
}

/** Call `norm` on guarded buffers; return its outputs, and the tensors whose guards were overwritten. */
export async function computed(device, norm, arrays, rows, place) {
  const bound = guarded(device, norm, arrays, rows, place);
  submit(device, (pass) => norm.encode(pass, { ...bound, rows }));
  const found = await written(device, norm, bound, rows);
  release(bound);
  return found;
}

/** Return the verdict of the page's verdicts.js on the outputs of a shader. */
export function verdictOn(norm, manifest, arrays, outputs, rows, { eps, scale } = {}) {
  const own = reference.problemOf(manifest, rows, norm.cols);
  const problem = { ...own, eps: eps ?? own.eps, scale: scale ?? own.scale };
  const dtypes = Object.fromEntries(norm.tensors.map(({ name, dtype }) => [name, dtype]));
  const decoded = (all) =>
    Object.fromEntries(
      Object.entries(all).map(([name, array]) => [name, storage.decode(array, dtypes[name])]),
    );
  const got = decoded(outputs);
  const inputs = decoded(arrays);
  const answers = reference.answersOf("h" in got ? { ...inputs, h: got.h } : inputs, problem);
  // The manifest in index.js lacks some fields.
  const shader = manifest.shaders.find(({ name }) => name === norm.shader.name);
  return accuracy.assess(got, answers, manifest, accuracy.tolerance(shader, manifest, rows));
}
