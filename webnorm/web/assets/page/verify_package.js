// Checks the shaders of a package on one device, and times them. It needs a WebGPU device, but no page: verify.js shows
// its report in a browser, and assets/engine_verify.mjs runs it in node and Deno.
// rows and cols are names of the manifest's format.

import { choose, refusal, traitsOf } from "../runtime.js";
import { breathe } from "./breathe.js";
import { BufferSets, copyShader, dataBytes, leastBytes, rowTensors, setsFor } from "./buffers.js";
import { adapterFacts, Complaint, guarded, handheld, openDevice, within } from "./gpu.js";
import { measure, statistics, Stopwatch } from "./measure.js";
import { noRoomForOrder, ordered, withRoomForOrder } from "./ordered.js";
import { checkDigest, checkVector, filled, importCode, loadVectors, readJson, together } from "./verify_vectors.js";

// Bytes of x for timing: on a GPU more than its smaller caches, on a software adapter few enough to finish soon.
const TIMED_BYTES = { gpu: 32 * 2 ** 20, software: 2 ** 18 };
const RULE = { least: 5, most: 15, spread: 0.01, budgetMs: 4000, settleMs: 500 };
const SOFTWARE_RULE = { least: 3, most: 5, spread: 0.03, budgetMs: 1000, settleMs: 0 };

/**
 * The surroundings of a check.
 * @typedef {object} Host
 * @property {string} engine  the engine's own name
 * @property {(file: string) => Promise<ArrayBuffer>} load  read a file of the package
 * @property {() => Promise<object>} importCode  import the package's index.js
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
  return filled(report, (opened) => verify(report, opened, host, watcher));
}

async function verify(report, opened, host, watcher) {
  watcher.say("Loading the package.");
  const manifest = await readJson(host, "manifest.json");
  const loaded = { ...(await importCode(host)), manifest, load: host.load, watcher };
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
    Object.assign(entry, together(entry.vectors));
    if (failure !== null) entry.verdict = "fail";
    const right = entry.verdict === "pass";
    if (entry.verdict === "skip") entry.skipped = entry.vectors[0].reason;
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
