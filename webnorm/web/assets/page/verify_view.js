// The view of a report in verify.html.
// cols is a name of the manifest's format.

import { barChart } from "./chart.js";
import { byId, element } from "./dom.js";
import { bytesText, counted, optionsText } from "./format.js";
import { ShaderTable, verdictTag } from "./verify_table.js";
import { adapterName, browserName } from "./gpu.js";
import { showProgress, showRunning, showVerdict } from "./verify_run.js";

const SECTIONS = ["chosen-section", "shaders-section", "speed-section", "device-section"];

/** The page. Every method may be called again; it shows the current state of the report. */
export class View {
  #manifest = null;
  #table = new ShaderTable();
  #remarks = [];

  /** Reset the page before a run. */
  begin() {
    this.#remarks = [];
    showRunning();
    for (const id of SECTIONS) byId(id).hidden = true;
  }

  /** Show the progress of a run. */
  say = showProgress;

  /** Add a remark below the charts. */
  remark(text) {
    this.#remarks.push(text);
  }

  /** Show the package that is checked. */
  showPackage(manifest) {
    this.#manifest = manifest;
    const { op, cols, problem } = manifest;
    const options = optionsText(problem.options);
    const { axis = "columns" } = this.#manifest;
    const sizes = axis ? `${cols.join(", ")} ${axis}, ` : "";
    byId("title").textContent = `${op}, ${sizes}${problem.dtype}`;
    const what = options ? `Options: ${options}. ` : "";
    byId("subtitle").textContent =
      `${what}This page checks every shader of this package on this device, against float64.`;
    byId("footer").replaceChildren(
      `webnorm ${manifest.webnorm}. Exported with `,
      element("code", {}, manifest.command),
      ".",
    );
  }

  /** Show all results so far. */
  show(report) {
    if (report.adapter) {
      byId("device").replaceChildren(...deviceFacts(report));
      byId("device-section").hidden = false;
    }
    if (report.shaders.length) {
      byId("chosen").replaceChildren(...this.#manifest.cols.map((cols) => chosenTile(report, cols)));
      byId("shaders").replaceChildren(this.#table.show(report, this.#manifest));
      byId("chosen-section").hidden = byId("shaders-section").hidden = false;
    }
    const charts = report.copy.map((copy) => speedCard(report, copy));
    const remarks = this.#remarks.map((text) => element("p", { class: "muted small" }, text));
    byId("speed").replaceChildren(...charts, ...remarks);
    byId("speed-section").hidden = charts.length + remarks.length === 0;
  }

  /** Show the verdict. */
  end(report) {
    this.show(report);
    showVerdict(...verdictOf(report));
  }
}

function verdictOf(report) {
  if (report.error) return ["error", "The check could not run", report.error];
  const ran = report.shaders.filter((entry) => entry.verdict !== "skip");
  const failed = ran.filter((entry) => entry.verdict === "fail");
  const compared = ran.flatMap((entry) => entry.vectors).filter((vector) => vector.verdict !== "skip");
  const where = `on ${adapterName(report.adapter)} in ${browserName()}, in ${report.seconds.toFixed(1)} s`;
  if (ran.length === 0) {
    if (report.shaders.some((entry) => entry.vectors.length)) {
      return ["error", "No output could be compared", "The table below shows the reasons."];
    }
    return ["error", "No shader can run here", "Each shader needs something that this device lacks; see the table below."];
  }
  const skipped = report.shaders.filter((entry) => entry.skipped && !entry.vectors.length).length;
  const rest = skipped ? ` ${counted(skipped, "shader")} cannot run here.` : "";
  const results = `${counted(compared.length, "result")} of ${counted(ran.length, "shader")}`;
  const checked = `${results} checked against float64 ${where}.${rest}`;
  const without = Object.keys(report.chosen).filter((cols) => report.chosen[cols] === null);
  if (without.length) return ["fail", `No shader for ${without.join(", ")} columns`, checked];
  if (failed.length === 0) {
    const all = ran.length === 1 ? "The shader is" : `All ${ran.length} shaders are`;
    return ["pass", `${all} right here`, checked];
  }
  const chosen = failed.filter((entry) => entry.chosen).map((entry) => entry.name);
  const worse = chosen.length ? ` On this device an application gets ${chosen.join(", ")}, which is wrong.` : "";
  return ["fail", `${failed.length} of ${counted(ran.length, "shader")} failed`, `${checked}${worse}`];
}

function chosenTile(report, cols) {
  const entry = report.shaders.find((one) => one.cols === cols && one.chosen);
  return element(
    "div",
    { class: "card stack" },
    element(
      "div",
      { class: "tile-head" },
      element("span", { class: "muted" }, counted(cols, "column")),
      entry && entry.verdict !== "skip" && verdictTag(entry.verdict),
    ),
    element("strong", { class: "mono" }, report.chosen[cols] ?? "no shader"),
    element("p", { class: "small muted" }, `${report.reasons[cols]}.`),
  );
}

function speedCard(report, copy) {
  const timed = report.shaders.filter((entry) => entry.cols === copy.cols && entry.timing);
  const bars = timed
    .map(({ name, chosen, timing }) => ({
      label: name,
      gbps: timing.gbps,
      low: timing.bytes / timing.p80_ns,
      high: timing.bytes / timing.p20_ns,
      percent: timing.percent_of_copy,
      strong: chosen,
    }))
    .sort((a, b) => b.gbps - a.gbps);
  const { method, samples_ns: samples } = timed[0].timing;
  const how =
    `Median of ${counted(samples.length, "sample")} each, taken in turn, by ${method}. The thin line spans ` +
    "p20 to p80. Bold: chosen for this device.";
  const software = report.adapter.software
    ? " This is a software adapter: its times say nothing about a GPU."
    : "";
  return element(
    "div",
    { class: "card stack" },
    element("h3", {}, `${copy.cols} columns, ${counted(copy.rows, "row")}: GB/s, and percent of a WGSL copy`),
    barChart(`GB/s for ${copy.cols} columns`, bars, { label: "copy", gbps: copy.gbps }),
    element("p", { class: "muted small" }, how + software),
  );
}

function lines(texts) {
  return element("span", {}, ...texts.map((text) => element("span", { class: "line" }, text)));
}

function limitText(name, value) {
  return `${name} ${/Size$/.test(name) ? bytesText(value) : value}`;
}

function deviceFacts(report) {
  const { adapter } = report;
  const sizes = [adapter.subgroup_min_size, adapter.subgroup_max_size].filter((size) => size !== null);
  const facts = {
    Adapter: adapterName(adapter) + (adapter.software ? " (software)" : ""),
    "Vendor, architecture": [adapter.vendor, adapter.architecture].filter(Boolean).join(", "),
    Browser: browserName(),
    "Subgroup sizes": [...new Set(sizes)].join(" to "),
    Features: report.features.join(", "),
    Limits: lines(Object.entries(report.limits).map(([name, value]) => limitText(name, value))),
    "User agent": report.engine,
  };
  return Object.entries(facts)
    .filter(([, value]) => value)
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
}
