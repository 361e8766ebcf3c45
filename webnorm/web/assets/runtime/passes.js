// The dispatches of a call: rows split into slices that fit a device, and their bindings. This does the same as
// webnorm/gpu/schedule.py; everything specific to an op, kernel or problem is data in the manifest.
// rows and cols are names of the manifest's format; an op of a user names its batch and its axis differently.

import { Latest } from "./calls.js";

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

/** Return the value of an expression of the manifest: an integer, a name, or [operator, ...operands]. */
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

/** The typed array of each storage type; a type that some browsers lack is passed as its bits. */
export const ARRAYS = {
  float32: Float32Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int32: Int32Array,
  uint32: Uint32Array,
  float8_e4m3fn: Uint8Array,
  float8_e5m2: Uint8Array,
};
export const itemsize = (dtype) => ARRAYS[dtype].BYTES_PER_ELEMENT;
export const roundUp = (size, multiple) => Math.ceil(size / multiple) * multiple;

// The size of a vec4<f32>, the largest element of a shader's arrays.
const ACCESS_BYTES = 16;
// Slices begin on multiples of this many rows, so that rows of float16 that share words stay together.
const ELEMENTS_TOGETHER = 4;

/** The passes of one shader on a device, with the scratch buffers between them. */
export class Plan {
  #scratch = new Map();
  #owned = new Set();
  #byRows = new Latest();

  /**
   * `setup` contains the op, its cols and `numbers`, the shader with its pipelines, the device, a label, and
   * `mostIterations`, the limit of a loop on this device.
   */
  constructor(setup) {
    Object.assign(this, setup);
  }

  /** Return the dispatches of a call: pipelines, bind groups, `params`, and workgroup counts. */
  dispatches(bound, rows) {
    const { slices, most, words } = this.#cut(rows);
    const buffers = { ...bound, ...this.#scratchFor(rows, most) };
    const dispatch = ({ pass, layout, pipeline }, slice, at) => {
      const resource = (binding) =>
        binding === 0 ? words[at] : this.#window(this.shader.bindings[binding], buffers, slice);
      const entries = pass.bindings.map((binding) => ({ binding, resource: resource(binding) }));
      return {
        pipeline,
        group: this.device.createBindGroup({ label: this.label, layout, entries }),
        params: words[at],
        grid: this.#grid(this.#workgroups(pass, slice ? most : rows)),
      };
    };
    return this.pipelines.flatMap((one) =>
      one.pass.per === "rows"
        ? slices.map((slice, at) => dispatch(one, slice, at))
        : [dispatch(one, null, slices.length)],
    );
  }

  /** Free the buffers. */
  destroy() {
    for (const buffer of this.#owned) buffer.destroy();
    this.#owned.clear();
  }

  #fail(what) {
    throw new Error(`${this.op}: ${what}`);
  }

  #workgroups(pass, rows) {
    return evaluate(pass.workgroup_count, { rows });
  }

  #grid(count) {
    const y = Math.ceil(count / this.device.limits.maxComputeWorkgroupsPerDimension);
    return [Math.ceil(count / Math.max(y, 1)), y];
  }

  /** Return the slices and words for a number of rows. A uniform is never rewritten: earlier calls may still use it. */
  #cut(rows) {
    const known = this.#byRows.get(rows);
    if (known) return known;
    const slices = this.#slices(rows);
    const most = Math.max(0, ...slices.map((slice) => slice.rows));
    const cut = { slices, most, words: this.#params([...slices, { first: 0, rows }], most) };
    this.#byRows.set(rows, cut);
    return cut;
  }

  /** Split the rows into slices that fit the bindings and a dispatch. */
  #slices(rows) {
    const { limits } = this.device;
    const { maxStorageBufferBindingSize: limit, maxComputeWorkgroupsPerDimension: dimension } = limits;
    let most = rows;
    for (const binding of this.shader.bindings.filter((one) => one.per_row)) {
      const rowBytes = this.#rowBytes(binding);
      // A slice begins up to alignment - 1 bytes into its binding and ends with a whole access.
      if (roundUp(rows * rowBytes, ACCESS_BYTES) > limit) {
        most = Math.min(most, Math.floor((limit - this.#alignment() - ACCESS_BYTES) / rowBytes));
      }
      if (rows > 0 && most < 1) {
        this.#fail(`a row of ${binding.name} needs ${rowBytes} bytes, but this device binds at most ${limit}`);
      }
    }
    for (const pass of this.shader.passes) {
      const tooMany = () =>
        this.#workgroups(pass, most) > dimension * dimension ||
        evaluate(pass.iterations ?? 0, { rows: most }) > this.mostIterations;
      while (most > 1 && tooMany()) most >>= 1;
    }
    const together = most >= ELEMENTS_TOGETHER && most < rows ? ELEMENTS_TOGETHER : 1;
    const units = Math.ceil(rows / together);
    const count = rows && Math.ceil(units / Math.floor(most / together));
    const edge = (at) => Math.min(Math.floor((units * at) / count) * together, rows);
    return Array.from({ length: count }, (_, at) => ({ first: edge(at), rows: edge(at + 1) - edge(at) }));
  }

  #alignment() {
    return Math.max(this.device.limits.minStorageBufferOffsetAlignment, ACCESS_BYTES);
  }

  #rowBytes(binding) {
    return evaluate(binding.shape.at(-1), { cols: this.cols }) * itemsize(binding.dtype);
  }

  /** Return the part of a buffer that a slice binds: it begins at the alignment below the first row. */
  #window(binding, buffers, slice) {
    const { buffer, offset, size } = buffers[binding.name];
    if (!binding.per_row || !slice) return { buffer, offset, size: size - (size % 4) };
    const begin = slice.first * this.#rowBytes(binding);
    const aligned = begin - (begin % this.#alignment());
    const end = roundUp((slice.first + slice.rows) * this.#rowBytes(binding), ACCESS_BYTES);
    return { buffer, offset: offset + aligned, size: Math.min(size - (size % 4), end) - aligned };
  }

  /**
   * Return scratch buffers that are large enough. Sizes double, so a growing number of rows leaves few old buffers.
   * Calls share them, since dispatches run in order. Old buffers stay, since kept calls have them bound.
   */
  #scratchFor(rows, most) {
    const found = {};
    for (const binding of this.shader.bindings.filter((one) => one.scratch)) {
      const records = evaluate(binding.shape[0], { rows: binding.per_row ? rows : most });
      const size = Math.max(ACCESS_BYTES, roundUp(records * this.#rowBytes(binding), ACCESS_BYTES));
      const { maxBufferSize, maxStorageBufferBindingSize } = this.device.limits;
      if (size > maxBufferSize || (!binding.per_row && size > maxStorageBufferBindingSize)) {
        this.#fail(`${binding.name} needs ${size} bytes, more than this device allows; use fewer rows`);
      }
      if (!(this.#scratch.get(binding.name)?.size >= size)) {
        const room = Math.min(maxBufferSize, 2 ** Math.ceil(Math.log2(size)));
        const label = `${this.label} ${binding.name}`;
        const buffer = this.device.createBuffer({ label, size: room, usage: GPUBufferUsage.STORAGE });
        this.#owned.add(buffer);
        this.#scratch.set(binding.name, buffer);
      }
      found[binding.name] = { buffer: this.#scratch.get(binding.name), offset: 0, size };
    }
    return found;
  }

  /** Return the uniform or immediates of each slice, and then of the passes over the whole call. */
  #params(slices, most) {
    const { words: names, type } = this.shader.bindings[0];
    const size = roundUp(names.length * 4, ACCESS_BYTES);
    const stride = roundUp(size, this.device.limits.minUniformBufferOffsetAlignment);
    const bytes = stride * slices.length;
    const buffer =
      type === "uniform" &&
      this.device.createBuffer({
        label: `${this.label} params`,
        size: bytes,
        usage: GPUBufferUsage.UNIFORM,
        mappedAtCreation: true,
      });
    const data = buffer ? buffer.getMappedRange() : new ArrayBuffer(bytes);
    const params = slices.map((slice, at) => {
      const integers = new Uint32Array(data, stride * at, names.length);
      const floats = new Float32Array(data, stride * at, names.length);
      names.forEach((word, index) => {
        const number = this.numbers[word];
        if (number === undefined) integers[index] = this.#word(word, slice, most);
        else if (this.wholes?.includes(word)) integers[index] = number;
        else floats[index] = number;
      });
      return buffer ? { buffer, offset: stride * at, size } : integers;
    });
    if (buffer) buffer.unmap();
    return params;
  }

  #word(word, slice, most) {
    if (word === "rows") return slice.rows;
    if (word === "unused") return 0;
    const [, name, what] = word.match(/^(.*)_(start|count|kept)$/);
    const binding = this.shader.bindings.find((one) => one.name === name);
    if (what === "count") return most && evaluate(binding.shape[0], { rows: most });
    if (what === "kept") return Number(slice.first > 0);
    return ((slice.first * this.#rowBytes(binding)) % this.#alignment()) / itemsize(binding.dtype);
  }
}
