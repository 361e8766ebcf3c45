// The page's address, which holds what is chosen: opening it restores that, and with `run` begins.
// cols and rows: names of the address, which people have sent one another.

import { Complaint } from "./gpu.js";

// What goes into the address as it is, in this order; numbers are read by the form.
const PLAIN = ["op", "cols", "dtype", "distribution", "rows", "seed"];
const LISTS = ["options", "kernels"];
const FLAGS = ["subgroups", "run", "all"];
const KNOWN = [...PLAIN, ...LISTS, ...FLAGS];

/**
 * What an address asks for. Throws a Complaint for a name or a flag that makes no sense.
 * @param {string} search
 * @returns {{ wanted: Partial<import("./lab_controls.js").Choice>, run: boolean, all: boolean }}
 *   run: to begin at once; all: with every op
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
 * The address of a choice, as a query; options, kernels and subgroups only where they are not as usual.
 * @param {import("./lab_controls.js").Choice} choice
 * @returns {string}
 */
export function addressOf(choice) {
  const query = new URLSearchParams();
  for (const name of PLAIN) query.set(name, choice[name]);
  if (choice.options.length > 0) query.set("options", choice.options.join());
  if (choice.kernels !== null) query.set("kernels", choice.kernels.join());
  if (!choice.subgroups) query.set("subgroups", "0");
  // Commas may stand in a query as they are.
  return `?${query.toString().replaceAll("%2C", ",")}`;
}
