// Checks the shaders of a package on one device, and times them. It needs a WebGPU device, but no page: verify.js shows
// its report in a browser, and assets/engine_verify.mjs runs it in node and Deno.
// rows and cols are names of the manifest's format.

import { ARRAYS, choose, itemsize, refusal, traitsOf } from "../runtime.js";
import { assess, tolerance, verdictOn } from "./verdicts.js";
import { breathe } from "./breathe.js";
import { BufferSets, copyShader, dataBytes, leastBytes, rowTensors, setsFor } from "./buffers.js";
import { adapterFacts, Complaint, guarded, handheld, openDevice, within } from "./gpu.js";
import { measure, statistics, Stopwatch } from "./measure.js";
import { noRoomForOrder, ordered, withRoomForOrder } from "./ordered.js";
import { answersOf, problemOf } from "./answers.js";
import { decode, readSafetensors } from "./storage.js";

// Bytes of x for timing: on a GPU more than its smaller caches, on a software adapter few enough to finish soon.
const TIMED_BYTES = { gpu: 32 * 2 ** 20, software: 2 ** 18 };
const RULE = { least: 5, most: 15, spread: 0.01, budgetMs: 4000, settleMs: 500 };
const SOFTWARE_RULE = { least: 3, most: 5, spread: 0.03, budgetMs: 1000, settleMs: 0 };
// The expected outputs in the package are rounded to float32. A larger difference means that this code is wrong.
const EXPECTED_TOLERANCE = 1e-6;

/**
 * The surroundings of a check.
 * @typedef {object} Host
 * @property {string} engine  the engine's own name
 * @property {(file: string) => Promise<ArrayBuffer>} load  read a file of the package
 * @property {() => Promise<GPUAdapter>} findAdapter
 * @property {string[]} without  features that are not requested
 * @property {boolean} quick  skip the timing
 *
 * The receiver of the progress, such as the View in verify_view.js.
 * @typedef {object} Watcher
 * @property {(text: string, share?: number) => void} say
 * @property {(text: string) => void} remark
 * @property {(manifest: object) => void} showPackage
 * @property {(report: object) => void} show
 */

/**
 * Check a package and return the report. A reason why nothing could be checked is its `error`.
 * @param {Host} host
 * @param {Watcher} watcher
 * @returns {Promise<object>}
 */
export async function checkPackage(host, watcher) {
  const began = performance.now();
  const report = {
    error: null,
    engine: host.engine,
    adapter: null,
    features: [],
    limits: {},
    chosen: {},
    reasons: {},
    shaders: [],
    copy: [],
    seconds: 0,
  };
  const opened = {};
  try {
    await verify(report, opened, host, watcher);
  } catch (error) {
    if (!(error instanceof Complaint)) console.error(error);
    report.error = error.message;
  }
  opened.device?.destroy();
  report.seconds = Number(((performance.now() - began) / 1000).toFixed(2));
  return report;
}

async function verify(report, opened, host, watcher) {
  watcher.say("Loading the package.");
  const loaded = await loadPackage(host, watcher);
  const { manifest } = loaded;
  watcher.showPackage(manifest);
  const adapter = await host.findAdapter();
  const descriptor = withRoomForOrder(loaded.deviceDescriptor(adapter), manifest.shaders, adapter);
  const device = await openDevice(adapter, descriptor, host.without);
  opened.device = device;
  const traits = { ...traitsOf(device, adapter.info), offered: adapter.features };
  report.adapter = adapterFacts(adapter, traits.software);
  report.features = [...device.features].sort();
  const used = ["maxStorageBufferBindingSize", "maxBufferSize", "maxComputeWorkgroupsPerDimension"];
  const named = new Set([...manifest.shaders.flatMap((shader) => Object.keys(shader.limits)), ...used]);
  report.limits = Object.fromEntries([...named].map((name) => [name, device.limits[name]]));
  chooseAll(report, manifest, traits);
  watcher.show(report);
  const vectors = await loadVectors(loaded);
  await checkTexts(loaded);
  const norms = await checkAll(report, loaded, device, adapter.info, vectors);
  const machine = { device, adapterInfo: adapter.info, traits };
  if (!host.quick) await timeAll(report, loaded, machine, norms, vectors);
  norms.forEach((norm) => norm.destroy());
}

/** Load the package's code and manifest; the host and the watcher go along. */
async function loadPackage(host, watcher) {
  let loaded;
  try {
    loaded = await import("../index.js");
  } catch (error) {
    throw new Complaint(
      `index.js did not load (${error.message}). Keep the whole folder as webnorm export wrote it.`,
    );
  }
  const manifest = JSON.parse(new TextDecoder().decode(await host.load("manifest.json")));
  return { ...loaded, manifest, load: host.load, watcher };
}

async function checkDigest(bytes, sha256, what) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (hex !== sha256) {
    throw new Complaint(
      `${what} differs from the exported file: its SHA-256 is not the manifest's. Export again.`,
    );
  }
}

/** Check the text in index.js, which runs, and the shader's file, which people read. */
async function checkTexts({ manifest, texts, load }) {
  for (const shader of manifest.shaders) {
    await checkDigest(
      new TextEncoder().encode(texts[shader.name]),
      shader.embedded_sha256,
      `${shader.name} in index.js`,
    );
    await checkDigest(await load(shader.file), shader.sha256, shader.file);
  }
}

/** Load each vector with its decoded inputs and expected outputs. */
async function loadVectors({ manifest, load }) {
  return Promise.all(
    manifest.vectors.map(async (entry) => {
      const file = await load(entry.file);
      await checkDigest(file, entry.sha256, entry.file);
      const { tensors } = readSafetensors(file);
      const inputs = manifest.tensors.filter((tensor) => tensor.access === "read");
      const bytes = Object.fromEntries(inputs.map(({ name }) => [name, tensors[name].bytes]));
      const arrays = Object.fromEntries(inputs.map(({ name, dtype }) => [name, decode(bytes[name], dtype)]));
      if (manifest.reference === "vectors") return { ...entry, bytes, arrays, answers: recorded(manifest, tensors) };
      const problem = problemOf(manifest, entry.rows, entry.cols);
      const answers = answersOf(arrays, problem);
      for (const [name, answer] of Object.entries(answers)) {
        checkExpected(entry, name, answer, decode(tensors[`expected.${name}`].bytes, "float32"));
      }
      return { ...entry, problem, bytes, arrays, answers };
    }),
  );
}

/** Return the expected outputs stored in a vector, for an op that JavaScript does not compute. */
function recorded(manifest, tensors) {
  const written = manifest.tensors.filter((tensor) => tensor.access === "write");
  const answer = ({ name }) => {
    const { shape, bytes } = tensors[`expected.${name}`];
    const numbers = (kind) => decode(tensors[`${kind}.${name}`].bytes, "float32");
    const value = decode(bytes, "float64");
    return { shape, value, error_scale: numbers("allowed"), mean_error_scale: numbers("per_term") };
  };
  return Object.fromEntries(written.map((tensor) => [tensor.name, answer(tensor)]));
}

/** Compare the float64 results of JavaScript with Python's results. */
function checkExpected(entry, name, { value, error_scale }, expected) {
  const wrong = value.findIndex((here, i) => {
    const off = Math.abs(Math.fround(here) - expected[i]);
    const same =
      Object.is(Math.fround(here), expected[i]) || off <= EXPECTED_TOLERANCE * (error_scale[i] + Math.abs(here));
    return !same;
  });
  if (wrong >= 0) {
    throw new Complaint(
      `JavaScript and Python disagree on ${name}[${wrong}] of ${entry.file}: ${value[wrong]} in JavaScript, ` +
        `${expected[wrong]} in Python. This is a bug of webnorm, not of the GPU; please report it.`,
    );
  }
}

function chooseAll(report, manifest, traits) {
  for (const cols of manifest.cols) {
    try {
      const { shader, reason } = choose(manifest, traits, cols);
      report.chosen[cols] = shader.name;
      report.reasons[cols] = reason;
    } catch (error) {
      report.chosen[cols] = null;
      report.reasons[cols] = error.message;
    }
  }
  report.shaders = manifest.shaders.map((shader) => ({
    name: shader.name,
    cols: shader.cols,
    chosen: report.chosen[shader.cols] === shader.name,
    skipped: refusal(shader, traits),
    verdict: "skip",
    max_abs_error: null,
    allowed: null,
    max_rel_error: null,
    vectors: [],
    timing: null,
  }));
  // The chosen shader of each number of columns comes first.
  report.shaders.sort((a, b) => a.cols - b.cols || b.chosen - a.chosen);
}

/** Check every shader on all vectors of its columns; return the norms of the right shaders, by name. */
async function checkAll(report, loaded, device, adapterInfo, vectors) {
  const norms = new Map();
  const entries = report.shaders.filter((entry) => entry.skipped === null);
  const steps = entries.map((entry) => vectors.filter((vector) => vector.cols === entry.cols));
  const total = steps.reduce((sum, own) => sum + own.length, 0);
  let done = 0;
  for (const [at, entry] of entries.entries()) {
    const shader = loaded.manifest.shaders.find((one) => one.name === entry.name);
    let norm = null;
    let failure = null;
    loaded.watcher.say(`Compiling ${entry.name}.`);
    try {
      const options = { ...ofAxis(loaded.manifest, entry.cols), shader: entry.name, adapterInfo };
      norm = await within(loaded.create(device, options), `compiling ${entry.name}`, device);
    } catch (error) {
      if (error instanceof Complaint) throw error;
      failure = error.message;
    }
    for (const vector of steps[at]) {
      loaded.watcher.say(`Checking ${entry.name} on ${vector.name}.`, ++done / total);
      entry.vectors.push(await checkVector(norm, failure, vector, shader, loaded.manifest, device));
    }
    entry.verdict = failure === null ? together(entry.vectors) : "fail";
    const right = entry.verdict === "pass";
    if (entry.verdict === "skip") entry.skipped = entry.vectors[0].reason;
    entry.max_abs_error = largest(entry.vectors, "max_abs_error");
    entry.allowed = entry.vectors.find((one) => one.max_abs_error === entry.max_abs_error)?.allowed ?? null;
    entry.max_rel_error = largest(entry.vectors, "max_rel_error");
    if (right) norms.set(entry.name, norm);
    else norm?.destroy();
    loaded.watcher.show(report);
    await breathe();
  }
  return norms;
}

/** Return the option that selects a shader's size; empty if one shader serves all sizes. */
function ofAxis({ axis = "cols" }, cols) {
  return axis ? { [axis]: cols } : {};
}

/** Return the verdict on a shader: "skip" if none of its vectors could be compared. */
function together(vectors) {
  const verdicts = vectors.map((vector) => vector.verdict);
  if (!verdicts.length || verdicts.includes("fail")) return "fail";
  return verdicts.includes("pass") ? "pass" : "skip";
}

function largest(vectors, key) {
  const known = vectors.map((vector) => vector[key]).filter((error) => error !== null);
  return known.length ? Math.max(...known) : null;
}

async function checkVector(norm, failure, vector, shader, manifest, device) {
  const failed = (reason) => ({
    name: vector.name,
    verdict: "fail",
    max_abs_error: null,
    allowed: null,
    max_rel_error: null,
    reason,
  });
  if (failure !== null) return failed(failure);
  let outputs;
  try {
    const typed = Object.fromEntries(
      manifest.tensors
        .filter((tensor) => tensor.access === "read")
        .map((tensor) => [tensor.name, typedArray(vector.bytes[tensor.name], tensor.dtype)]),
    );
    outputs = await within(norm.run(typed), `running ${shader.name} on ${vector.name}`, device);
  } catch (error) {
    if (error instanceof Complaint) throw error;
    return failed(error.message);
  }
  const written = manifest.tensors.filter((tensor) => tensor.access === "write");
  const got = Object.fromEntries(written.map(({ name, dtype }) => [name, decode(outputs[name], dtype)]));
  // y is checked against the norm of the rounded h that the shader wrote.
  const fed = manifest.reference !== "vectors" && got.h;
  const answers = fed ? answersOf({ ...vector.arrays, h: got.h }, vector.problem) : vector.answers;
  const found = assess(got, answers, manifest, tolerance(shader, manifest, vector.rows));
  const { max_abs_error, allowed, max_rel_error } = found;
  const reason = found.reason ?? found.not_compared;
  return { name: vector.name, verdict: verdictOn(found), max_abs_error, allowed, max_rel_error, reason };
}

function typedArray(bytes, dtype) {
  return new ARRAYS[dtype](bytes.buffer, bytes.byteOffset, bytes.byteLength / itemsize(dtype));
}

async function timeAll(report, loaded, machine, norms, vectors) {
  const { device, traits } = machine;
  const stopwatch = new Stopwatch(device, traits.software);
  const timed = loaded.manifest.cols.filter((cols) =>
    report.shaders.some((one) => one.cols === cols && norms.has(one.name)),
  );
  const rule = traits.software ? SOFTWARE_RULE : RULE;
  const own = { ...rule, budgetMs: rule.budgetMs / timed.length };
  for (const [at, cols] of timed.entries()) {
    const onRound = (round) => {
      const text = `Timing the shaders for ${cols} columns and a copy in turn, round ${round}.`;
      loaded.watcher.say(text, (at + round / rule.most) / timed.length);
    };
    loaded.watcher.say(`Warming up the shaders for ${cols} columns.`, at / timed.length);
    const vector = vectors.find((one) => one.cols === cols);
    const entries = report.shaders.filter((entry) => entry.cols === cols && norms.has(entry.name));
    try {
      await timeCols(report, loaded, machine, norms, entries, vector, stopwatch, own, onRound);
    } catch (error) {
      if (error instanceof Complaint) throw error;
      loaded.watcher.remark(`The shaders for ${cols} columns were not timed: ${error.message}`);
    }
    loaded.watcher.show(report);
  }
  stopwatch.destroy();
}

/** Time the right shaders of one number of columns and a copy, on the same buffers. */
async function timeCols(report, loaded, machine, norms, entries, vector, stopwatch, rule, onRound) {
  const { manifest } = loaded;
  const { cols } = vector;
  const { software } = machine.traits;
  const rows = timedRows(manifest, machine.device, software, cols);
  const bytes = leastBytes(manifest, { rows, cols });
  const sets = setsFor(bytes, { software, handheld: handheld() });
  // With a single set every dispatch writes the same buffers, so dispatches already wait for each other.
  const ready = sets > 1 ? await inOrder(loaded, machine, entries) : asChecked(machine, entries, norms);
  let buffers = null;
  try {
    const users = ready.contenders.map(({ norm }) => norm);
    buffers = await BufferSets.create(ready.device, manifest, users, { rows, sets }, vector.bytes);
    const work = () => sampled(ready.device, manifest, users, buffers, { stopwatch, rule, onRound });
    const { copied, found, settled } = await guarded(ready.device, "timing shaders", work);
    if (!settled) {
      loaded.watcher.remark(`With ${cols} columns the copy's times did not settle: these times are unreliable.`);
    }
    const [copy, ...rest] = found.map(({ samples }, at) => timing(samples, at === 0 ? copied.bytes : bytes));
    report.copy.push({ cols, rows, gbps: copy.gbps, median_ns: copy.median_ns });
    rest.forEach((one, at) => {
      const percent = 100 * (one.gbps / copy.gbps);
      const { entry } = ready.contenders[at];
      entry.timing = { rows, cols, ...one, method: stopwatch.method, percent_of_copy: percent };
    });
  } finally {
    buffers?.destroy();
    ready.destroy();
  }
}

/** Take samples of a copy and of norms in turn. */
async function sampled(device, manifest, norms, buffers, { stopwatch, rule, onRound }) {
  const copied = await copyShader(device, buffers);
  const calls = buffers.sets.map((_, set) => buffers.call(manifest, buffers.rows, set));
  const candidates = norms.map((norm) => ({
    encode: (pass, index) => norm.encode(pass, calls[index % calls.length]),
  }));
  const all = [copied, ...candidates];
  return { copied, ...(await measure(stopwatch, all, rule, { sets: calls.length, onRound })) };
}

/** Return the norms that were checked, on their device. */
function asChecked({ device }, entries, norms) {
  const contenders = entries.map((entry) => ({ entry, norm: norms.get(entry.name) }));
  return { device, contenders, destroy: () => {} };
}

/** Compile the shaders again on a device where each dispatch waits for the previous one. */
async function inOrder(loaded, machine, entries) {
  const device = ordered(machine.device);
  const contenders = [];
  for (const entry of entries) {
    const shader = loaded.manifest.shaders.find((one) => one.name === entry.name);
    const why = noRoomForOrder(shader, device);
    if (why === null) {
      const own = { shader: entry.name, adapterInfo: machine.adapterInfo };
      const options = { ...ofAxis(loaded.manifest, entry.cols), ...own };
      const made = loaded.create(device, options);
      contenders.push({ entry, norm: await within(made, `compiling ${entry.name}`, device) });
    } else {
      loaded.watcher.remark(`${entry.name} was not timed: it ${why}.`);
    }
  }
  if (contenders.length === 0) throw new Error("none of them can be timed with calls that wait for each other");
  return { device, contenders, destroy: () => contenders.forEach(({ norm }) => norm.destroy()) };
}

function timing(samples, bytes) {
  const { median, p20, p80 } = statistics(samples);
  return { median_ns: median, p20_ns: p20, p80_ns: p80, samples_ns: samples, bytes, gbps: bytes / median };
}

/** Return enough rows to make x large; fewer if a binding is limited. */
function timedRows(manifest, device, software, cols) {
  const wanted = software ? TIMED_BYTES.software : TIMED_BYTES.gpu;
  const rowBytes = (tensor) => dataBytes(tensor, { rows: 1, cols });
  const batched = rowTensors(manifest);
  if (batched.length === 0) return 1;
  const widest = Math.max(...batched.map(rowBytes));
  const x = batched.find((tensor) => tensor.access === "read") ?? batched[0];
  const most = Math.floor(device.limits.maxStorageBufferBindingSize / widest) - 1;
  return Math.max(1, Math.min(Math.ceil(wanted / rowBytes(x)), most));
}
