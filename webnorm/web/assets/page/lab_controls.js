// The lab's controls: what may be chosen, and what is.

import { byId, element } from "./dom.js";
import { Complaint } from "./gpu.js";
import { distributionsFor } from "./draws.js";

// In the order in which one narrows the next.
const SELECTS = ["op", "cols", "dtype", "distribution"];

/**
 * @typedef {{ op: string, cols: number, dtype: string, distribution: string, rows: number,
 *   subgroups: boolean }} Choice
 */

/** The form of lab.html. */
export class Controls {
  #entries;
  #software;

  /**
   * @param {object[]} entries  of bundles/index.json
   * @param {boolean} software  whether the adapter is, which wants fewer rows
   */
  constructor(entries, software) {
    this.#entries = entries;
    this.#software = software;
    this.#narrow();
    this.suggestRows();
  }

  /** @returns {Choice} */
  get choice() {
    return {
      op: byId("op").value,
      cols: Number(byId("cols").value),
      dtype: byId("dtype").value,
      distribution: byId("distribution").value,
      rows: Number(byId("rows").value),
      subgroups: byId("subgroups").checked,
    };
  }

  /**
   * Set what is given, the rest to what goes with it. Throws a Complaint for what there is not.
   * @param {Partial<Choice>} wanted
   */
  set(wanted) {
    for (const id of SELECTS.filter((name) => wanted[name] !== undefined)) {
      const offered = Array.from(byId(id).options, (option) => option.value);
      if (!offered.includes(String(wanted[id]))) {
        throw new Complaint(`${id} is ${wanted[id]}; expected one of ${offered.join(", ")}`);
      }
      byId(id).value = wanted[id];
      this.#narrow();
    }
    if (wanted.rows === undefined) this.suggestRows();
    else byId("rows").value = wanted.rows;
    byId("subgroups").checked = wanted.subgroups ?? byId("subgroups").checked;
    if (!byId("rows").checkValidity()) throw new Complaint(`rows: ${byId("rows").validationMessage}`);
  }

  /** Bring the other controls in line with the one that a person has changed. */
  changed(id) {
    this.#narrow();
    if (["op", "cols", "dtype"].includes(id)) this.suggestRows();
  }

  /** So many rows as the index holds good for the adapter. */
  suggestRows() {
    const { rows, software_rows: fewer } = this.entry;
    byId("rows").value = this.#software ? fewer : rows;
  }

  /** The index's entry of the choice. */
  get entry() {
    const { op, cols, dtype } = this.choice;
    return this.#entries.find((one) => one.op === op && one.cols === cols && one.dtype === dtype);
  }

  /** Whether the controls may be used. */
  set enabled(enabled) {
    for (const id of [...SELECTS, "rows", "subgroups"]) byId(id).disabled = !enabled;
  }

  #narrow() {
    offer(
      "op",
      this.#entries.map((entry) => entry.op),
    );
    const ofOp = this.#entries.filter((entry) => entry.op === this.choice.op);
    offer(
      "cols",
      ofOp.map((entry) => entry.cols),
    );
    offer(
      "dtype",
      ofOp.filter((entry) => entry.cols === this.choice.cols).map((entry) => entry.dtype),
    );
    offer("distribution", distributionsFor(this.choice.dtype));
  }
}

/** Fill a select; what was chosen stays where it is still offered. */
function offer(id, values) {
  const select = byId(id);
  const kept = select.value;
  const offered = [...new Set(values.map(String))];
  select.replaceChildren(...offered.map((value) => element("option", { value }, value)));
  if (offered.includes(kept)) select.value = kept;
}
