// The tables of the page of visits. Everything from visitors becomes text, never HTML.
// rows is a name of the results' format.

import { button, element } from "./dom.js";
import { counted, errorText, NOTHING, percentText } from "./format.js";
import { statistics } from "./statistics.js";
import { row, table } from "./table.js";
import { VERDICTS, worse } from "./visits_data.js";

const TAGS = { pass: "pass", fail: "fail", error: "fail", expected: "warn" };
const BY_ENGINE = [
  { name: "Engine", wide: true, unnamed: true },
  { name: "Versions" },
  { name: "Adapters", number: true },
  { name: "Visits", number: true },
  { name: "Fastest kernel, of copy", number: true },
  { name: "Largest error", number: true },
  { name: "Results by verdict", wide: true },
];
const ADAPTER = { name: "Adapter", wide: true, unnamed: true };
// A visitor can invent kernels. These many columns are more than any op of webnorm needs.
const MOST_KERNELS = 20;
const FIRST_LINES = 50;
const MORE_LINES = 200;

/**
 * Return one line per engine, apart for GPUs and software adapters.
 * @param {import("./visits_data.js").Group[]} groups
 * @returns {HTMLElement}
 */
export function engineTable(groups) {
  const lines = new Map();
  for (const group of groups) {
    const key = JSON.stringify([group.device.software, group.device.engine]);
    if (!lines.has(key)) lines.set(key, []);
    lines.get(key).push(group);
  }
  const rows = [...lines.entries()].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, own]) => engineRow(own));
  return element("div", { class: "card table" }, table(BY_ENGINE, rows, { label: "Results by engine" }));
}

function engineRow(groups) {
  const [{ device }] = groups;
  const kernels = groups.flatMap((group) => group.kernels);
  const best = groups.map((group) => fastest(group.kernels)?.percent_of_copy).filter(Number.isFinite);
  const versions = distinct(groups, ({ device: { version } }) => version).filter(Boolean);
  return row(BY_ENGINE, [
    element("span", {}, element("strong", {}, device.engine), " ", kindTag(device)),
    rangeText(versions),
    distinct(groups, ({ device: { adapter, vendor } }) => JSON.stringify([adapter, vendor])).length,
    sum(groups, "visits"),
    best.length > 0 ? percentText(statistics(best).median) : NOTHING,
    errorText(kernels.map((kernel) => kernel.max_abs_error).reduce(worse, null)),
    verdictsText(kernels),
  ]);
}

function rangeText(versions) {
  const ordered = versions.sort((one, other) => parseFloat(one) - parseFloat(other));
  if (ordered.length < 2) return ordered[0] ?? NOTHING;
  return `${ordered[0]} to ${ordered.at(-1)}`;
}

function verdictsText(kernels) {
  const counts = VERDICTS.map(([name, word]) => [sum(kernels, name), word]).filter(([count]) => count > 0);
  return counts.map(([count, word]) => `${count} ${word}`).join(", ");
}

/**
 * Return the adapters as lines and the kernels as columns, with a button for more lines.
 * @param {import("./visits_data.js").Group[]} groups
 * @param {string[]} ladder  the op's kernels in the order of the columns; other kernels follow
 * @returns {Node[]}
 */
export function adapterTable(groups, ladder) {
  const { kernels, hidden } = columnsOf(groups, ladder);
  const columns = [ADAPTER, ...kernels.map((name) => ({ name: breakable(name) }))];
  const made = table(columns, [], { label: "Results by adapter and kernel", class: "matrix" });
  const scroll = { class: "card table scroll", role: "region", "aria-label": "Results by adapter", tabindex: 0 };
  const more = button("", () => add(MORE_LINES), { class: "more" });
  let shown = 0;
  const add = (count) => {
    const next = groups.slice(shown, shown + count);
    made.tBodies[0].append(...next.map((group) => adapterRow(columns, kernels, group)));
    shown += next.length;
    const left = groups.length - shown;
    more.textContent = `Show ${Math.min(left, MORE_LINES)} more of ${counted(left, "line")}`;
    more.hidden = left === 0;
  };
  add(FIRST_LINES);
  const note = `More kernels in visits.json: ${hidden}.`;
  return [
    element("div", scroll, made),
    element("div", { class: "buttons" }, more),
    hidden > 0 && element("p", { class: "muted small" }, note),
  ].filter(Boolean);
}

/** Return the ladder's kernels, then those with most visits, and the number of kernels that are left. */
function columnsOf(groups, ladder) {
  const visits = new Map();
  for (const { kernels } of groups) {
    for (const one of kernels) visits.set(one.kernel, (visits.get(one.kernel) ?? 0) + sum([one], ...COUNTS));
  }
  const place = (name) => (ladder.includes(name) ? ladder.indexOf(name) : ladder.length);
  const order = (one, other) => place(one) - place(other) || visits.get(other) - visits.get(one);
  const kernels = [...visits.keys()].sort(order).slice(0, MOST_KERNELS);
  return { kernels, hidden: visits.size - kernels.length };
}

const COUNTS = VERDICTS.map(([name]) => name);

/** Return a name that may be broken after each underscore. */
function breakable(name) {
  return name.replaceAll("_", "_\u200b");
}

function adapterRow(columns, kernels, { device, problem, visits, kernels: results }) {
  const best = fastest(results);
  const cellOf = (name) => {
    const result = results.find(({ kernel }) => kernel === name);
    return result ? kernelCell(result, result === best) : NOTHING;
  };
  return row(columns, [
    element(
      "span",
      {},
      element("strong", {}, device.adapter || "not named"),
      " ",
      kindTag(device),
      element("span", { class: "line" }, `${device.engine} ${device.version}`),
      element("span", { class: "line second" }, `${counted(problem.rows, "row")}, ${counted(visits, "visit")}`),
    ),
    ...kernels.map(cellOf),
  ]);
}

function kernelCell(result, best) {
  const percent = percentText(result.percent_of_copy);
  const doubtful = result.timed > 0 && 2 * result.flagged >= result.timed;
  const lines = [doubtful && "unreliable", errorLine(result)].filter(Boolean);
  return element(
    "span",
    { class: "cell" },
    result.timed > 0 && element(best ? "strong" : "span", { class: "line" }, percent),
    ...lines.map((text) => element("span", { class: "line second" }, text)),
    verdictTag(result),
  );
}

function errorLine({ max_abs_error: error }) {
  return error === null ? null : `error ${errorText(error)}`;
}

/** Return the worst verdict, with its share of the visits if there are several verdicts. */
function verdictTag(result) {
  const all = sum([result], ...COUNTS);
  const [name, word] = VERDICTS.find(([one]) => result[one] > 0);
  const share = result[name] < all ? ` ${result[name]} of ${all}` : "";
  return element("span", { class: `tag ${TAGS[name] ?? ""}` }, word + share);
}

function kindTag({ software }) {
  return element("span", { class: software ? "tag warn" : "tag" }, software ? "software" : "GPU");
}

/** Return the kernel with the largest share of the copy, or undefined if none was timed. */
function fastest(kernels) {
  const timed = kernels.filter(({ percent_of_copy: percent }) => percent !== null);
  return timed.sort((one, other) => other.percent_of_copy - one.percent_of_copy)[0];
}

function distinct(values, key) {
  return [...new Set(values.map(key))];
}

function sum(values, ...names) {
  return values.reduce((total, value) => total + names.reduce((own, name) => own + value[name], 0), 0);
}
