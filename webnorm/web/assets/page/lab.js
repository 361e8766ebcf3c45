// The lab: shows the kernels of its bundles, and checks and times them on request.
// cols is a name of the lab's index.

import { descriptorFor, traitsOf } from "../runtime.js";
import { allow, allowed, byId, download } from "./dom.js";
import {
  adapterFacts,
  adapterName,
  browserName,
  Complaint,
  findAdapter,
  handheld,
  openDevice,
} from "./gpu.js";
import { addressOf, readAddress } from "./lab_address.js";
import { Controls } from "./lab_controls.js";
import { overviewCard, standingCard, standingOf } from "./lab_recorded.js";
import { asJson, deviceDescription } from "./lab_results.js";
import { announce, share, summaryText } from "./lab_share.js";
import { checkedText, resultCard, showLadder, showResult, summary } from "./lab_view.js";
import { withRoomForOrder } from "./ordered.js";
import { Bench, ladder } from "./trials.js";

const COPY = "copy";

window.webnormStarted = true;

/** The page: the selection, and one run at a time. */
class Lab {
  #index;
  #controls;
  #bundles = new Map();
  #lines = new Map();
  #recorded;
  // The last run compared with recorded devices, and the link to its selection.
  #standings = [];
  #link = "";
  #adapter = null;
  #refusal = null;
  #running = null;
  // True once the device's times did not settle; later runs then do not wait for that.
  #restless = false;

  /** Load the index and find an adapter; without one the page still shows the kernels. */
  async start() {
    [this.#index, this.#recorded] = await Promise.all(
      ["bundles/index.json", "page/lab_recorded.json"].map(load),
    );
    try {
      this.#adapter = await findAdapter();
    } catch (error) {
      this.#refusal = error;
    }
    const machine = this.#machine();
    this.#controls = new Controls(this.#entries(), machine);
    // Without subgroups there is no choice, and a link to this selection leaves the choice to its reader.
    byId("subgroups").closest("label").hidden = this.#adapter?.features.has("subgroups") === false;
    this.#controls.set({ cols: this.#index.first_cols[machine] });
    this.#listen();
    await this.#showKernels();
    if (this.#index.submit) await this.#offerSubmission(this.#index.submit);
    this.#updateButtons();
    byId("footer").textContent =
      `webnorm ${this.#index.webnorm}. To compare two runs: webnorm compare OLD.json NEW.json.`;
    if (this.#refusal) throw this.#refusal;
    const { software } = this.#traits();
    const name = adapterName(adapterFacts(this.#adapter, software));
    say(`Ready on ${name}${software ? " (software)" : ""} in ${browserName()}.`);
  }

  #listen() {
    byId("form").addEventListener("change", (event) => {
      this.#controls.changed(event.target.id);
      this.#updateAddress();
      this.#showKernels().catch(complain);
    });
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (allowed("run")) this.run(this.#controls.choice).catch(complain);
    });
    const actions = {
      all: () => this.run({ ...this.#controls.choice, all: true }).catch(complain),
      stop: () => this.#running.abort(),
      share: () => share(this.#summary(), byId("share")),
      download: () => download("webnorm-lab.json", `${JSON.stringify(window.webnormReport)}\n`),
    };
    for (const [id, act] of Object.entries(actions)) {
      byId(id).addEventListener("click", () => allowed(id) && act());
    }
  }

  async #offerSubmission(url) {
    const { offer } = await import("./lab_submit.js");
    offer(url, () => window.webnormReport);
    byId("privacy").append(
      " “Submit…” shows the data that you can send to the owner of this page. It sends them only when you press “Send this”.",
    );
  }

  #summary() {
    return summaryText(this.#standings, summary(window.webnormReport.results), this.#link);
  }

  /** Write the selection into the address, so that the link restores it. */
  #updateAddress() {
    history.replaceState(null, "", addressOf(this.#controls.choice));
  }

  /**
   * Set the controls.
   * @param {Partial<import("./lab_controls.js").Choice>} wanted
   */
  async choose(wanted) {
    try {
      this.#controls.set(wanted);
    } finally {
      await this.#showKernels();
    }
  }

  /**
   * Check and time every kernel of a choice. Missing options keep the state of the controls; missing rows get the
   * suggested number.
   * @param {Partial<import("./lab_controls.js").Choice> & { all?: boolean }} options
   *   `all`: every op that has a bundle of these options, columns and this storage type
   * @returns {Promise<object>} the report, also stored as window.webnormReport
   */
  async run({ all = false, ...wanted } = {}) {
    if (this.#running) throw new Error("a run is in progress; stop it first");
    this.#controls.set(wanted);
    const { choice } = this.#controls;
    if (choice.kernels?.length === 0) throw new Complaint("no kernel is selected; select at least one");
    this.#running = new AbortController();
    document.body.dataset.state = "running";
    window.webnormReport = undefined;
    this.#clear(choice);
    const report = { webnorm: this.#index.webnorm, device: {}, results: [] };
    try {
      await this.#showKernels();
      await this.#runTasks(choice, all, report);
    } catch (error) {
      report.error = error.message;
      complain(error);
    } finally {
      this.#showStandings();
      this.#running = null;
      document.body.dataset.state = report.error ? "error" : "idle";
      window.webnormReport = asJson(report);
      this.#updateButtons();
    }
    return window.webnormReport;
  }

  #clear(choice) {
    this.#standings = [];
    this.#link = new URL(addressOf(choice), location.href).href;
    for (const id of ["devices", "results"]) byId(id).replaceChildren();
    for (const id of ["devices-section", "results-section"]) byId(id).hidden = true;
    byId("summary").hidden = true;
    announce("");
    this.#updateButtons();
  }

  async #runTasks(choice, all, report) {
    const { signal } = this.#running;
    const keyOf = ({ options, cols, dtype }) => [options, cols, dtype].join();
    const tasks = this.#entries().filter(
      (entry) => (all || entry.op === choice.op) && keyOf(entry) === keyOf(choice),
    );
    for (const [at, task] of tasks.entries()) {
      if (signal.aborted) break;
      const before = all ? `${task.op} (${at + 1} of ${tasks.length}): ` : "";
      const step = (text, share) => say(before + text, (at + share) / tasks.length);
      const kernels = task.op === choice.op ? choice.kernels : null;
      await this.#runTask(task, { ...choice, kernels }, report, { say: step, signal });
    }
    say(`${signal.aborted ? "Stopped. " : ""}${summary(report.results)}`);
  }

  /** Show one problem in detail, or several in an overview. */
  #showStandings() {
    const found = this.#standings;
    if (found.length === 0) return;
    byId("devices").replaceChildren(found.length === 1 ? standingCard(found[0]) : overviewCard(found));
    byId("devices-section").hidden = false;
  }

  async #runTask(task, choice, report, watcher) {
    const bundle = await this.#bundle(task);
    const isCopy = ({ op, cols, dtype }) => op === COPY && cols === task.cols && dtype === task.dtype;
    const copies = await this.#bundle(this.#index.bundles.find(isCopy));
    const shaders = [...bundle.manifest.shaders, ...copies.manifest.shaders];
    // An adapter gives one device.
    const adapter = await findAdapter();
    const descriptor = withRoomForOrder(descriptorFor({ shaders }, adapter), shaders, adapter);
    const device = await openDevice(adapter, descriptor, withheld(choice));
    const traits = { ...traitsOf(device, adapter.info), offered: adapter.features };
    report.device = deviceDescription(device, adapterFacts(adapter, traits.software));
    const machine = { device, adapterInfo: adapter.info, traits, restless: this.#restless };
    const bench = new Bench(machine, bundle, copies, choice, watcher);
    try {
      await bench.run();
    } finally {
      device.destroy();
      this.#restless = !bench.settled;
      const results = bench.results();
      report.results.push(...results);
      byId("results").append(resultCard(results, checkedText(bench), traits.software));
      byId("results-section").hidden = false;
      results.forEach(showResult);
      const mine = { name: report.device.adapter, software: traits.software, browser: browserName() };
      const standing = standingOf(results, task.file.replace(/\.json$/, ""), mine, this.#recorded);
      if (standing) this.#standings.push(standing);
    }
  }

  async #showKernels() {
    const { entry } = this.#controls;
    const bundle = await this.#bundle(entry);
    // The selection changed while loading: the later call draws it.
    if (this.#controls.entry !== entry) return;
    showLadder(bundle.manifest.op, ladder(bundle, this.#traits()), {
      takes: (kernel) => this.#controls.takes(kernel),
      take: (kernel, taken) => {
        this.#controls.take(kernel, taken);
        this.#updateAddress();
      },
    });
  }

  #machine() {
    if (this.#adapter && this.#traits().software) return "software";
    return handheld() ? "handheld" : "gpu";
  }

  /** Return the traits of a device with everything the adapter supports, minus what the controls exclude. */
  #traits() {
    const { features, limits, info } = this.#adapter ?? {
      features: new Set(["subgroups"]),
      limits: {},
      info: {},
    };
    const without = this.#controls ? withheld(this.#controls.choice) : [];
    const left = new Set([...features].filter((name) => !without.includes(name)));
    return { ...traitsOf({ features: left, limits }, info), offered: features };
  }

  #entries() {
    return this.#index.bundles.filter((entry) => entry.op !== COPY);
  }

  /** Load a bundle. Its texts are stored as numbers of lines, which all texts of its op share. */
  async #bundle({ file, lines }) {
    if (!this.#bundles.has(file)) {
      const [{ manifest, texts }, all] = await Promise.all([load(`bundles/${file}`), this.#linesIn(lines)]);
      const whole = ([name, places]) => [name, places.map((place) => all[place]).join("\n")];
      this.#bundles.set(file, { manifest, texts: Object.fromEntries(Object.entries(texts).map(whole)) });
    }
    return this.#bundles.get(file);
  }

  async #linesIn(file) {
    if (!this.#lines.has(file)) this.#lines.set(file, await load(`bundles/${file}`));
    return this.#lines.get(file);
  }

  #updateButtons() {
    const busy = this.#running !== null;
    for (const id of ["run", "all"]) allow(id, !busy && this.#refusal === null);
    allow("stop", busy);
    const found = !busy && window.webnormReport?.results?.length > 0;
    for (const id of ["share", "download", "submit"].filter(byId)) allow(id, found);
  }
}

function withheld({ subgroups }) {
  return subgroups ? [] : ["subgroups"];
}

async function load(file) {
  const answer = await fetch(file, { cache: "no-cache" }).catch((error) => {
    throw new Complaint(`${file} did not load: ${error.message}. Check that the server is running.`);
  });
  if (!answer.ok) {
    throw new Complaint(`${file} did not load: status ${answer.status}. Serve the whole folder.`);
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

const lab = new Lab();
const started = lab.start();
window.webnormLab = { run: (options) => started.then(() => lab.run(options)) };
started
  .then(() => {
    const { wanted, run, all } = readAddress(location.search);
    return run ? lab.run({ ...wanted, all }) : lab.choose(wanted);
  })
  .catch((error) => {
    document.body.dataset.state = "error";
    complain(error);
    window.webnormReport = { error: error.message, engine: navigator.userAgent };
  });
