// The page's address contains the selection: opening it restores the selection, and `run` starts a run.
// cols and rows are names in existing links.

import { Complaint } from "./gpu.js";

// Values written to the address as they are, in this order; the form reads the numbers.
const PLAIN = ["op", "cols", "dtype", "distribution", "rows", "seed"];
const LISTS = ["options", "kernels"];
const FLAGS = ["subgroups", "run", "all"];
const KNOWN = [...PLAIN, ...LISTS, ...FLAGS];

/**
 * Read the selection from an address. Throws a Complaint for an unknown name or flag.
 * @param {string} search
 * @returns {{ wanted: Partial<import("./lab_controls.js").Choice>, run: boolean, all: boolean }}
 *   run: start at once; all: run every op
 */
export function readAddress(search) {
  const query = new URLSearchParams(search);
  for (const name of query.keys()) {
    if (KNOWN.includes(name)) continue;
    throw new Complaint(`the address has ${name}=${query.get(name)}; expected ${KNOWN.join(", ")}`);
  }
  const wanted = {};
  for (const name of PLAIN.filter((one) => query.has(one))) wanted[name] = query.get(name);
  for (const name of LISTS.filter((one) => query.has(one))) wanted[name] = listed(query.get(name));
  const { subgroups, run = false, all = false } = flagsOf(query);
  return { wanted: { ...wanted, subgroups }, run, all };
}

function listed(text) {
  return text.split(",").filter(Boolean);
}

function flagsOf(query) {
  const found = {};
  for (const name of FLAGS.filter((one) => query.has(one))) {
    const value = query.get(name);
    if (!["", "0", "1"].includes(value)) throw new Complaint(`${name} is ${value}; expected 1, 0 or nothing`);
    found[name] = value !== "0";
  }
  return found;
}

/**
 * Return the address of a choice as a query; options, kernels and subgroups only if they differ from the defaults.
 * @param {import("./lab_controls.js").Choice} choice
 * @returns {string}
 */
export function addressOf(choice) {
  const query = new URLSearchParams();
  for (const name of PLAIN) query.set(name, choice[name]);
  if (choice.options.length > 0) query.set("options", choice.options.join());
  if (choice.kernels !== null) query.set("kernels", choice.kernels.join());
  if (!choice.subgroups) query.set("subgroups", "0");
  // A query may contain commas unescaped.
  return `?${query.toString().replaceAll("%2C", ",")}`;
}
