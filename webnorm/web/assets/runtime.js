// The host's side of an export: compiles the shader that fits a device, and runs it on an app's data.

import { choose, named, traitsOf } from "./runtime/choice.js";
import { checkedOptions } from "./runtime/options.js";
import { ARRAYS, evaluate, itemsize, Plan, roundUp } from "./runtime/passes.js";

export { choose, descriptorFor, refusal, traitsOf } from "./runtime/choice.js";
export { deviceFor, LINUX_FLAGS, WEBGPU_SINCE, whyNoAdapter, whyNoGpu } from "./runtime/device.js";
export { ARRAYS, evaluate, itemsize } from "./runtime/passes.js";

const OPTIONS = ["cols", "eps", "scale", "shader", "adapterInfo", "label"];
const told = (value) =>
  typeof value?.length === "number" && typeof value === "object"
    ? `${value.constructor.name} of ${value.length}`
    : String(value).slice(0, 40);
// Bind groups are kept for so many combinations of buffers and rows, the latest used ones.
const CACHED_CALLS = 16;

/**
 * Compile the shader that fits the device.
 *
 * Options: `cols` (needed where the export carries several), `eps` and `scale` in place of the export's own,
 * `shader` to name one in place of choosing, `adapterInfo` where the device does not tell, `label`.
 * Rejects with an Error that says what is wrong: no shader fits, a compiler's complaint, a lost device.
 */
export async function createNorm(device, manifest, texts, options) {
  const { op } = manifest;
  options = checkedOptions(op, options, OPTIONS);
  if (typeof device?.createShaderModule !== "function") {
    throw new Error(`${op}: device is ${device}; expected a GPUDevice`);
  }
  const { cols = manifest.cols.length === 1 ? manifest.cols[0] : undefined } = options;
  if (!manifest.cols.includes(cols)) {
    throw new Error(`${op}: cols is ${cols}; this export has ${manifest.cols.join(", ")}`);
  }
  const traits = traitsOf(device, options.adapterInfo);
  const { shader: wanted } = options;
  const chosen = wanted ? named(manifest, traits, cols, wanted) : choose(manifest, traits, cols);
  const label = options.label ?? `webnorm ${op} ${chosen.shader.name}`;
  const pipelines = await compile(device, chosen.shader, texts[chosen.shader.name], label);
  // A lost device makes pipelines all the same.
  const lost = await Promise.race([device.lost, null]);
  if (lost) throw new Error(`${op}: ${lossText(lost)}`);
  const { eps = manifest.problem.eps, scale = manifest.problem.scale } = options;
  for (const [name, value] of Object.entries({ eps, scale })) {
    if (!(value >= 0 && value < Infinity)) {
      throw new Error(`${op}: ${name} is ${value}; expected a finite number of 0 or more`);
    }
  }
  const { shader, reason } = chosen;
  const mostIterations = traits.software ? manifest.software_iterations : Infinity;
  const plan = new Plan({ op, device, shader, pipelines, cols, eps, scale, label, mostIterations });
  return new Norm({ op, cols, tensors: manifest.tensors, shader, reason }, device, plan, label);
}

function lossText({ message, reason }) {
  return `the device was lost (${message || reason}); create it again on a new device`;
}

async function compile(device, shader, code, label) {
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ label, code });
  const made = shader.passes.map((pass) => {
    const entries = pass.bindings.map((binding) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: shader.bindings[binding].type },
    }));
    const layout = device.createBindGroupLayout({ label, entries });
    const descriptor = {
      label: `${label} ${pass.entry_point}`,
      layout: device.createPipelineLayout({ label, bindGroupLayouts: [layout] }),
      compute: { module, entryPoint: pass.entry_point, constants: shader.overrides },
    };
    return device.createComputePipelineAsync(descriptor).then((pipeline) => ({ pass, layout, pipeline }));
  });
  const scope = device.popErrorScope();
  try {
    return await Promise.all(made);
  } catch (error) {
    const { messages } = await module.getCompilationInfo();
    const first = messages.find((message) => message.type === "error");
    const where = first ? `line ${first.lineNum}: ${first.message}` : error.message;
    throw new Error(`${label} does not compile: ${where}`, { cause: error });
  } finally {
    await scope.catch(() => null);
  }
}

function dispatchAll(pass, call) {
  for (const { pipeline, group, grid } of call) {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(...grid);
  }
}

class Norm {
  #device;
  #plan;
  #label;
  #lost = null;
  #destroyed = false;
  #bufferIds = new WeakMap();
  #lastId = 0;
  #calls = new Map();

  constructor(facts, device, plan, label) {
    Object.assign(this, facts);
    this.#device = device;
    this.#plan = plan;
    this.#label = label;
    device.lost.then((info) => {
      this.#lost = info;
    });
  }

  /** Bytes that the buffer of a tensor has to have for so many rows. */
  byteLength(name, rows) {
    const tensor = this.tensors.find((one) => one.name === name);
    if (!tensor) {
      this.#fail(`has no tensor ${name}; there is ${this.tensors.map((one) => one.name).join(", ")}`);
    }
    this.#checkRows(rows);
    const binding = this.shader.bindings.find((one) => one.name === name);
    return Math.max(4, roundUp(this.#dataBytes(tensor, rows), binding.element_bytes));
  }

  /**
   * Put the dispatches into a command encoder, as a compute pass of their own, or into a compute pass of the caller's.
   *
   * `tensors` holds `rows` and a buffer for each tensor: a GPUBuffer, or { buffer, offset, size } as in a
   * GPUBufferBinding. Bind groups are kept for the buffers seen last.
   */
  encode(encoder, tensors = {}) {
    this.#check();
    const inPass = typeof encoder?.dispatchWorkgroups === "function";
    if (!inPass && typeof encoder?.beginComputePass !== "function") {
      this.#fail(`encoder is ${told(encoder)}; expected a GPUCommandEncoder or a GPUComputePassEncoder`);
    }
    const { rows, ...given } = tensors;
    this.#checkRows(rows);
    const bound = this.#bound(given, rows);
    const key = [rows, ...Object.values(bound).flatMap((one) => [this.#id(one.buffer), one.offset])].join();
    const call = this.#calls.get(key) ?? this.#plan.dispatches(bound, rows);
    this.#calls.delete(key);
    this.#calls.set(key, call);
    if (this.#calls.size > CACHED_CALLS) this.#calls.delete(this.#calls.keys().next().value);
    if (inPass) dispatchAll(encoder, call);
    else this.#passOf(encoder, call);
  }

  /**
   * Compute from typed arrays: uploads, runs and reads back. For tests and small apps; `encode` leaves data
   * where it is. float16 and bfloat16 travel as the bits in a Uint16Array, float8 in a Uint8Array.
   */
  async run(arrays) {
    this.#check();
    const inputs = this.tensors.filter((tensor) => tensor.access === "read");
    this.#onlyThese(arrays, inputs);
    const rows = this.#rowsOf(arrays.x);
    for (const tensor of inputs) this.#checkArray(tensor, arrays[tensor.name], rows);
    const scopes = ["validation", "out-of-memory", "internal"];
    for (const scope of scopes) this.#device.pushErrorScope(scope);
    const temporary = [];
    let errors;
    let outputs;
    try {
      outputs = this.#submit(arrays, rows, temporary);
      outputs.catch(() => {});
    } finally {
      errors = Promise.all(scopes.map(() => this.#device.popErrorScope()));
      if (!outputs) temporary.forEach((buffer) => buffer.destroy());
    }
    try {
      const error = (await errors).find(Boolean);
      if (error) this.#fail(error.message);
      return await outputs;
    } catch (error) {
      this.#check();
      throw error;
    } finally {
      temporary.forEach((buffer) => buffer.destroy());
    }
  }

  /** Free the scratch buffers. Work that was submitted is finished; nothing more can be encoded. */
  destroy() {
    this.#destroyed = true;
    this.#calls.clear();
    this.#plan.destroy();
  }

  #fail(what) {
    throw new Error(`${this.op}: ${what}`);
  }

  #check() {
    if (this.#destroyed) this.#fail("was destroyed; create it again");
    if (this.#lost) this.#fail(lossText(this.#lost));
  }

  #onlyThese(given, expected) {
    const names = expected.map((tensor) => tensor.name);
    const strange = Object.keys(given ?? {}).find((name) => !names.includes(name));
    if (strange) this.#fail(`${strange} is none of its tensors; expected ${names.join(", ")}`);
    const missing = names.find((name) => given?.[name] == null);
    if (missing) this.#fail(`${missing} is missing; expected ${names.join(", ")}`);
  }

  #checkRows(rows) {
    if (!Number.isInteger(rows) || rows < 0) this.#fail(`rows is ${rows}; expected an integer of 0 or more`);
  }

  #rowsOf(x) {
    const size = x?.length / this.cols;
    if (!Number.isInteger(size)) {
      this.#fail(`x is ${told(x)}; expected a multiple of ${this.cols} columns`);
    }
    return size;
  }

  #dataBytes(tensor, rows) {
    const sizes = tensor.shape.map((size) => evaluate(size, { rows, cols: this.cols }));
    return sizes.reduce((product, size) => product * size, itemsize(tensor.dtype));
  }

  #checkArray(tensor, array, rows) {
    const bytes = this.#dataBytes(tensor, rows);
    const kind = ARRAYS[tensor.dtype].name;
    // By name: an array may come from another window.
    const own = array?.constructor?.name;
    const fits = own === kind || (tensor.dtype === "float16" && own === "Float16Array");
    if (!fits || array.byteLength !== bytes) {
      const wanted = `${kind} of ${bytes / itemsize(tensor.dtype)}`;
      const what = `${tensor.shape.join(" x ")}, ${tensor.dtype}`;
      this.#fail(`${tensor.name} is ${told(array)}; expected ${wanted} (${what})`);
    }
  }

  #passOf(encoder, call) {
    const pass = encoder.beginComputePass({ label: this.#label });
    dispatchAll(pass, call);
    pass.end();
  }

  #upload(buffer, array) {
    // Writes are of whole words.
    const words = new Uint8Array(roundUp(array.byteLength, 4));
    words.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    this.#device.queue.writeBuffer(buffer, 0, words);
  }

  /** The outputs, as they come back; the buffers go to `temporary`. */
  #submit(arrays, rows, temporary) {
    const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
    const create = (name, size, usage) => {
      const buffer = this.#device.createBuffer({ label: `${this.#label} ${name}`, size, usage });
      temporary.push(buffer);
      return buffer;
    };
    const buffers = {};
    for (const { name } of this.tensors) {
      buffers[name] = create(name, roundUp(this.byteLength(name, rows), 4), STORAGE | COPY_DST | COPY_SRC);
      if (arrays[name]) this.#upload(buffers[name], arrays[name]);
    }
    const encoder = this.#device.createCommandEncoder({ label: this.#label });
    // Not through `encode`: these buffers are never seen again.
    this.#passOf(encoder, this.#plan.dispatches(this.#bound(buffers, rows), rows));
    const copies = this.tensors
      .filter((tensor) => tensor.access === "write")
      .map((tensor) => {
        const { size } = buffers[tensor.name];
        const staging = create(`${tensor.name} staging`, size, COPY_DST | MAP_READ);
        encoder.copyBufferToBuffer(buffers[tensor.name], 0, staging, 0, size);
        return { tensor, staging };
      });
    this.#device.queue.submit([encoder.finish()]);
    const read = async ({ tensor, staging }) => {
      await staging.mapAsync(GPUMapMode.READ);
      const bytes = staging.getMappedRange().slice(0, this.#dataBytes(tensor, rows));
      return [tensor.name, new ARRAYS[tensor.dtype](bytes)];
    };
    return Promise.all(copies.map(read)).then(Object.fromEntries);
  }

  #id(buffer) {
    if (!this.#bufferIds.has(buffer)) this.#bufferIds.set(buffer, ++this.#lastId);
    return this.#bufferIds.get(buffer);
  }

  /** Every tensor's buffer with offset and size, each checked. */
  #bound(given, rows) {
    this.#onlyThese(given, this.tensors);
    const bound = {};
    for (const tensor of this.tensors) {
      const own = this.#checkBuffer(tensor, given[tensor.name], rows);
      const written = (name) => tensor.access === "write" || bound[name].access === "write";
      const other = Object.keys(bound).find((name) => bound[name].buffer === own.buffer && written(name));
      if (other) {
        const both = `${other} and ${tensor.name} lie in one GPUBuffer`;
        this.#fail(`${both}; what is written needs a buffer of its own`);
      }
      bound[tensor.name] = own;
    }
    return bound;
  }

  #checkBuffer(tensor, given, rows) {
    const { name, access } = tensor;
    const { buffer = given, offset = 0 } = given;
    if (typeof buffer?.size !== "number" || typeof buffer.usage !== "number") {
      this.#fail(`${name} is ${told(given)}; expected a GPUBuffer or { buffer, offset, size }`);
    }
    const alignment = this.#device.limits.minStorageBufferOffsetAlignment;
    if (!Number.isInteger(offset) || offset < 0 || offset % alignment) {
      this.#fail(`${name} has the offset ${offset}; expected a multiple of ${alignment}`);
    }
    const { size = buffer.size - offset } = given === buffer ? {} : given;
    const needed = rows === 0 && tensor.shape[0] === "rows" ? 0 : this.byteLength(name, rows);
    const what = `${tensor.shape.join(" x ")} ${tensor.dtype} with rows ${rows}`;
    if (!(size >= needed)) this.#fail(`${name} has ${size} bytes; expected ${needed} (${what})`);
    if (offset + size > buffer.size) {
      this.#fail(`${name} has ${size} bytes from ${offset} on; its buffer ends at ${buffer.size}`);
    }
    if (!(buffer.usage & GPUBufferUsage.STORAGE)) {
      this.#fail(`${name} was created without GPUBufferUsage.STORAGE`);
    }
    // A vector's own bytes: a buffer that holds many tensors may be larger than a binding.
    const bytes = tensor.shape[0] === "rows" ? size : Math.min(size, roundUp(needed, 4));
    return { buffer, offset, size: bytes, access };
  }
}
