// The host side of a package: compiles the shader that fits a device, and runs it on an app's data.
// rows, cols, eps and scale are names of the manifest's format and of the API that apps call.

import { keptFor } from "./runtime/calls.js";
import { choose, named, traitsOf } from "./runtime/choice.js";
import { checkedOptions, checkNumber, checkObject, COUNT, isCount, isObject, shown, unexpected } from "./runtime/options.js";
import { ARRAYS, evaluate, itemsize, Plan, roundUp } from "./runtime/passes.js";
import { foreignBufferAmong } from "./runtime/foreign.js";
import { finished } from "./runtime/wait.js";

export { choose, descriptorFor, refusal, traitsOf } from "./runtime/choice.js";
export { DAWN_DRIVERS, deviceFor, FIREFOX_SETTINGS, LINUX_FLAGS, WEBGPU_SINCE, whyNoAdapter, whyNoGpu } from "./runtime/device.js";
export { ARRAYS, evaluate, itemsize } from "./runtime/passes.js";
export { finished } from "./runtime/wait.js";

/**
 * Compile the first shader that fits the device.
 *
 * Options: `cols` (required if the package has several), `eps` and `scale` in place of the package's values,
 * `shader` to select one by name, `adapterInfo` where the device has none, and `label`. An option that is undefined
 * counts as absent. null and every other value of a wrong type is refused.
 * Rejects with an Error of one line: no shader fits, a compile error, or a lost device.
 */
export async function createNorm(device, manifest, texts, options) {
  const { op } = manifest;
  if (typeof device?.createShaderModule !== "function") throw unexpected(op, "device", device, "a GPUDevice");
  const { cols, numbers, shader: wanted, adapterInfo, label: own } = given(manifest, options);
  const traits = traitsOf(device, adapterInfo);
  const chosen = wanted === undefined ? choose(manifest, traits, cols) : named(manifest, traits, cols, wanted);
  const label = own ?? `webnorm ${op} ${chosen.shader.name}`;
  const pipelines = await compile(device, chosen.shader, texts[chosen.shader.name], label);
  // A lost device still creates pipelines without an error.
  const lost = await Promise.race([device.lost, null]);
  if (lost) throw new Error(`${op}: ${lossText(lost)}`);
  const { shader, reason } = chosen;
  const mostIterations = traits.software ? manifest.software_iterations : Infinity;
  const wholes = Object.keys(numbers).filter((name) => manifest.numbers[name]?.whole);
  const plan = new Plan({ op, device, shader, pipelines, cols, numbers, label, mostIterations, wholes });
  const { tensors, batch = "rows" } = manifest;
  return new Norm({ op, cols, tensors, shader, reason }, device, plan, label, batch, Object.keys(manifest.numbers));
}

/** Return the checked options of createNorm; missing numbers come from the manifest. */
function given({ op, cols: all, axis = "cols", problem, numbers: rules }, options) {
  // A problem whose only size is the batch has one shader for every size.
  const sized = axis ? [axis] : [];
  const names = [...sized, ...Object.keys(rules), "shader", "adapterInfo", "label"];
  const found = checkedOptions(op, options, names);
  const cols = (axis ? found[axis] : undefined) ?? (all.length === 1 ? all[0] : undefined);
  if (found[axis] === null || !all.includes(cols)) {
    throw new Error(`${op}: ${axis} is ${shown(found[axis])}; this export has ${all.join(", ")}`);
  }
  // Numbers that callers cannot choose also have a word of the uniform.
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

function foreignText(name) {
  return `${name} belongs to another GPUDevice, or is invalid; create the norm on the device that made it`;
}

async function compile(device, shader, code, label) {
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ label, code });
  const [{ type, words }] = shader.bindings;
  const immediateSize = type === "immediate" ? 4 * words.length : 0;
  const made = shader.passes.map((pass) => {
    const entries = pass.bindings.map((binding) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: shader.bindings[binding].type },
    }));
    const layout = device.createBindGroupLayout({ label, entries });
    const descriptor = {
      label: `${label} ${pass.entry_point}`,
      layout: device.createPipelineLayout({ label, bindGroupLayouts: [layout], immediateSize }),
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
  for (const { pipeline, group, params, grid } of call) {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    // Immediates are an array; a uniform is a part of the group.
    if (ArrayBuffer.isView(params)) pass.setImmediates(0, params);
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
  #foreign = new WeakSet();
  // The name of the size that each call chooses; empty if the op has no batch.
  #batch;
  // The names of the numbers that createNorm takes.
  #numbers;

  constructor(facts, device, plan, label, batch, numbers) {
    Object.assign(this, facts);
    this.#device = device;
    this.#plan = plan;
    this.#label = label;
    this.#batch = batch;
    this.#numbers = numbers;
    device.lost.then((info) => {
      this.#lost = info;
    });
  }

  /** Return the bytes that the buffer of a tensor needs for a number of rows. */
  byteLength(name, rows) {
    const tensor = this.tensors.find((one) => one.name === name);
    if (!tensor) {
      this.#fail(`${shown(name)} is not a tensor; expected ${this.tensors.map((one) => one.name).join(", ")}`);
    }
    if (this.#batch) this.#checkRows(rows);
    const binding = this.shader.bindings.find((one) => one.name === name);
    return Math.max(4, roundUp(this.#dataBytes(tensor, rows), binding.element_bytes));
  }

  /**
   * Encode the dispatches into a command encoder, as a compute pass, or into a compute pass of the caller.
   *
   * `tensors` holds `rows` and a buffer for each tensor: a GPUBuffer, or { buffer, offset, size } as in a
   * GPUBufferBinding. Checks and bind groups are made once for each combination of buffers, places and rows.
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
    const call = kept.get(key) ?? this.#newCall(places, rows, kept, key);
    if (inPass) dispatchAll(encoder, call);
    else this.#passOf(encoder, call);
  }

  /**
   * Compute from typed arrays: upload, run and read back. This is for tests and small apps; `encode` copies nothing.
   * float16 and bfloat16 are passed as their bits in a Uint16Array, float8 in a Uint8Array.
   */
  async run(arrays) {
    this.#check();
    const inputs = this.tensors.filter((tensor) => tensor.access === "read");
    checkObject(this.op, "arrays", arrays, inputs.map(({ name }) => name).join(", "));
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

  /** Free the scratch buffers. Submitted work still finishes; `run` and `encode` throw. */
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
    const listed = names.join(", ");
    const unknown = Object.keys(given).find((name) => !names.includes(name));
    if (this.#numbers.includes(unknown)) this.#fail(`${unknown} is not a tensor; set it when you create the norm`);
    if (unknown !== undefined) this.#fail(`${shown(unknown)} is not a tensor here; expected ${listed}`);
    const missing = names.find((name) => given[name] == null);
    if (missing) this.#fail(`${missing} is missing; expected ${listed}`);
  }

  #checkRows(rows) {
    if (!isCount(rows)) throw unexpected(this.op, this.#batch || "rows", rows, COUNT);
  }

  /** Return the size of the batch, from the first input with a batch. */
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
    // Compare names, not classes: an array may come from another window.
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
    // Both become part of a key, in which a string or a BigInt would look like the number.
    const alignment = this.#device.limits.minStorageBufferOffsetAlignment;
    if (!isCount(offset) || offset % alignment) {
      this.#fail(`the offset of ${name} is ${shown(offset)}; expected a multiple of ${alignment}`);
    }
    if (offset > buffer.size) {
      this.#fail(`the offset of ${name} is ${offset}; expected at most ${buffer.size}, where its buffer ends`);
    }
    if (size === undefined) return { buffer, offset, size: buffer.size - offset };
    if (!isCount(size)) throw unexpected(this.op, `the size of ${name}`, size, COUNT);
    return { buffer, offset, size };
  }

  /** Return the checked place of every tensor, by name. */
  #bound(places, rows) {
    const bound = {};
    this.tensors.forEach((tensor, at) => {
      const { name, access } = tensor;
      const place = this.#checked(tensor, places[at], rows);
      const written = (one) => access === "write" || bound[one].access === "write";
      const other = Object.keys(bound).find((one) => bound[one].buffer === place.buffer && written(one));
      if (other) {
        this.#fail(`${other} and ${name} share one GPUBuffer; an output needs a buffer of its own`);
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
      this.#fail(`${name} has ${size} bytes at offset ${offset}, but its buffer ends at ${buffer.size}`);
    }
    if (!(buffer.usage & GPUBufferUsage.STORAGE)) {
      this.#fail(`the buffer of ${name} lacks GPUBufferUsage.STORAGE; create it with this usage`);
    }
    if (buffer.mapState === "mapped") this.#fail(`the buffer of ${name} is mapped; call unmap() first`);
    if (this.#foreign.has(buffer)) this.#fail(foreignText(name));
    // Bind only the tensor's bytes: a buffer of many tensors may be larger than a binding can be.
    return { buffer, offset, size: shape[0] === "rows" ? size : Math.min(size, roundUp(needed, 4)) };
  }

  /** Make the dispatches of a new call and keep them. A buffer of another device is reported later by `#refused`. */
  #newCall(places, rows, kept, key) {
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
      // Every later call reports a lost device.
      asked.catch(() => {});
    }
  }

  /** Report an encoded call that the device refused, like the device's own errors, and forget it. */
  async #refused({ message }, bound, kept, key) {
    kept.delete(key);
    const name = await foreignBufferAmong(this.#device, bound);
    if (!name) return this.#report(message.split("\n", 1));
    const { buffer } = bound[name];
    if (!this.#foreign.has(buffer)) this.#report(foreignText(name));
    this.#foreign.add(buffer);
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
    // writeBuffer takes whole words.
    const words = new Uint8Array(roundUp(array.byteLength, 4));
    words.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    this.#device.queue.writeBuffer(buffer, 0, words);
  }

  /** Submit a call and return a promise of its outputs; new buffers are added to `temporary`. */
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
    // `encode` would keep bind groups for these buffers, which are used only once.
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
      await finished(this.#device, staging.mapAsync(GPUMapMode.READ));
      const bytes = staging.getMappedRange().slice(0, this.#dataBytes(tensor, rows));
      return [tensor.name, new ARRAYS[tensor.dtype](bytes)];
    };
    return Promise.all(copies.map(read)).then(Object.fromEntries);
  }
}
