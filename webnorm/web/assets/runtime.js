// The host's side of an export: which shader fits a device, how rows are cut, what is bound where.
// Everything that depends on the op, the kernel or the problem is data in the manifest.

const OPERATORS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "//": (a, b) => Math.floor(a / b),
  "%": (a, b) => a - b * Math.floor(a / b),
  "==": (a, b) => Number(a === b),
  "!=": (a, b) => Number(a !== b),
  "<": (a, b) => Number(a < b),
  "<=": (a, b) => Number(a <= b),
  ">": (a, b) => Number(a > b),
  ">=": (a, b) => Number(a >= b),
  min: Math.min,
  max: Math.max,
  ceil_div: (a, b) => Math.ceil(a / b),
};

/** The value of an expression of the manifest: an integer, a name, or [operator, ...operands]. */
export function evaluate(tree, names) {
  if (typeof tree === "number") return tree;
  if (typeof tree === "string") {
    if (!Object.hasOwn(names, tree)) throw new Error(`unknown name ${tree} in an expression of the manifest`);
    return names[tree];
  }
  const [operator, ...operands] = tree;
  const value = (at) => evaluate(operands[at], names);
  if (operator === "if") return value(value(0) ? 1 : 2);
  if (operator === "and") return value(0) && value(1);
  if (operator === "or") return value(0) || value(1);
  return OPERATORS[operator](...operands.map((operand) => evaluate(operand, names)));
}

// SwiftShader is Chrome's own; llvmpipe is Mesa's; Basic Render is Windows'.
const SOFTWARE = /swiftshader|llvmpipe|basic render/i;

/** What of a device decides which shader it gets. `info` is its GPUAdapterInfo, where that is known. */
export function traitsOf(device, info = device.adapterInfo) {
  const words = ["vendor", "architecture", "device", "description"].map((key) => info?.[key]);
  const name = words.filter(Boolean).join(" ");
  return {
    features: device.features,
    limits: device.limits,
    // Only a page knows them; other hosts are taken to be recent.
    languageFeatures: globalThis.navigator?.gpu?.wgslLanguageFeatures,
    software: Boolean(info?.isFallbackAdapter) || SOFTWARE.test(name),
    name,
  };
}

/** Why a shader cannot run on a device; null when it can. */
export function refusal(shader, traits) {
  const missing = shader.features.find((feature) => !traits.features.has(feature));
  if (missing) return `needs the feature ${missing}, which the device was created without`;
  const unknown = shader.language_features.find((feature) => traits.languageFeatures?.has(feature) === false);
  if (unknown) return `needs WGSL's ${unknown}, which this browser lacks`;
  const small = Object.keys(shader.limits).find((limit) => shader.limits[limit] > traits.limits[limit]);
  if (small) return `needs ${small} ${shader.limits[small]}; the device has ${traits.limits[small]}`;
  return null;
}

/** The first of the manifest's shaders for so many columns that fits, why, and why not those before it. */
export function choose(manifest, traits, cols) {
  const candidates = manifest.shaders.filter((shader) => shader.cols === cols);
  const because = ({ shader, why }) => `${shader.name} ${why}`;
  const refused = [];
  for (const shader of candidates) {
    const why = shader.software && !traits.software ? "is for software adapters" : refusal(shader, traits);
    if (why === null) {
      const needs = [...shader.features, ...(shader.software ? ["a software adapter"] : [])];
      const fits = `${shader.name} is the first that fits` + (needs.length ? ` (${needs.join(", ")})` : "");
      return { shader, refused, reason: [fits, ...refused.map(because)].join("; ") };
    }
    refused.push({ shader, why });
  }
  const reasons = refused.map(because).join("; ");
  throw new Error(`${manifest.op}: no shader for ${cols} columns fits this device: ${reasons}`);
}

// What every device has without asking (WebGPU, "Limits"), of the limits that shaders name.
const DEFAULT_LIMITS = {
  maxComputeInvocationsPerWorkgroup: 256,
  maxComputeWorkgroupSizeX: 256,
  maxComputeWorkgroupStorageSize: 16384,
  maxStorageBuffersPerShaderStage: 8,
};

/**
 * A descriptor that asks for what the shaders can use and the adapter has. Buffers may be as large as the
 * adapter allows, which saves splitting rows.
 */
export function descriptorFor(manifest, adapter) {
  if (!adapter) throw new Error(`${manifest.op}: there is no adapter; requestAdapter() gave ${adapter}`);
  const has = (shader) =>
    shader.features.every((feature) => adapter.features.has(feature)) &&
    Object.entries(shader.limits).every(([limit, value]) => value <= adapter.limits[limit]);
  const fitting = manifest.shaders.filter(has);
  const requiredLimits = {
    maxBufferSize: adapter.limits.maxBufferSize,
    maxStorageBufferBindingSize: adapter.limits.maxStorageBufferBindingSize,
  };
  for (const { limits } of fitting) {
    for (const [limit, value] of Object.entries(limits)) {
      if (value > DEFAULT_LIMITS[limit]) requiredLimits[limit] = Math.max(value, requiredLimits[limit] ?? 0);
    }
  }
  return { requiredFeatures: [...new Set(fitting.flatMap((shader) => shader.features))], requiredLimits };
}

const ARRAYS = {
  float32: Float32Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int8: Int8Array,
  float8_e4m3fn: Uint8Array,
  float8_e5m2: Uint8Array,
};
const OPTIONS = ["cols", "eps", "scale", "shader", "adapterInfo", "label"];
const told = (value) =>
  typeof value?.length === "number" && typeof value === "object"
    ? `${value.constructor.name} of ${value.length}`
    : String(value).slice(0, 40);
const itemsize = (dtype) => ARRAYS[dtype].BYTES_PER_ELEMENT;
const roundUp = (size, multiple) => Math.ceil(size / multiple) * multiple;

// Whole vec4<f32>, the largest element that a shader's arrays have.
const ACCESS_BYTES = 16;
// Mesa's llvmpipe ends an invocation's loops after so many iterations, without an error.
const SOFTWARE_ITERATIONS = 65535;
// Slices begin on multiples of so many rows: rows of float16 that share words stay together.
const ROWS_TOGETHER = 4;
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
  options ??= {};
  const strange = Object.keys(options).find((name) => !OPTIONS.includes(name));
  if (strange) throw new Error(`${op}: ${strange} is no option; expected ${OPTIONS.join(", ")}`);
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
  return new Norm(device, manifest, chosen, traits, pipelines, { eps, scale, cols, label });
}

function lossText({ message, reason }) {
  return `the device was lost (${message || reason}); create it again on a new device`;
}

function named(manifest, traits, cols, name) {
  const shader = manifest.shaders.find((one) => one.name === name && one.cols === cols);
  if (!shader) {
    const names = manifest.shaders.filter((one) => one.cols === cols).map((one) => one.name);
    throw new Error(`${manifest.op}: shader is ${name}; for ${cols} columns there is ${names.join(", ")}`);
  }
  const why = refusal(shader, traits);
  if (why !== null) throw new Error(`${manifest.op}: ${name} ${why}`);
  return { shader, reason: `${name} was asked for` };
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
  #traits;
  #pipelines;
  #problem;
  #lost = null;
  #destroyed = false;
  #bufferIds = new WeakMap();
  #lastId = 0;
  #calls = new Map();
  #scratch = new Map();
  #owned = new Set();

  constructor(device, manifest, { shader, reason }, traits, pipelines, problem) {
    this.#device = device;
    this.#traits = traits;
    this.#pipelines = pipelines;
    this.#problem = problem;
    this.op = manifest.op;
    this.cols = problem.cols;
    this.tensors = manifest.tensors;
    this.shader = shader;
    this.reason = reason;
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
   * Put the dispatches into a compute pass of the caller's.
   *
   * `tensors` holds `rows` and a buffer for each tensor: a GPUBuffer, or { buffer, offset, size } as in a
   * GPUBufferBinding. Bind groups are kept for the buffers seen last.
   */
  encode(pass, tensors = {}) {
    this.#check();
    if (typeof pass?.dispatchWorkgroups !== "function") {
      this.#fail(`pass is ${pass}; expected a GPUComputePassEncoder`);
    }
    const { rows, ...given } = tensors;
    this.#checkRows(rows);
    const bound = this.#bound(given, rows);
    const key = [rows, ...Object.values(bound).flatMap((one) => [this.#id(one.buffer), one.offset])].join();
    const call = this.#calls.get(key) ?? this.#prepare(bound, rows);
    this.#calls.delete(key);
    this.#calls.set(key, call);
    if (this.#calls.size > CACHED_CALLS) this.#calls.delete(this.#calls.keys().next().value);
    dispatchAll(pass, call);
  }

  /**
   * Compute from typed arrays: uploads, runs and reads back. For tests and small apps; `encode` leaves data
   * where it is. float16 and bfloat16 travel as the bits in a Uint16Array, float8 in a Uint8Array.
   */
  async run(arrays) {
    this.#check();
    const device = this.#device;
    const inputs = this.tensors.filter((tensor) => tensor.access === "read");
    const outputs = this.tensors.filter((tensor) => tensor.access === "write");
    this.#onlyThese(arrays, inputs);
    const rows = this.#rowsOf(arrays.x);
    for (const tensor of inputs) this.#checkArray(tensor, arrays[tensor.name], rows);
    const scopes = ["validation", "out-of-memory", "internal"];
    for (const scope of scopes) device.pushErrorScope(scope);
    const temporary = [];
    const create = (name, size, usage) => {
      const buffer = device.createBuffer({ label: `${this.#problem.label} ${name}`, size, usage });
      temporary.push(buffer);
      return buffer;
    };
    let errors;
    let mapped;
    const staging = {};
    try {
      const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
      const buffers = {};
      for (const { name } of [...inputs, ...outputs]) {
        buffers[name] = create(name, roundUp(this.byteLength(name, rows), 4), STORAGE | COPY_DST | COPY_SRC);
      }
      for (const { name } of inputs) this.#upload(buffers[name], arrays[name]);
      const encoder = device.createCommandEncoder({ label: this.#problem.label });
      const pass = encoder.beginComputePass({ label: this.#problem.label });
      // Not through `encode`: these buffers are never seen again.
      dispatchAll(pass, this.#prepare(this.#bound(buffers, rows), rows));
      pass.end();
      for (const { name } of outputs) {
        const { size } = buffers[name];
        staging[name] = create(`${name} staging`, size, COPY_DST | MAP_READ);
        encoder.copyBufferToBuffer(buffers[name], 0, staging[name], 0, size);
      }
      device.queue.submit([encoder.finish()]);
      mapped = Promise.all(Object.values(staging).map((buffer) => buffer.mapAsync(GPUMapMode.READ)));
      mapped.catch(() => {});
    } finally {
      errors = Promise.all(scopes.map(() => device.popErrorScope()));
      if (!mapped) temporary.forEach((buffer) => buffer.destroy());
    }
    try {
      const error = (await errors).find(Boolean);
      if (error) this.#fail(error.message);
      await mapped;
      const read = (tensor) => {
        const bytes = this.#dataBytes(tensor, rows);
        return new ARRAYS[tensor.dtype](staging[tensor.name].getMappedRange().slice(0, bytes));
      };
      return Object.fromEntries(outputs.map((tensor) => [tensor.name, read(tensor)]));
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
    for (const buffer of this.#owned) buffer.destroy();
    this.#owned.clear();
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

  #upload(buffer, array) {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    const whole = bytes.length - (bytes.length % 4);
    this.#device.queue.writeBuffer(buffer, 0, bytes, 0, whole);
    if (whole < bytes.length) {
      // Writes are of whole words.
      const word = new Uint8Array(4);
      word.set(bytes.subarray(whole));
      this.#device.queue.writeBuffer(buffer, whole, word);
    }
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
      const { name } = tensor;
      const { buffer = given[name], offset = 0 } = given[name];
      if (typeof buffer?.size !== "number" || typeof buffer.usage !== "number") {
        this.#fail(`${name} is ${told(given[name])}; expected a GPUBuffer or { buffer, offset, size }`);
      }
      const alignment = this.#device.limits.minStorageBufferOffsetAlignment;
      if (!Number.isInteger(offset) || offset < 0 || offset % alignment) {
        this.#fail(`${name} has the offset ${offset}; expected a multiple of ${alignment}`);
      }
      const { size = buffer.size - offset } = given[name] === buffer ? {} : given[name];
      const needed = rows === 0 && tensor.shape[0] === "rows" ? 0 : this.byteLength(name, rows);
      const what = `${tensor.shape.join(" x ")} ${tensor.dtype} with rows ${rows}`;
      if (!(size >= needed)) this.#fail(`${name} has ${size} bytes; expected ${needed} (${what})`);
      if (offset + size > buffer.size) {
        this.#fail(`${name} has ${size} bytes from ${offset} on; its buffer ends at ${buffer.size}`);
      }
      if (!(buffer.usage & GPUBufferUsage.STORAGE)) {
        this.#fail(`${name} was created without GPUBufferUsage.STORAGE`);
      }
      const other = Object.keys(bound).find(
        (one) => bound[one].buffer === buffer && (tensor.access === "write" || bound[one].access === "write"),
      );
      if (other) {
        this.#fail(`${other} and ${name} lie in one GPUBuffer; what is written needs a buffer of its own`);
      }
      // A vector's own bytes: a buffer that holds many tensors may be larger than a binding.
      const own = tensor.shape[0] === "rows" ? size : Math.min(size, roundUp(needed, 4));
      bound[name] = { buffer, offset, size: own, access: tensor.access };
    }
    return bound;
  }

  /** The dispatches of a call: pipelines, bind groups and workgroup counts. */
  #prepare(bound, rows) {
    const slices = this.#slices(rows);
    const most = Math.max(0, ...slices.map((slice) => slice.rows));
    const buffers = { ...bound, ...this.#scratchFor(rows, most) };
    const words = this.#uniforms([...slices, { first: 0, rows }], most);
    const dispatch = ({ pass, layout, pipeline }, slice, at) => {
      const resource = (binding) =>
        binding === 0 ? words[at] : this.#window(this.shader.bindings[binding], buffers, slice);
      const entries = pass.bindings.map((binding) => ({ binding, resource: resource(binding) }));
      return {
        pipeline,
        group: this.#device.createBindGroup({ label: this.#problem.label, layout, entries }),
        grid: this.#grid(this.#workgroups(pass, slice ? most : rows)),
      };
    };
    return this.#pipelines.flatMap((one) =>
      one.pass.per === "rows"
        ? slices.map((slice, at) => dispatch(one, slice, at))
        : [dispatch(one, null, slices.length)],
    );
  }

  #workgroups(pass, rows) {
    return evaluate(pass.workgroup_count, { rows });
  }

  #grid(count) {
    const y = Math.ceil(count / this.#device.limits.maxComputeWorkgroupsPerDimension);
    return [Math.ceil(count / Math.max(y, 1)), y];
  }

  /** Rows cut so that each slice fits the bindings and a dispatch. */
  #slices(rows) {
    const { limits } = this.#device;
    const { maxStorageBufferBindingSize: limit, maxComputeWorkgroupsPerDimension: dimension } = limits;
    let most = rows;
    for (const binding of this.shader.bindings.filter((one) => one.per_row)) {
      const rowBytes = this.#rowBytes(binding);
      // A slice begins up to alignment - 1 bytes into its binding and ends with a whole access.
      if (roundUp(rows * rowBytes, ACCESS_BYTES) > limit) {
        most = Math.min(most, Math.floor((limit - this.#alignment() - ACCESS_BYTES) / rowBytes));
      }
      if (rows > 0 && most < 1) {
        this.#fail(`a row of ${binding.name} takes ${rowBytes} bytes; this device binds ${limit} at most`);
      }
    }
    for (const pass of this.shader.passes) {
      const tooMany = () =>
        this.#workgroups(pass, most) > dimension * dimension ||
        (this.#traits.software && evaluate(pass.iterations ?? 0, { rows: most }) > SOFTWARE_ITERATIONS);
      while (most > 1 && tooMany()) most >>= 1;
    }
    const together = most >= ROWS_TOGETHER && most < rows ? ROWS_TOGETHER : 1;
    const units = Math.ceil(rows / together);
    const count = rows && Math.ceil(units / Math.floor(most / together));
    const edge = (at) => Math.min(Math.floor((units * at) / count) * together, rows);
    return Array.from({ length: count }, (_, at) => ({ first: edge(at), rows: edge(at + 1) - edge(at) }));
  }

  #alignment() {
    return Math.max(this.#device.limits.minStorageBufferOffsetAlignment, ACCESS_BYTES);
  }

  #rowBytes(binding) {
    return evaluate(binding.shape.at(-1), { cols: this.cols }) * itemsize(binding.dtype);
  }

  /** Where a slice lies in a buffer: bindings begin at the alignment below its first row. */
  #window(binding, buffers, slice) {
    const { buffer, offset, size } = buffers[binding.name];
    if (!binding.per_row || !slice) return { buffer, offset, size: size - (size % 4) };
    const begin = slice.first * this.#rowBytes(binding);
    const aligned = begin - (begin % this.#alignment());
    const end = roundUp((slice.first + slice.rows) * this.#rowBytes(binding), ACCESS_BYTES);
    return { buffer, offset: offset + aligned, size: Math.min(size - (size % 4), end) - aligned };
  }

  /** The scratch buffers, large enough; sizes double, so that a growing number of rows leaves few behind. */
  #scratchFor(rows, most) {
    const found = {};
    for (const binding of this.shader.bindings.filter((one) => one.scratch)) {
      const records = evaluate(binding.shape[0], { rows: binding.per_row ? rows : most });
      const size = Math.max(ACCESS_BYTES, roundUp(records * this.#rowBytes(binding), ACCESS_BYTES));
      const { maxBufferSize, maxStorageBufferBindingSize } = this.#device.limits;
      if (size > maxBufferSize || (!binding.per_row && size > maxStorageBufferBindingSize)) {
        this.#fail(`needs ${size} bytes for ${binding.name}, more than this device allows`);
      }
      if (!(this.#scratch.get(binding.name)?.size >= size)) {
        const room = Math.min(maxBufferSize, 2 ** Math.ceil(Math.log2(size)));
        const label = `${this.#problem.label} ${binding.name}`;
        const buffer = this.#device.createBuffer({ label, size: room, usage: GPUBufferUsage.STORAGE });
        this.#owned.add(buffer);
        this.#scratch.set(binding.name, buffer);
      }
      found[binding.name] = { buffer: this.#scratch.get(binding.name), offset: 0, size };
    }
    return found;
  }

  /** The uniform of each slice, and last that of the passes over the whole call. */
  #uniforms(slices, most) {
    const { words: names } = this.shader.bindings[0];
    const size = roundUp(names.length * 4, ACCESS_BYTES);
    const stride = roundUp(size, this.#device.limits.minUniformBufferOffsetAlignment);
    const buffer = this.#device.createBuffer({
      label: `${this.#problem.label} params`,
      size: stride * slices.length,
      usage: GPUBufferUsage.UNIFORM,
      mappedAtCreation: true,
    });
    const data = buffer.getMappedRange();
    slices.forEach((slice, at) => {
      const integers = new Uint32Array(data, stride * at, names.length);
      const floats = new Float32Array(data, stride * at, names.length);
      const whole = at === slices.length - 1;
      names.forEach((word, index) => {
        if (word === "eps" || word === "scale") floats[index] = this.#problem[word];
        else integers[index] = this.#word(word, slice, whole ? 0 : at, whole, most);
      });
    });
    buffer.unmap();
    return slices.map((_, at) => ({ buffer, offset: stride * at, size }));
  }

  #word(word, slice, at, whole, most) {
    if (word === "rows") return slice.rows;
    const [, name, what] = word.match(/^(.*)_(start|count|kept)$/);
    const binding = this.shader.bindings.find((one) => one.name === name);
    if (what === "count") return most && evaluate(binding.shape[0], { rows: most });
    if (what === "kept") return Number(at > 0);
    if (whole) return 0;
    return ((slice.first * this.#rowBytes(binding)) % this.#alignment()) / itemsize(binding.dtype);
  }
}
