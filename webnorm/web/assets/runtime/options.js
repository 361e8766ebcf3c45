// Checks of callers' arguments. An error is one line with the value and what was expected. The rules for numbers and
// their words come from Python, through the manifest. No value is converted.

const kindOf = (value) => Object.prototype.toString.call(value).slice(8, -1);
export const isObject = (value) => typeof value === "object" && value !== null;
export const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
export const COUNT = "an integer of 0 or more";

/** Return any value as a short text of one line. */
export function shown(value) {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  if (!isObject(value) && typeof value !== "function") return `${String(value).slice(0, 40)}${typeof value === "bigint" ? "n" : ""}`;
  return isObject(value) && Number.isInteger(value.length) ? `${kindOf(value)} of ${value.length}` : `[object ${kindOf(value)}]`;
}

/** Return the Error for a wrong value. */
export function unexpected(op, name, value, expected) {
  const advice = kindOf(value) === "Promise" ? ": await the promise" : "";
  return new Error(`${op}: ${name} is ${shown(value)}; expected ${expected}${advice}`);
}

/** Throw an Error unless a value is a plain object, which has the `listed` names. */
export function checkObject(op, name, value, listed) {
  if (kindOf(value) !== "Object") throw unexpected(op, name, value, `an object { ${listed} }`);
}

/** Return the options; throw an Error unless they are an object whose names are all in `names`. */
export function checkedOptions(op, options = {}, names) {
  const listed = names.join(", ");
  checkObject(op, "options", options, listed);
  const unknown = Object.keys(options).find((name) => options[name] !== undefined && !names.includes(name));
  if (unknown !== undefined) throw new Error(`${op}: ${unknown} is not an option; expected ${listed}`);
  return options;
}

/** Throw an Error unless a value is a number that a rule of the manifest allows. */
export function checkNumber(op, name, value, { zero, least, below, expected, whole = false }) {
  const inside = typeof value === "number" && ((zero && value === 0) || (value >= least && value < below));
  const fits = inside && (!whole || Number.isInteger(value));
  if (!fits) throw unexpected(op, name, value, expected);
}
