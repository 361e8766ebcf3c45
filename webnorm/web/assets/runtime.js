// The host's side of an export: compiles the shader that fits a device, and runs it on an app's data.
// rows, cols, eps and scale: names of the manifest's format, and of the interface that apps call.

import { keptFor } from "./runtime/calls.js";
import { choose, named, traitsOf } from "./runtime/choice.js";
import { checkedOptions, checkNumber, COUNT, isCount, isObject, shown, unexpected } from "./runtime/options.js";
import { ARRAYS, evaluate, itemsize, Plan, roundUp } from "./runtime/passes.js";
import { strangerAmong } from "./runtime/strangers.js";

export { choose, descriptorFor, refusal, traitsOf } from "./runtime/choice.js";
export { deviceFor, LINUX_FLAGS, WEBGPU_SINCE, whyNoAdapter, whyNoGpu } from "./runtime/device.js";
export { ARRAYS, evaluate, itemsize } from "./runtime/passes.js";

/**
 * Compile the shader that fits the device.
 *
 * Options: `cols` (needed where the export carries several), `eps` and `scale` in place of the export's own,
 * `shader` to name one in place of choosing, `adapterInfo` where the device has none, `label`. One that is
 * undefined is not given; null is refused, as every other value that is not of its kind.
 * Rejects with an Error that says what is wrong: no shader fits, a compiler's complaint, a lost device.
 */
export async function createNorm(device, manifest, texts, options) {
  const { op } = manifest;
  if (typeof device?.createShaderModule !== "function") throw unexpected(op, "device", device, "a GPUDevice");
  const { cols, numbers, shader: wanted, adapterInfo, label: own } = given(manifest, options);
  const traits = traitsOf(device, adapterInfo);
  const chosen = wanted === undefined ? choose(manifest, traits, cols) : named(manifest, traits, cols, wanted);
  const label = own ?? `webnorm ${op} ${chosen.shader.name}`;
  const pipelines = await compile(device, chosen.shader, texts[chosen.shader.name], label);
  // A lost device makes pipelines all the same.
  const lost = await Promise.race([device.lost, null]);
  if (lost) throw new Error(`${op}: ${lossText(lost)}`);
  const { shader, reason } = chosen;
  const mostIterations = traits.software ? manifest.software_iterations : Infinity;
  const wholes = Object.keys(numbers).filter((name) => manifest.numbers[name]?.whole);
  const plan = new Plan({ op, device, shader, pipelines, cols, numbers, label, mostIterations, wholes });
  const { tensors, batch = "rows" } = manifest;
  return new Norm({ op, cols, tensors, shader, reason }, device, plan, label, batch);
}

/** The options of createNorm, each checked; numbers that are not given are the export's own. */
function given({ op, cols: all, axis = "cols", problem, numbers: rules }, options) {
  // A problem that has nothing but a batch has one shader, whatever its size.
  const sized = axis ? [axis] : [];
  const names = [...sized, ...Object.keys(rules), "shader", "adapterInfo", "label"];
  const found = checkedOptions(op, options, names);
  const cols = (axis ? found[axis] : undefined) ?? (all.length === 1 ? all[0] : undefined);
  if (found[axis] === null || !all.includes(cols)) {
    throw new Error(`${op}: ${axis} is ${shown(found[axis])}; this export has ${all.join(", ")}`);
  }
  // Numbers that callers cannot choose have a word of the uniform, too.
  const numbers = Object.fromEntries(Object.entries(problem).filter(([, value]) => typeof value === "number"));
  for (const [name, rule] of Object.entries(rules)) {
    if (found[name] !== undefined) numbers[name] = found[name];
    checkNumber(op, name, numbers[name], rule);
  }
  const { adapterInfo: info = {}, label = "" } = found;
  if (!isObject(info)) throw unexpected(op, "adapterInfo", info, "a GPUAdapterInfo");
  if (typeof label !== "string") throw unexpected(op, "label", label, "a string");
  return { ...found, cols, numbers };
}

function lossText({ message, reason }) {
  return `the device was lost (${message || reason}); create it again on a new device`;
}

function strangerText(name) {
  return `${name} belongs to another GPUDevice, or is invalid; create the norm on the device that made it`;
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
  #calls = new WeakMap();
  #strangers = new WeakSet();
  // The name of the size that calls may choose; empty where there is none.
  #batch;

  constructor(facts, device, plan, label, batch) {
    Object.assign(this, facts);
    this.#device = device;
    this.#plan = plan;
    this.#label = label;
    this.#batch = batch;
    device.lost.then((info) => {
      this.#lost = info;
    });
  }

  /** Bytes that the buffer of a tensor has to have for so many rows. */
  byteLength(name, rows) {
    const tensor = this.tensors.find((one) => one.name === name);
    if (!tensor) {
      this.#fail(`has no tensor ${shown(name)}; there is ${this.tensors.map((one) => one.name).join(", ")}`);
    }
    if (this.#batch) this.#checkRows(rows);
    const binding = this.shader.bindings.find((one) => one.name === name);
    return Math.max(4, roundUp(this.#dataBytes(tensor, rows), binding.element_bytes));
  }

  /**
   * Put the dispatches into a command encoder, as a compute pass of their own, or into a compute pass of the caller's.
   *
   * `tensors` holds `rows` and a buffer for each tensor: a GPUBuffer, or { buffer, offset, size } as in a
   * GPUBufferBinding. What a call takes is made and checked once for its buffers, places and rows.
   */
  encode(encoder, tensors) {
    this.#check();
    const inPass = typeof encoder?.dispatchWorkgroups === "function";
    if (!inPass && typeof encoder?.beginComputePass !== "function") {
      throw unexpected(this.op, "encoder", encoder, "a GPUCommandEncoder or a GPUComputePassEncoder");
    }
    const { [this.#batch || "rows"]: rows = this.#batch ? undefined : 1, ...given } = tensors ?? {};
    this.#checkRows(rows);
    this.#onlyThese(given, this.tensors);
    const places = this.tensors.map(({ name }) => this.#placeOf(name, given[name]));
    const kept = keptFor(
      this.#calls,
      places.map(({ buffer }) => buffer),
    );
    const key = [rows, ...places.flatMap(({ offset, size }) => [offset, size])].join();
    const call = kept.get(key) ?? this.#first(places, rows, kept, key);
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
    const rows = this.#rowsOf(arrays, inputs);
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
    this.#calls = new WeakMap();
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
    if (strange !== undefined) this.#fail(`${strange} is none of its tensors; expected ${names.join(", ")}`);
    const missing = names.find((name) => given?.[name] == null);
    if (missing) this.#fail(`${missing} is missing; expected ${names.join(", ")}`);
  }

  #checkRows(rows) {
    if (!isCount(rows)) throw unexpected(this.op, this.#batch || "rows", rows, COUNT);
  }

  /** How many elements the batch has, by the first array that has it. */
  #rowsOf(arrays, inputs) {
    const main = inputs.find(({ shape }) => shape[0] === "rows");
    if (!main) return 1;
    const inner = this.#dataBytes({ ...main, shape: main.shape.slice(1) }, 0) / itemsize(main.dtype);
    const array = arrays[main.name];
    const size = typeof array.length === "number" ? array.length / inner : NaN;
    const wanted = main.shape[1] === "cols" ? `${inner} columns` : inner;
    if (!Number.isInteger(size)) throw unexpected(this.op, main.name, array, `a multiple of ${wanted}`);
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
    const own = ArrayBuffer.isView(array) && array[Symbol.toStringTag];
    const fits = own === kind || (tensor.dtype === "float16" && own === "Float16Array");
    if (!fits || array.byteLength !== bytes) {
      const wanted = `${kind} of ${bytes / itemsize(tensor.dtype)}`;
      const what = `${tensor.shape.join(" x ")}, ${tensor.dtype}`;
      throw unexpected(this.op, tensor.name, array, `${wanted} (${what})`);
    }
  }

  #placeOf(name, given) {
    const { buffer = given, offset = 0, size } = given;
    if (typeof buffer?.size !== "number" || typeof buffer.usage !== "number") {
      throw unexpected(this.op, name, given, "a GPUBuffer or { buffer, offset, size }");
    }
    // A key is made of both: a string or a BigInt would find what is kept for the number.
    const alignment = this.#device.limits.minStorageBufferOffsetAlignment;
    if (!isCount(offset) || offset % alignment) {
      this.#fail(`${name} has the offset ${shown(offset)}; expected a multiple of ${alignment}`);
    }
    if (offset > buffer.size) {
      this.#fail(`${name} has the offset ${offset}; expected ${buffer.size} at most, where its buffer ends`);
    }
    if (size === undefined) return { buffer, offset, size: buffer.size - offset };
    if (!isCount(size)) throw unexpected(this.op, `the size of ${name}`, size, COUNT);
    return { buffer, offset, size };
  }

  /** Every tensor's place by name, each checked. */
  #bound(places, rows) {
    const bound = {};
    this.tensors.forEach((tensor, at) => {
      const { name, access } = tensor;
      const place = this.#checked(tensor, places[at], rows);
      const written = (one) => access === "write" || bound[one].access === "write";
      const other = Object.keys(bound).find((one) => bound[one].buffer === place.buffer && written(one));
      if (other) {
        const both = `${other} and ${name} lie in one GPUBuffer`;
        this.#fail(`${both}; what is written needs a buffer of its own`);
      }
      bound[name] = { ...place, access };
    });
    return bound;
  }

  #checked({ name, shape, dtype }, { buffer, offset, size }, rows) {
    const needed = rows === 0 && shape[0] === "rows" ? 0 : this.byteLength(name, rows);
    const what = `${shape.join(" x ")} ${dtype} with ${this.#batch || "rows"} ${rows}`;
    if (!(size >= needed)) this.#fail(`${name} has ${size} bytes; expected ${needed} (${what})`);
    if (offset + size > buffer.size) {
      this.#fail(`${name} has ${size} bytes from ${offset} on; its buffer ends at ${buffer.size}`);
    }
    if (!(buffer.usage & GPUBufferUsage.STORAGE)) {
      this.#fail(`${name} was created without GPUBufferUsage.STORAGE`);
    }
    if (buffer.mapState === "mapped") this.#fail(`${name} is mapped; expected unmap() before it is bound`);
    if (this.#strangers.has(buffer)) this.#fail(strangerText(name));
    // A vector's own bytes: a buffer that holds many tensors may be larger than a binding.
    return { buffer, offset, size: shape[0] === "rows" ? size : Math.min(size, roundUp(needed, 4)) };
  }

  /** A call that is not kept. Whether the buffers are the device's own it tells later: see `#refused`. */
  #first(places, rows, kept, key) {
    const bound = this.#bound(places, rows);
    this.#device.pushErrorScope("validation");
    try {
      const call = this.#plan.dispatches(bound, rows);
      kept.set(key, call);
      return call;
    } finally {
      const asked = this.#device
        .popErrorScope()
        .then((error) => error && this.#refused(error, bound, kept, key));
      // Of a lost device every call tells.
      asked.catch(() => {});
    }
  }

  /** The device did not take a call that is encoded: it is told as the device's own errors are, and not kept. */
  async #refused({ message }, bound, kept, key) {
    kept.delete(key);
    const name = await strangerAmong(this.#device, bound);
    if (!name) return this.#report(message.split("\n", 1));
    const { buffer } = bound[name];
    if (!this.#strangers.has(buffer)) this.#report(strangerText(name));
    this.#strangers.add(buffer);
  }

  #report(what) {
    const message = `${this.op}: ${what}`;
    const event = new Event("uncapturederror", { cancelable: true });
    event.error = new GPUValidationError(message);
    if (this.#device.dispatchEvent(event)) console.error(message);
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
    const bound = {};
    for (const { name } of this.tensors) {
      const size = roundUp(this.byteLength(name, rows), 4);
      const buffer = create(name, size, STORAGE | COPY_DST | COPY_SRC);
      if (arrays[name]) this.#upload(buffer, arrays[name]);
      bound[name] = { buffer, offset: 0, size };
    }
    const encoder = this.#device.createCommandEncoder({ label: this.#label });
    // Not through `encode`: these buffers are never seen again.
    this.#passOf(encoder, this.#plan.dispatches(bound, rows));
    const copies = this.tensors
      .filter((tensor) => tensor.access === "write")
      .map((tensor) => {
        const { buffer, size } = bound[tensor.name];
        const staging = create(`${tensor.name} staging`, size, COPY_DST | MAP_READ);
        encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
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
}
