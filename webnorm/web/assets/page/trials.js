// One problem: checks every kernel of its ladder against float64, then times the kernels in turn with the copies.
// rows and cols are names of the manifest's format and of the lab's index.

import { choose, createNorm, refusal } from "../runtime.js";
import { assess, tolerance, verdictOn } from "./verdicts.js";
import { BufferSets, dataBytes, leastBytes, rowTensors, setsFor, suspiciousPercent } from "./buffers.js";
import { breathe } from "./breathe.js";
import { constantsText } from "./format.js";
import { drawInputs } from "./draws.js";
import { Complaint, guarded, handheld, within } from "./gpu.js";
import { measure, Stopwatch } from "./measure.js";
import { noRoomForOrder, ordered } from "./ordered.js";
import { drifting, flags, statistics } from "./statistics.js";
import { answersOf, problemOf } from "./answers.js";
import { decode } from "./storage.js";

// The limits of the rows that are drawn and checked against float64; the rows beyond repeat them.
const MOST_ROWS = 256;
const MOST_ELEMENTS = 2 ** 21;
const RULE = { least: 10, most: 50, spread: 0.01, budgetMs: 10000, settleMs: 500 };
// A processor raises its clock within milliseconds.
const SOFTWARE_RULE = { least: 5, most: 10, spread: 0.03, budgetMs: 3000, settleMs: 100 };

/**
 * Return the kernels of a bundle in the order of their ladder, each with the shader for these traits or the reason why
 * none fits. Each choice of a copy's constants is a step of its own, since the fastest is the reference for speed.
 * @param {{ manifest: object, texts: Record<string, string> }} bundle
 * @param {object} traits
 * @returns {{ kernel: string, shader: object, why: string | null, text: string }[]}
 */
export function ladder({ manifest, texts }, traits) {
  const [cols] = manifest.cols;
  const copies = manifest.op === "copy";
  const step = ({ kernel, constants }) => (copies ? `${kernel} ${constantsText(constants)}` : kernel);
  const found = [...new Set(manifest.shaders.map(step))].map((wanted) => {
    const own = manifest.shaders.filter((shader) => step(shader) === wanted);
    const [{ kernel }] = own;
    try {
      const { shader } = choose({ ...manifest, shaders: own }, traits, cols);
      return { kernel, shader, why: null, text: texts[shader.name] };
    } catch (error) {
      // The last shader needs the least.
      const shader = own.at(-1);
      const reasons = new Set(own.map((one) => refusal(one, traits)).filter(Boolean));
      return { kernel, shader, why: [...reasons].join("; ") || error.message, text: texts[shader.name] };
    }
  });
  return found.sort((a, b) => a.shader.rung - b.shader.rung);
}

/** Return the number of rows that are drawn and checked against float64. */
function checkedRows(rows, cols) {
  return Math.min(rows, MOST_ROWS, Math.max(1, Math.floor(MOST_ELEMENTS / cols)));
}

/** One op at one size on one device. */
export class Bench {
  /**
   * @param {{ device: GPUDevice, adapterInfo: GPUAdapterInfo, traits: object }} machine
   * @param {object} bundle
   * @param {object | null} copies  the bundle of the op copy for the same size and storage type
   * @param {{ rows: number, distribution: string, seed: number, kernels?: string[] | null }} asked
   *   kernels: the kernels to run; all by default
   * @param {{ say: (text: string, share: number) => void, signal: AbortSignal }} watcher
   */
  constructor(machine, bundle, copies, { rows, distribution, seed, kernels }, { say, signal }) {
    Object.assign(this, machine, { bundle, rows, distribution, seed, say, signal });
    this.manifest = bundle.manifest;
    [this.cols] = this.manifest.cols;
    this.checked = checkedRows(rows, this.cols);
    const bytes = leastBytes(this.manifest, this);
    this.sets = setsFor(bytes, { software: this.traits.software, handheld: handheld() });
    // With a single set every dispatch writes the same buffers, so dispatches already wait for each other.
    this.order = this.sets > 1;
    if (this.order) this.device = ordered(this.device);
    const steps = (one) => ladder(one, this.traits).map((step) => this.#entry(one, step));
    const own = steps(bundle).filter(({ result }) => kernels?.includes(result.kernel) ?? true);
    // A copy whose constants do not fit the device is left out without a message.
    const fitting = copies ? steps(copies).filter(({ why }) => why === null) : [];
    this.entries = [...fitting, ...own];
    /** False once the device's times did not settle. */
    this.settled = true;
  }

  /**
   * Run all checks and timings, for `results`. Ends early when aborted; rejects when the device is lost.
   */
  async run() {
    let buffers = null;
    const stopwatch = new Stopwatch(this.device, this.traits.software);
    try {
      for (const entry of this.entries) {
        await this.#step(`Compiling ${entry.result.kernel}`, 0, () => this.#compile(entry));
      }
      const ready = this.entries.filter((entry) => entry.norm);
      const main = ready.filter((entry) => entry.manifest === this.manifest).map((entry) => entry.norm);
      if (main.length === 0) return;
      buffers = await this.#step("Drawing inputs", 0, () => this.#draw(main));
      for (const [at, entry] of ready.entries()) {
        const share = (0.5 * at) / ready.length;
        await this.#step(`Checking ${entry.result.kernel} against float64`, share, () =>
          this.#check(entry, buffers),
        );
      }
      const right = ready.filter((entry) => entry.result.status === "pass");
      await this.#time(right, buffers, stopwatch);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    } finally {
      stopwatch.destroy();
      buffers?.destroy();
      for (const { norm } of this.entries) norm?.destroy();
    }
  }

  async #step(text, share, work) {
    this.signal.throwIfAborted();
    this.say(`${text}.`, share);
    await breathe();
    return work();
  }

  #entry({ manifest, texts }, { kernel, shader, why: unfit }) {
    const { dtype, eps, scale, options } = manifest.problem;
    const { rows, cols, distribution, seed } = this;
    const why = unfit ?? (this.order ? noRoomForOrder(shader, this.device) : null);
    return {
      manifest,
      texts,
      shader,
      why,
      norm: null,
      result: {
        op: manifest.op,
        kernel,
        constants: Object.fromEntries(
          Object.entries(shader.constants).map(([name, value]) => [name, Number(value)]),
        ),
        problem: { rows, cols, dtype, eps, distribution, seed, scale, options },
        status: "skip",
        reason: why ?? "the run ended before this kernel's turn",
      },
    };
  }

  async #compile(entry) {
    const { manifest, texts, shader, result, why } = entry;
    if (why !== null) return;
    const options = { cols: this.cols, shader: shader.name, adapterInfo: this.adapterInfo };
    try {
      const made = createNorm(this.device, manifest, texts, options);
      entry.norm = await within(made, `compiling ${result.kernel}`, this.device);
    } catch (error) {
      failWith(result, error);
    }
  }

  async #draw(norms) {
    const problem = {
      ...problemOf(this.manifest, this.checked, this.cols),
      distribution: this.distribution,
      seed: this.seed,
    };
    const { stored, arrays } = drawInputs(this.manifest, problem);
    this.arrays = arrays;
    await breathe();
    this.answers = answersOf(arrays, problem);
    return BufferSets.create(this.device, this.manifest, norms, { rows: this.rows, sets: this.sets }, stored);
  }

  /** Check the first rows against float64, then compare all rows with the rows that they repeat, bit for bit. */
  async #check(entry, buffers) {
    const { manifest, shader, result } = entry;
    const written = manifest.tensors.filter((tensor) => tensor.access === "write");
    try {
      const first = await this.#outputs(entry, buffers, this.checked);
      const got = Object.fromEntries(written.map(({ name, dtype }) => [name, decode(first[name], dtype)]));
      const allowed = tolerance(shader, manifest, this.checked);
      const found = assess(got, this.#answersFor(manifest, got), manifest, allowed);
      const { max_abs_error, max_rel_error, non_finite } = found;
      const status = verdictOn(found);
      const reason = found.reason ?? found.not_compared;
      Object.assign(result, { status, reason, max_abs_error, max_rel_error, non_finite });
      if (status === "fail" && shader.unstable) result.expected = true;
      if (status !== "pass") return;
      const all = await this.#outputs(entry, buffers, this.rows);
      const difference = this.#firstDifference(manifest, first, all);
      if (difference) Object.assign(result, { status: "fail", reason: difference });
    } catch (error) {
      failWith(result, error);
    }
  }

  #answersFor(manifest, got) {
    const problem = problemOf(manifest, this.checked, this.cols);
    if (manifest !== this.manifest) return answersOf({ x: this.arrays.x }, problem);
    // y is checked against the norm of the rounded h that the kernel wrote.
    return got.h ? answersOf({ ...this.arrays, h: got.h }, problem) : this.answers;
  }

  /** Run once over a number of rows and return the bytes of every output, which held NaN before. */
  async #outputs({ manifest, norm, result }, buffers, rows) {
    const written = manifest.tensors.filter((tensor) => tensor.access === "write");
    const read = async () => {
      const { name: main } = written[0];
      const place = (name) => (manifest.op === "copy" && name === main ? buffers.copyTarget : name);
      for (const { name } of written) buffers.poison(place(name));
      const encoder = this.device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      norm.encode(pass, buffers.call(manifest, rows));
      pass.end();
      this.device.queue.submit([encoder.finish()]);
      const found = {};
      for (const tensor of written) {
        const bytes = dataBytes(tensor, { rows, cols: this.cols });
        const reading = buffers.read(place(tensor.name), bytes);
        found[tensor.name] = await within(reading, `running ${result.kernel}`, this.device);
      }
      return found;
    };
    return guarded(this.device, `running ${result.kernel}`, read);
  }

  #firstDifference(manifest, first, all) {
    for (const tensor of rowTensors(manifest).filter(({ access }) => access === "write")) {
      const bytes = [first, all].map((outputs) => outputs[tensor.name]);
      // Outputs on a large GPU take gigabytes in all, and comparing bytes takes four times as long.
      const Words = bytes.every(({ byteLength }) => byteLength % 4 === 0) ? Uint32Array : Uint8Array;
      const [a, b] = bytes.map((one) => new Words(one));
      const perRow = a.length / this.checked;
      for (let start = 0; start < b.length; start += a.length) {
        const end = Math.min(b.length - start, a.length);
        for (let i = 0; i < end; i++) {
          if (a[i] !== b[start + i]) {
            const [row, twin] = [Math.floor((start + i) / perRow), Math.floor(i / perRow)];
            return `row ${row} of ${tensor.name} differs from row ${twin}, which has the same inputs`;
          }
        }
      }
    }
    return null;
  }

  async #time(entries, buffers, stopwatch) {
    const rule = this.traits.software ? SOFTWARE_RULE : RULE;
    const candidates = entries.map(({ manifest, norm }) => {
      const calls = buffers.sets.map((_, set) => buffers.call(manifest, this.rows, set));
      return { encode: (pass, index) => norm.encode(pass, calls[index % calls.length]) };
    });
    const onRound = (round) =>
      this.say(`Timing ${entries.length} kernels in turn, round ${round}.`, 0.5 + (0.5 * round) / rule.most);
    const { signal, restless } = this;
    const options = { sets: buffers.sets.length, restless, onRound, signal };
    const work = () => measure(stopwatch, candidates, rule, options);
    this.say(`Warming up until the copy's times settle.`, 0.5);
    const { found, settled } = await guarded(this.device, "timing kernels", work);
    this.settled = settled;
    found.forEach(({ samples, dispatches }, at) => {
      const { result, manifest } = entries[at];
      const { median, p20, p80 } = statistics(samples);
      const bytes = leastBytes(manifest, this);
      Object.assign(result, {
        median_ns: median,
        p20_ns: p20,
        p80_ns: p80,
        samples_ns: samples,
        dispatches_per_sample: dispatches,
        timing_method: stopwatch.method,
        cache: buffers.cold ? "cold" : "warm",
        bytes,
        gbps: bytes / median,
        flags: [...flags(samples), ...(settled ? [] : ["unsettled"])],
      });
    });
    this.#relate(entries);
  }

  /**
   * Return the result of each kernel in the order of the ladder, the copies first.
   * @returns {object[]}  as webnorm/lab/results/result.py's Result
   */
  results() {
    return this.entries.map((entry) => entry.result);
  }

  #relate(entries) {
    const copy = bestCopy(entries.map(({ result }) => result));
    if (!copy) return;
    // A drift of the copies affects every kernel.
    const drifted = drifting(copy.samples_ns) ? ["drifting"] : [];
    for (const { result, manifest } of entries) {
      // This order of operations gives the fastest copy exactly 100.
      result.percent_of_copy = 100 * (result.gbps / copy.gbps);
      const beyond = result.percent_of_copy > suspiciousPercent(manifest, this);
      const suspicious = beyond && !this.traits.software;
      result.flags.push(...drifted, ...(suspicious ? ["suspicious"] : []));
    }
  }
}

/**
 * Return the fastest copy of some results.
 * @param {object[]} results
 * @returns {object | null}
 */
export function bestCopy(results) {
  const copies = results.filter(({ op, gbps }) => op === "copy" && gbps);
  return copies.sort((a, b) => b.gbps - a.gbps)[0] ?? null;
}

function failWith(result, error) {
  if (error instanceof Complaint || error.name === "AbortError") throw error;
  Object.assign(result, { status: "error", reason: error.message });
}
