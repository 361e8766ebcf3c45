// The controls of the page of visits: the problem, the filters, and both in the page's address.
// rows and cols are names of the results' format and of the page's address.

import { byId, element } from "./dom.js";
import { VERDICTS } from "./visits_data.js";

// Each select narrows the values of the next.
const NARROWING = ["op", "options", "cols", "dtype", "distribution", "rows"];
const FILTERS = ["engine", "vendor", "adapter", "kind", "verdict"];
const KNOWN = [...NARROWING, ...FILTERS];
const ALL = "";
// The options of a problem at the op's defaults, in the address and as a select's value.
const DEFAULTS = "default";
const KINDS = [
  ["gpu", "GPU"],
  ["software", "software"],
];

/** The form of visits.html. */
export class Filters {
  #groups;

  /** @param {import("./visits_data.js").Group[]} groups */
  constructor(groups) {
    this.#groups = groups;
    const devices = groups.map(({ device }) => device);
    offer("engine", [[ALL, "all"], ...named(devices.map(({ engine }) => engine))]);
    offer("vendor", [[ALL, "all"], ...named(devices.map(({ vendor }) => vendor))]);
    offer("kind", [[ALL, "both"], ...KINDS]);
    offer("verdict", [[ALL, "all"], ...VERDICTS]);
    this.narrow();
  }

  /** Return the groups that match, each with the kernels that match. */
  get shown() {
    const verdict = byId("verdict").value;
    const groups = this.#groups.filter((group) => this.#matches(group));
    if (verdict === ALL) return groups;
    return groups
      .map((group) => ({ ...group, kernels: group.kernels.filter((kernel) => kernel[verdict] > 0) }))
      .filter(({ kernels }) => kernels.length > 0);
  }

  /** Adapt each select to the ones before it; the current values stay if they are still offered. */
  narrow() {
    let left = this.#groups.map(({ problem }) => problem);
    for (const id of NARROWING) {
      const values = left.map((problem) => valueOf(problem, id));
      const all = id === "rows" ? [[ALL, "all"]] : [];
      offer(id, [...all, ...sorted(id, values).map((value) => [value, textOf(id, value)])], all.length ? ALL : values[0]);
      const value = byId(id).value;
      left = left.filter((problem) => value === ALL || valueOf(problem, id) === value);
    }
  }

  /** Clear the filters; the problem stays. */
  clear() {
    for (const id of FILTERS) byId(id).value = ALL;
  }

  /** Return the state as a query: the problem, and the filters that are set. */
  get address() {
    const query = new URLSearchParams();
    for (const id of KNOWN) if (byId(id).value !== ALL) query.set(id, byId(id).value);
    return `?${query}`;
  }

  /**
   * Set the state from a query, and return a sentence about each part that is not offered.
   * @param {string} search
   * @returns {string[]}
   */
  read(search) {
    const query = new URLSearchParams(search);
    const faults = [...query.keys()]
      .filter((name) => !KNOWN.includes(name))
      .map((name) => `The address has ${name}=${query.get(name)}; expected ${KNOWN.join(", ")}.`);
    for (const id of KNOWN.filter((name) => query.has(name))) {
      const control = byId(id);
      const before = control.value;
      control.value = query.get(id);
      if (control.value !== query.get(id)) {
        control.value = before;
        faults.push(`No visitor sent results with ${id}=${query.get(id)}.`);
      }
      this.narrow();
    }
    return faults;
  }

  #matches({ device, problem }) {
    const { engine, vendor, adapter, kind } = Object.fromEntries(FILTERS.map((id) => [id, byId(id).value]));
    return (
      NARROWING.every((id) => [ALL, valueOf(problem, id)].includes(byId(id).value)) &&
      [ALL, device.engine].includes(engine) &&
      [ALL, named([device.vendor])[0][0]].includes(vendor) &&
      [ALL, device.software ? "software" : "gpu"].includes(kind) &&
      device.adapter.toLowerCase().includes(adapter.trim().toLowerCase())
    );
  }
}

function valueOf(problem, id) {
  return id === "options" ? problem.options || DEFAULTS : String(problem[id]);
}

function textOf(id, value) {
  return id === "options" && value === DEFAULTS ? "defaults" : value;
}

// A browser need not name the vendor, and an empty value stands for all.
const UNNAMED = "unnamed";

/** Return each name once, with its value and its text. */
function named(names) {
  return sorted("", names.map((name) => name || UNNAMED)).map((name) => [name, name === UNNAMED ? "not named" : name]);
}

/** Return each value once: numbers by size, defaults first, other texts by the alphabet. */
function sorted(id, values) {
  const byText = (one, other) => Number(other === DEFAULTS) - Number(one === DEFAULTS) || (one < other ? -1 : 1);
  const order = ["rows", "cols"].includes(id) ? (one, other) => one - other : byText;
  return [...new Set(values)].sort(order);
}

/** Fill a select with values and their texts; an unknown current value becomes `usual`. */
function offer(id, values, usual = ALL) {
  const select = byId(id);
  const before = Array.from(select.options, ({ value }) => value);
  const offered = values.map(([value]) => value);
  // A select that is in use keeps its options.
  if (JSON.stringify(before) === JSON.stringify(offered)) return;
  const kept = before.length > 0 && offered.includes(select.value) ? select.value : usual;
  select.replaceChildren(...values.map(([value, text]) => element("option", { value }, text)));
  select.value = kept;
}
