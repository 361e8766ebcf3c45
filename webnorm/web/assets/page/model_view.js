// The view of a report in the page of a model's package.

import { byId, element } from "./dom.js";
import { counted, errorText } from "./format.js";
import { adapterName, browserName } from "./gpu.js";
import { row, table } from "./table.js";
import { verdictTag } from "./verify_table.js";

const BUTTONS = ["again", "copy", "download"];
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
    document.body.dataset.state = "running";
    for (const id of BUTTONS) byId(id).disabled = true;
    byId("verdict").textContent = "Checking";
    this.say("Starting.", 0);
  }

  /**
   * Show the progress of a run.
   * @param {string} text
   * @param {number} [share]  of the step, from 0 to 1
   */
  say(text, share) {
    byId("status").textContent = text;
    if (share === undefined) byId("progress").removeAttribute("value");
    else byId("progress").value = share;
  }

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
    const [state, headline, detail] = verdictOf(report);
    document.body.dataset.state = state;
    byId("verdict").textContent = headline;
    this.show(report);
    byId("status").textContent = detail;
    byId("progress").value = 1;
    for (const id of BUTTONS) byId(id).disabled = false;
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
