// What callers may ask for by name.

/** Options as an object; an Error for a name that is none of `names`. */
export function checkedOptions(op, options, names) {
  const strange = Object.keys(options ?? {}).find((name) => !names.includes(name));
  if (strange) throw new Error(`${op}: ${strange} is no option; expected ${names.join(", ")}`);
  return options ?? {};
}
