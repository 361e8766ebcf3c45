// The lab's controls: the possible values and the current selection.
// rows and cols are names of the lab's index and of the page's address.

import { byId, element } from "./dom.js";
import { Complaint } from "./gpu.js";
import { distributionsFor } from "./draws.js";

// Each select narrows the options of the next.
const SELECTS = ["op", "options", "cols", "dtype", "distribution"];
const NUMBERS = ["rows", "seed"];

/**
 * @typedef {{ op: string, options: string[], cols: number, dtype: string, distribution: string, rows: number,
 *   seed: number, subgroups: boolean, kernels: string[] | null }} Choice
 * options: as for `--option`, empty for the op's defaults; kernels: the kernels to run, null for all.
 */

/** The form of lab.html, and the kernels to run. */
export class Controls {
  #entries;
  #machine;
  #excluded = new Set();

  /**
   * @param {object[]} entries  of bundles/index.json
   * @param {"gpu" | "handheld" | "software"} machine  selects the suggested rows of the index
   */
  constructor(entries, machine) {
    this.#entries = entries;
    this.#machine = machine;
    this.#narrow();
    this.suggestRows();
  }

  /** @returns {Choice} */
  get choice() {
    const { kernels } = this.entry;
    const taken = kernels.filter((name) => !this.#excluded.has(name));
    return {
      op: byId("op").value,
      options: words(byId("options").value),
      cols: Number(byId("cols").value),
      dtype: byId("dtype").value,
      distribution: byId("distribution").value,
      rows: Number(byId("rows").value),
      seed: Number(byId("seed").value),
      subgroups: byId("subgroups").checked,
      kernels: taken.length === kernels.length ? null : taken,
    };
  }

  /**
   * Set the given controls and adapt the others. Throws a Complaint for a value that is not offered.
   * @param {Partial<Choice>} wanted
   */
  set(wanted) {
    for (const id of SELECTS.filter((name) => wanted[name] !== undefined)) {
      const value = String(wanted[id]);
      const offered = Array.from(byId(id).options, (option) => option.value);
      if (!offered.includes(value)) throw unexpected(id, value, `one of ${offered.filter(Boolean).join(", ")}`);
      byId(id).value = value;
      this.#narrow();
    }
    if (wanted.op !== undefined) this.#excluded.clear();
    if (wanted.rows === undefined) this.suggestRows();
    for (const id of NUMBERS.filter((name) => wanted[name] !== undefined)) byId(id).value = wanted[id];
    byId("subgroups").checked = wanted.subgroups ?? byId("subgroups").checked;
    for (const id of NUMBERS) checkNumber(id, wanted[id] ?? byId(id).value);
    if (wanted.kernels !== undefined) this.#take(wanted.kernels);
  }

  /** Adapt the other controls to the one that the user changed. */
  changed(id) {
    if (id === "op") this.#excluded.clear();
    this.#narrow();
    if (["op", "options", "cols", "dtype"].includes(id)) this.suggestRows();
  }

  /** Return true if a kernel is run. */
  takes(kernel) {
    return !this.#excluded.has(kernel);
  }

  /** Include a kernel in later runs, or exclude it. */
  take(kernel, taken) {
    if (taken) this.#excluded.delete(kernel);
    else this.#excluded.add(kernel);
  }

  /** Set the number of rows that the index suggests for the adapter. */
  suggestRows() {
    byId("rows").value = this.entry.rows[this.#machine];
  }

  /** The entry of the index for the current selection. */
  get entry() {
    const values = ["op", "options", "cols", "dtype"].map((id) => byId(id).value);
    return this.#entries.find((one) => keyOf(one) === values.join());
  }

  #take(kernels) {
    const known = this.entry.kernels;
    for (const name of kernels ?? []) {
      if (!known.includes(name)) throw unexpected("kernels", name, `some of ${known.join(", ")}`);
    }
    this.#excluded = new Set(kernels && known.filter((name) => !kernels.includes(name)));
  }

  #narrow() {
    let left = this.#entries;
    for (const id of SELECTS.slice(0, -1)) {
      const valueOf = (entry) => String(entry[id]);
      offer(id, left.map(valueOf));
      left = left.filter((entry) => valueOf(entry) === byId(id).value);
    }
    offer("distribution", distributionsFor(byId("dtype").value));
  }
}

function keyOf({ op, options, cols, dtype }) {
  return [op, options, cols, dtype].join();
}

function words(text) {
  return text.split(",").filter(Boolean);
}

function unexpected(id, value, expected) {
  return new Complaint(`${id} is ${value}; expected ${expected}`);
}

function checkNumber(id, given) {
  const { min, max, validity } = byId(id);
  if (!validity.valid) throw unexpected(id, given, `a whole number from ${min} to ${max}`);
}

/** Fill a select; the current value stays selected if it is still offered. */
function offer(id, values) {
  const select = byId(id);
  const kept = select.value;
  const offered = [...new Set(values.map(String))];
  const text = (value) => value.replaceAll(",", ", ") || "the op's defaults";
  select.replaceChildren(...offered.map((value) => element("option", { value }, text(value))));
  if (offered.includes(kept)) select.value = kept;
}
