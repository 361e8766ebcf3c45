// The lab: shows the kernels of its bundles, and checks and times them where it is told to.

import { descriptorFor, traitsOf } from "../runtime.js";
import { byId, download } from "./dom.js";
import { adapterFacts, adapterName, browserName, Complaint, findAdapter, openDevice } from "./gpu.js";
import { Bench, ladder } from "./trials.js";
import { Controls } from "./lab_controls.js";
import { asJson, deviceDescription } from "./lab_results.js";
import { checkedText, kernelCard, resultCard, showResult, summary } from "./lab_view.js";

const SEED = 0;
const COPY = "copy";

window.webnormStarted = true;

/** The page: what is chosen, and one run at a time. */
class Lab {
  #index;
  #controls;
  #bundles = new Map();
  #adapter = null;
  #refusal = null;
  #running = null;

  /** Load the index and find an adapter; without one the kernels can still be read. */
  async start() {
    this.#index = await load("bundles/index.json");
    try {
      this.#adapter = await findAdapter();
    } catch (error) {
      this.#refusal = error;
    }
    this.#controls = new Controls(this.#entries(), this.#adapter !== null && this.#traits().software);
    byId("form").addEventListener("change", (event) => {
      this.#controls.changed(event.target.id);
      this.#showKernels().catch(complain);
    });
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.run(this.#controls.choice).catch(complain);
    });
    byId("all").addEventListener("click", () => {
      this.run({ ...this.#controls.choice, all: true }).catch(complain);
    });
    byId("stop").addEventListener("click", () => this.#running?.abort());
    byId("download").addEventListener("click", () => {
      download("webnorm-lab.json", `${JSON.stringify(window.webnormReport)}\n`);
    });
    await this.#showKernels();
    this.#updateButtons();
    byId("footer").textContent =
      `webnorm ${this.#index.webnorm}. Two runs can be compared: webnorm compare OLD.json NEW.json.`;
    if (this.#refusal) throw this.#refusal;
    const { software } = this.#traits();
    const name = adapterName(adapterFacts(this.#adapter.info, software));
    say(`Ready on ${name}${software ? " (software)" : ""} in ${browserName()}.`);
  }

  /**
   * Set the controls.
   * @param {Partial<import("./lab_controls.js").Choice>} wanted
   */
  async choose(wanted) {
    this.#controls.set(wanted);
    await this.#showKernels();
  }

  /**
   * Check and time every kernel of a choice; what is left out stays as the controls are, but for the rows.
   * @param {Partial<import("./lab_controls.js").Choice> & { all?: boolean }} options
   *   `all`: every op that has a bundle of these columns and this storage type
   * @returns {Promise<object>} the report, which is window.webnormReport, too
   */
  async run({ all = false, ...wanted } = {}) {
    if (this.#running) throw new Error("a run is under way: stop it first");
    this.#controls.set(wanted);
    this.#running = new AbortController();
    const { signal } = this.#running;
    document.body.dataset.state = "running";
    window.webnormReport = undefined;
    byId("results").replaceChildren();
    this.#updateButtons();
    const report = { webnorm: this.#index.webnorm, device: {}, results: [] };
    try {
      await this.#showKernels();
      const { op, cols, dtype } = this.#controls.choice;
      const tasks = this.#entries().filter((entry) => {
        return (all || entry.op === op) && entry.cols === cols && entry.dtype === dtype;
      });
      for (const [at, task] of tasks.entries()) {
        if (signal.aborted) break;
        const before = all ? `${task.op} (${at + 1} of ${tasks.length}): ` : "";
        const step = (text, share) => say(before + text, (at + share) / tasks.length);
        await this.#runTask(task, report, { say: step, signal });
      }
      say(`${signal.aborted ? "Stopped. " : ""}${summary(report.results)}`);
    } catch (error) {
      report.error = error.message;
      complain(error);
    } finally {
      this.#running = null;
      document.body.dataset.state = report.error ? "error" : "idle";
      window.webnormReport = asJson(report);
      this.#updateButtons();
    }
    return window.webnormReport;
  }

  async #runTask(task, report, watcher) {
    const { choice } = this.#controls;
    const bundle = await this.#bundle(task);
    const alike = ({ op, cols, dtype }) => op === COPY && cols === task.cols && dtype === task.dtype;
    const roofline = this.#index.bundles.find(alike);
    const copies = roofline ? await this.#bundle(roofline) : null;
    const shaders = [bundle, copies].flatMap((one) => one?.manifest.shaders ?? []);
    // An adapter gives one device.
    const adapter = await findAdapter();
    const device = await openDevice(adapter, descriptorFor({ shaders }, adapter), withheld(choice));
    const traits = traitsOf(device, adapter.info);
    report.device = deviceDescription(device, adapterFacts(adapter.info, traits.software));
    const machine = { device, adapterInfo: adapter.info, traits };
    const bench = new Bench(machine, bundle, copies, { ...choice, seed: SEED }, watcher);
    try {
      await bench.run();
    } finally {
      device.destroy();
      const results = bench.results();
      report.results.push(...results);
      byId("results").append(resultCard(results, checkedText(bench), traits.software));
      byId("results-section").hidden = false;
      results.forEach(showResult);
    }
  }

  async #showKernels() {
    const bundle = await this.#bundle(this.#controls.entry);
    const { op } = bundle.manifest;
    const steps = ladder(bundle, this.#traits());
    byId("kernels").replaceChildren(...steps.map((step) => kernelCard(op, step)));
  }

  /** Of a device that would have all of the adapter, but for what the controls withhold. */
  #traits() {
    const { features, limits, info } = this.#adapter ?? {
      features: new Set(["subgroups"]),
      limits: {},
      info: {},
    };
    const without = this.#controls ? withheld(this.#controls.choice) : [];
    return traitsOf(
      { features: new Set([...features].filter((name) => !without.includes(name))), limits },
      info,
    );
  }

  #entries() {
    return this.#index.bundles.filter((entry) => entry.op !== COPY);
  }

  async #bundle({ file }) {
    if (!this.#bundles.has(file)) this.#bundles.set(file, await load(`bundles/${file}`));
    return this.#bundles.get(file);
  }

  #updateButtons() {
    const busy = this.#running !== null;
    this.#controls.enabled = !busy;
    for (const id of ["run", "all"]) byId(id).disabled = busy || this.#refusal !== null;
    byId("stop").disabled = !busy;
    byId("download").disabled = busy || !window.webnormReport?.results?.length;
  }
}

function withheld({ subgroups }) {
  return subgroups ? [] : ["subgroups"];
}

async function load(file) {
  const answer = await fetch(file, { cache: "no-cache" }).catch((error) => {
    throw new Complaint(`${file} did not load: ${error.message}. Is the server still there?`);
  });
  if (!answer.ok) {
    throw new Complaint(`${file} did not load: the server says ${answer.status}. Serve the whole folder.`);
  }
  return answer.json();
}

function say(text, share = 1) {
  byId("status").textContent = text;
  byId("progress").value = share;
}

function complain(error) {
  if (!(error instanceof Complaint)) console.error(error);
  say(error.message);
}

/** What the address asks for: controls by their names, subgroups=0, auto=1 to begin, all=1 for all ops. */
function asked() {
  const query = new URLSearchParams(location.search);
  const wanted = Object.fromEntries(
    ["op", "cols", "dtype", "distribution", "rows"]
      .filter((name) => query.has(name))
      .map((name) => [name, query.get(name)]),
  );
  if (query.has("subgroups")) wanted.subgroups = query.get("subgroups") !== "0";
  return { wanted, auto: query.get("auto") === "1", all: query.get("all") === "1" };
}

const lab = new Lab();
const started = lab.start();
window.webnormLab = { run: (options) => started.then(() => lab.run(options)) };
started
  .then(() => {
    const { wanted, auto, all } = asked();
    return auto ? lab.run({ ...wanted, all }) : lab.choose(wanted);
  })
  .catch((error) => {
    document.body.dataset.state = "error";
    complain(error);
    window.webnormReport = { error: error.message, engine: navigator.userAgent };
  });
