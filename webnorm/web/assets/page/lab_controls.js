// The lab's controls: what may be chosen, and what is.
// rows and cols: names of the lab's index and of the page's address.

import { byId, element } from "./dom.js";
import { Complaint } from "./gpu.js";
import { distributionsFor } from "./draws.js";

// In the order in which one narrows the next.
const SELECTS = ["op", "options", "cols", "dtype", "distribution"];
const NUMBERS = ["rows", "seed"];

/**
 * @typedef {{ op: string, options: string[], cols: number, dtype: string, distribution: string, rows: number,
 *   seed: number, subgroups: boolean, kernels: string[] | null }} Choice
 * options: in the words of `--option`, none for the op's own; kernels: those that are run, null for all.
 */

/** The form of lab.html, and which kernels are run. */
export class Controls {
  #entries;
  #machine;
  #leftOut = new Set();

  /**
   * @param {object[]} entries  of bundles/index.json
   * @param {"gpu" | "handheld" | "software"} machine  which of the index's rows suit the adapter
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
    const taken = kernels.filter((name) => !this.#leftOut.has(name));
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
   * Set what is given, the rest to what goes with it. Throws a Complaint for what there is not.
   * @param {Partial<Choice>} wanted
   */
  set(wanted) {
    for (const id of SELECTS.filter((name) => wanted[name] !== undefined)) {
      const value = String(wanted[id]);
      const offered = Array.from(byId(id).options, (option) => option.value);
      if (!offered.includes(value)) throw unlike(id, value, `one of ${offered.filter(Boolean).join(", ")}`);
      byId(id).value = value;
      this.#narrow();
    }
    if (wanted.op !== undefined) this.#leftOut.clear();
    if (wanted.rows === undefined) this.suggestRows();
    for (const id of NUMBERS.filter((name) => wanted[name] !== undefined)) byId(id).value = wanted[id];
    byId("subgroups").checked = wanted.subgroups ?? byId("subgroups").checked;
    for (const id of NUMBERS) checkNumber(id, wanted[id] ?? byId(id).value);
    if (wanted.kernels !== undefined) this.#take(wanted.kernels);
  }

  /** Bring the other controls in line with the one that a person has changed. */
  changed(id) {
    if (id === "op") this.#leftOut.clear();
    this.#narrow();
    if (["op", "options", "cols", "dtype"].includes(id)) this.suggestRows();
  }

  /** Whether a kernel is run. */
  takes(kernel) {
    return !this.#leftOut.has(kernel);
  }

  /** Run a kernel from now on, or leave it out. */
  take(kernel, taken) {
    if (taken) this.#leftOut.delete(kernel);
    else this.#leftOut.add(kernel);
  }

  /** So many rows as the index holds good for the adapter. */
  suggestRows() {
    byId("rows").value = this.entry.rows[this.#machine];
  }

  /** The index's entry of the choice. */
  get entry() {
    const values = ["op", "options", "cols", "dtype"].map((id) => byId(id).value);
    return this.#entries.find((one) => keyOf(one) === values.join());
  }

  #take(kernels) {
    const known = this.entry.kernels;
    for (const name of kernels ?? []) {
      if (!known.includes(name)) throw unlike("kernels", name, `some of ${known.join(", ")}`);
    }
    this.#leftOut = new Set(kernels && known.filter((name) => !kernels.includes(name)));
  }

  #narrow() {
    let left = this.#entries;
    for (const id of SELECTS.slice(0, -1)) {
      const told = (entry) => String(entry[id]);
      offer(id, left.map(told));
      left = left.filter((entry) => told(entry) === byId(id).value);
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

function unlike(id, value, expected) {
  return new Complaint(`${id} is ${value}; expected ${expected}`);
}

function checkNumber(id, given) {
  const { min, max, validity } = byId(id);
  if (!validity.valid) throw unlike(id, given, `a whole number from ${min} to ${max}`);
}

/** Fill a select; what was chosen stays where it is still offered. */
function offer(id, values) {
  const select = byId(id);
  const kept = select.value;
  const offered = [...new Set(values.map(String))];
  const text = (value) => value.replaceAll(",", ", ") || "the op's own";
  select.replaceChildren(...offered.map((value) => element("option", { value }, text(value))));
  if (offered.includes(kept)) select.value = kept;
}
