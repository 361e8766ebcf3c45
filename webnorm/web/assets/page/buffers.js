// The buffers for timing shaders: filled with real data, and too large for caches.
// rows and cols are names of the manifest's format.

import { evaluate, finished, itemsize } from "../runtime.js";
import { within } from "./gpu.js";
import { LARGEST_CACHE, SUSPICIOUS_ONE_SIDED_PERCENT, SUSPICIOUS_PERCENT } from "./numbers.js";

// So many bytes evict a dispatch's inputs before it reads them again. A handheld has smaller caches and less memory.
const COLD_BYTES = { desktop: 2 * LARGEST_CACHE, handheld: 64 * 2 ** 20 };
const MOST_SETS = 64;
// All bits set mean NaN in every storage type but int8, where they mean -1: this reveals elements that were not written.
const POISON = 0xff;

/**
 * Return the bytes of a tensor's elements.
 * @param {{ shape: (number | string)[], dtype: string }} tensor  of a manifest
 * @param {{ rows: number, cols: number }} names
 * @returns {number}
 */
export function dataBytes(tensor, names) {
  return tensor.shape.reduce((product, size) => product * evaluate(size, names), itemsize(tensor.dtype));
}

/**
 * Return the tensors with rows.
 * @param {{ tensors: object[] }} manifest
 * @returns {object[]}
 */
export function rowTensors(manifest) {
  return manifest.tensors.filter((tensor) => tensor.shape[0] === "rows");
}

/**
 * Return the bytes that any kernel must move: every tensor with rows once (docs/measuring.md).
 * @param {{ tensors: object[] }} manifest
 * @param {{ rows: number, cols: number }} names
 * @returns {number}
 */
export function leastBytes(manifest, names) {
  return movedTensors(manifest).reduce((sum, tensor) => sum + dataBytes(tensor, names), 0);
}

/**
 * Return the percentage of a copy's throughput above which a time is suspicious, as Python's suspicious_percent.
 * @param {{ tensors: object[] }} manifest
 * @param {{ rows: number, cols: number }} names
 * @returns {number}
 */
export function suspiciousPercent(manifest, names) {
  const written = movedTensors(manifest)
    .filter(({ access }) => access === "write")
    .reduce((sum, tensor) => sum + dataBytes(tensor, names), 0);
  const all = leastBytes(manifest, names);
  const oneSided = Math.abs(all - 2 * written) / all;
  return SUSPICIOUS_PERCENT + (SUSPICIOUS_ONE_SIDED_PERCENT - SUSPICIOUS_PERCENT) * oneSided;
}

// An op of a user moves all of its tensors once.
function movedTensors(manifest) {
  return manifest.reference === "vectors" ? manifest.tensors : rowTensors(manifest);
}

/**
 * Return the number of sets of buffers that caches cannot hold; 1 on a software adapter, which uses the CPU's caches.
 * @param {number} bytes  of one set
 * @param {{ software: boolean, handheld: boolean }} machine
 * @returns {number}
 */
export function setsFor(bytes, { software, handheld }) {
  if (software) return 1;
  const needed = Math.ceil((handheld ? COLD_BYTES.handheld : COLD_BYTES.desktop) / bytes);
  return Math.max(1, Math.min(MOST_SETS, needed));
}

/**
 * Sets of buffers for the tensors of a problem, used in turn. The inputs repeat the given rows. A copy of x writes to
 * the tensor `copyTarget`.
 */
export class BufferSets {
  #device;

  /**
   * Make buffers for norms of one problem; a single set if the device lacks memory for more.
   * @param {GPUDevice} device
   * @param {object} manifest
   * @param {object[]} norms  all norms that will use them
   * @param {{ rows: number, sets: number }} size
   * @param {Record<string, ArrayBufferView>} data  some whole rows of each tensor that is read
   * @returns {Promise<BufferSets>}  rejects if the device lacks memory for one set
   */
  static async create(device, manifest, norms, { rows, sets }, data) {
    const made = new BufferSets(device, rows, sets);
    device.pushErrorScope("out-of-memory");
    let refused = null;
    try {
      made.#add(manifest, norms, data);
    } catch (error) {
      refused = error;
    }
    refused = (await within(device.popErrorScope(), "allocating memory", device)) ?? refused;
    if (!refused) return made;
    made.destroy();
    if (sets > 1) return BufferSets.create(device, manifest, norms, { rows, sets: 1 }, data);
    throw new Error(`the device has no memory for the buffers of ${rows} rows: ${refused.message}; use fewer rows`);
  }

  constructor(device, rows, sets) {
    this.#device = device;
    this.rows = rows;
    /** @type {Record<string, GPUBuffer>[]} */
    this.sets = Array.from({ length: sets }, () => ({}));
  }

  /** True if the sets together are too large for any cache. */
  get cold() {
    const bytes =
      Object.values(this.sets[0]).reduce((sum, buffer) => sum + buffer.size, 0) * this.sets.length;
    return bytes >= COLD_BYTES.desktop;
  }

  /**
   * Return the arguments of Norm.encode: the tensors of one set.
   * @param {object} manifest
   * @param {number} [rows]
   * @param {number} [set]
   * @returns {Record<string, GPUBuffer | number>}
   */
  call(manifest, rows = this.rows, set = 0) {
    const { name: main } = manifest.tensors.find((tensor) => tensor.access === "write");
    const buffers = manifest.tensors.map(({ name }) => {
      const target = manifest.op === "copy" && name === main ? this.copyTarget : name;
      return [name, this.sets[set % this.sets.length][target]];
    });
    const batch = manifest.batch ?? "rows";
    return { ...(batch ? { [batch]: rows } : {}), ...Object.fromEntries(buffers) };
  }

  /**
   * Fill a tensor of the first set with NaN.
   * @param {string} name
   */
  poison(name) {
    const buffer = this.sets[0][name];
    const chunk = new Uint8Array(Math.min(buffer.size, 2 ** 22)).fill(POISON);
    for (let at = 0; at < buffer.size; at += chunk.length) {
      this.#device.queue.writeBuffer(buffer, at, chunk, 0, Math.min(chunk.length, buffer.size - at));
    }
  }

  /**
   * Read the first bytes of a tensor of the first set.
   * @param {string} name
   * @param {number} byteLength
   * @returns {Promise<ArrayBuffer>}
   */
  async read(name, byteLength) {
    const size = roundUp(byteLength);
    const staging = this.#device.createBuffer({
      size,
      usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    });
    try {
      const encoder = this.#device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.sets[0][name], 0, staging, 0, size);
      this.#device.queue.submit([encoder.finish()]);
      await finished(this.#device, staging.mapAsync(GPUMapMode.READ));
      return staging.getMappedRange().slice(0, byteLength);
    } finally {
      staging.destroy();
    }
  }

  /** Free all buffers. */
  destroy() {
    for (const set of this.sets) Object.values(set).forEach((buffer) => buffer.destroy());
  }

  #add(manifest, norms, data) {
    for (const { name, access } of manifest.tensors) {
      // Shaders read past the end by different amounts.
      const size = Math.max(...norms.map((norm) => norm.byteLength(name, this.rows)));
      if (access === "read") this.#addInput(name, size, data[name]);
      else this.#addOutput(name, size);
    }
    const main = manifest.tensors.find((tensor) => tensor.access === "write").name;
    const [set] = this.sets;
    const inputs = manifest.tensors.filter((tensor) => tensor.access === "read").map(({ name }) => name);
    // An op may have several inputs: copying the largest one measures memory best.
    this.copySource = inputs.includes("x") && manifest.reference !== "vectors"
      ? "x"
      : inputs.reduce((most, name) => (set[name].size > set[most].size ? name : most));
    const { size } = set[this.copySource];
    this.copyTarget = set[main].size >= size ? main : "copy";
    if (this.copyTarget !== main) this.#addOutput(this.copyTarget, size);
  }

  #addInput(name, byteLength, data) {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const size = roundUp(byteLength);
    const first = this.#buffer(name, size, true);
    const filled = new Uint8Array(first.getMappedRange());
    filled.set(bytes.subarray(0, size));
    for (let done = Math.min(bytes.length, size); done < size; done *= 2) {
      filled.copyWithin(done, 0, Math.min(done, size - done));
    }
    first.unmap();
    const encoder = this.#device.createCommandEncoder();
    this.sets.forEach((set, at) => {
      set[name] = at === 0 ? first : this.#buffer(name, size, false);
      if (at > 0) encoder.copyBufferToBuffer(first, 0, set[name], 0, size);
    });
    this.#device.queue.submit([encoder.finish()]);
  }

  #addOutput(name, byteLength) {
    for (const set of this.sets) set[name] = this.#buffer(name, roundUp(byteLength), false);
  }

  #buffer(label, size, mappedAtCreation) {
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    return this.#device.createBuffer({ label, size, usage, mappedAtCreation });
  }
}

const COPY = `@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
    let at = (workgroup.x + workgroup.y * count.x) * 256u + index;
    if (at < arrayLength(&x)) {
        y[at] = x[at];
    }
}
`;

/**
 * Make a WGSL copy of x, 16 bytes per invocation: the roofline of a page without copy kernels.
 * @param {GPUDevice} device
 * @param {BufferSets} buffers
 * @returns {Promise<{ encode: import("./measure.js").Encode, bytes: number }>}
 */
export async function copyShader(device, buffers) {
  const module = device.createShaderModule({ label: "copy", code: COPY });
  const entries = ["read-only-storage", "storage"].map((type, binding) => ({
    binding,
    visibility: GPUShaderStage.COMPUTE,
    buffer: { type },
  }));
  // The layout is not "auto", since ordered devices add a binding to explicit layouts only.
  const own = device.createBindGroupLayout({ entries });
  const layout = device.createPipelineLayout({ bindGroupLayouts: [own] });
  const made = device.createComputePipelineAsync({ layout, compute: { module } });
  const pipeline = await within(made, "compiling the copy", device);
  const source = buffers.copySource;
  const { size } = buffers.sets[0][source];
  const groups = buffers.sets.map((set) =>
    device.createBindGroup({
      layout: own,
      entries: [set[source], set[buffers.copyTarget]].map((buffer, binding) => ({
        binding,
        resource: { buffer, size },
      })),
    }),
  );
  const count = Math.ceil(size / 16 / 256);
  const y = Math.ceil(count / device.limits.maxComputeWorkgroupsPerDimension);
  const encode = (pass, index) => {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, groups[index % groups.length]);
    pass.dispatchWorkgroups(Math.ceil(count / y), y);
  };
  return { encode, bytes: 2 * size };
}

/** Round up to whole vec4s, the largest elements of shaders. */
function roundUp(size) {
  return Math.ceil(size / 16) * 16;
}
