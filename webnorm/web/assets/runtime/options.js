// What callers hand over. A refusal is one line that names the value and what was expected; the rules for numbers
// are Python's, as the manifest has them, and so are their words. Nothing is converted.

const kindOf = (value) => Object.prototype.toString.call(value).slice(8, -1);
export const isObject = (value) => typeof value === "object" && value !== null;
export const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
export const COUNT = "an integer of 0 or more";

/** A value as a message shows it: in one line, and short whatever it is. */
export function shown(value) {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  if (!isObject(value) && typeof value !== "function") return `${String(value).slice(0, 40)}${typeof value === "bigint" ? "n" : ""}`;
  return isObject(value) && Number.isInteger(value.length) ? `${kindOf(value)} of ${value.length}` : `[object ${kindOf(value)}]`;
}

/** The Error for a value. */
export function unexpected(op, name, value, expected) {
  return new Error(`${op}: ${name} is ${shown(value)}; expected ${expected}`);
}

/** Options as an object; an Error for what is none, or has a name that is none of `names`. */
export function checkedOptions(op, options = {}, names) {
  const listed = names.join(", ");
  if (kindOf(options) !== "Object") throw unexpected(op, "options", options, `an object of ${listed}`);
  const strange = Object.keys(options).find((name) => options[name] !== undefined && !names.includes(name));
  if (strange !== undefined) throw new Error(`${op}: ${strange} is no option; expected ${listed}`);
  return options;
}

/** An Error for what is no number by a rule of the manifest. */
export function checkNumber(op, name, value, { zero, least, below, expected, whole = false }) {
  const inside = typeof value === "number" && ((zero && value === 0) || (value >= least && value < below));
  const fits = inside && (!whole || Number.isInteger(value));
  if (!fits) throw unexpected(op, name, value, expected);
}
