// The view of a report in the page of a model's package.

import { byId, element } from "./dom.js";
import { counted, errorText } from "./format.js";
import { adapterName, browserName } from "./gpu.js";
import { row, table } from "./table.js";
import { showProgress, showRunning, showVerdict } from "./verify_run.js";
import { verdictTag } from "./verify_table.js";

const COLUMNS = [
  { name: "Norm", wide: true, unnamed: true },
  { name: "In the model" },
  { name: "Shader", wide: true },
  { name: "Verdict" },
  { name: "Max error", number: true },
];

/** The page. Every method may be called again; it shows the current state of the report. */
export class ModelView {
  #norms = [];

  /** Reset the page before a run. */
  begin() {
    showRunning();
  }

  /** Show the progress of a run. */
  say = showProgress;

  /** Show the norms that the package lists. */
  showModel({ name, model, norms, webnorm, command }) {
    this.#norms = norms;
    byId("title").textContent = name;
    byId("subtitle").textContent =
      `This page creates the norms of ${model} on this device as an app does, and checks them against float64.`;
    byId("footer").replaceChildren(`webnorm ${webnorm}. Exported with `, element("code", {}, command), ".");
  }

  /** Show all results so far. */
  show(report) {
    const lines = this.#norms.map((norm) => {
      const found = report.norms.find((one) => one.name === norm.name);
      const link = element("a", { href: `norms/${norm.name}/verify.html`, class: "mono" }, norm.name);
      const tag = found ? verdictTag(found.verdict) : "";
      return row(COLUMNS, [link, counted(norm.count, "time"), found?.shader ?? "", tag, errorText(found?.max_abs_error)]);
    });
    byId("norms").replaceChildren(element("div", { class: "card table" }, table(COLUMNS, lines)));
  }

  /** Show the verdict. */
  end(report) {
    this.show(report);
    showVerdict(...verdictOf(report));
    byId("progress").value = 1;
  }
}

function verdictOf({ error, failure, norms, adapter, seconds }) {
  if (error) return ["error", "The check could not run", error];
  if (failure) return ["fail", "createNorms fails here", failure];
  const where = `on ${adapterName(adapter)} in ${browserName()}, in ${seconds.toFixed(1)} s`;
  const wrong = norms.filter((one) => one.verdict === "fail");
  if (wrong.length) {
    const reasons = wrong.map((one) => `${one.name}: ${one.reason}`).join("; ");
    return ["fail", `${wrong.length} of ${counted(norms.length, "norm")} failed`, `${reasons} (${where})`];
  }
  const right = norms.filter((one) => one.verdict === "pass");
  if (!right.length) return ["error", "No output could be compared", `Nothing was compared ${where}.`];
  return ["pass", `${right.length} of ${counted(norms.length, "norm")} are right here`, `Checked against float64 ${where}.`];
}
