// The results of a save, part by part: stages, mistakes, verdicts, hints, the corpus and operation counts.

import { byId, element } from "./dom.js";
import { counted, errorText } from "./format.js";
import { row, table } from "./table.js";

const SHAPES = [
  { name: "Problem", wide: true, unnamed: true },
  { name: "Verdict" },
  { name: "Max error", number: true },
];
const TAGS = { pass: "pass", fail: "fail", error: "fail", skip: "" };
const STATES = {
  waiting: "waiting",
  running: "running",
  done: "done",
  failed: "failed",
  skipped: "skipped",
  left: "dropped for a newer save",
};
const WORKING = {
  render: "Rendering",
  compile: "Compiling",
  verdict: "Checking against float64",
  where: "Locating errors",
  time: "Timing",
  race: "Looking for races",
  tint: "Compiling with Tint",
  trace: "Tracing",
  corpus: "Checking the corpus",
  cost: "Counting operations",
};
const COSTS = {
  row_reads: "reads of row tensors, per element",
  parameter_reads: "reads of parameters, per element",
  writes: "writes, per element",
  barriers: "barriers, per row",
  subgroup_operations: "subgroup operations, per row",
  workgroup_bytes: "bytes of workgroup memory",
};

/**
 * Return a number of a snapshot as text. Numbers that JSON lacks arrive as text or null.
 * @param {number | string | null | undefined} value
 * @returns {string}
 */
export function numberText(value) {
  if (value === null || value === undefined) return "not finite";
  return typeof value === "number" ? String(Number(value.toPrecision(7))) : value;
}

/**
 * Return the headline for an attempt: its state, a title, and a detail.
 * @param {object | null} attempt
 * @param {string | null} working  the stage that runs
 * @returns {[string, string, string]}
 */
export function headline(attempt, working) {
  const doing = working ? `${WORKING[working] ?? working} ...` : "";
  if (!attempt) return ["running", "Waiting", doing || "No save has been checked yet."];
  const { mistakes = [], shapes = [], corpus } = attempt;
  const last = `Save ${attempt.number}. ${doing || firstWord(attempt)}`;
  const ran = shapes.filter(({ result }) => result.status !== "skip");
  const wrong = ran.filter(({ result }) => isWrong(result)).map(({ problem }) => problem);
  if (wrong.length) return ["fail", `Wrong: ${wrong.join(", ")}`, last];
  // Mistakes without a verdict mean that a time limit was reached.
  if (mistakes.length && attempt.ok === null) return ["error", "Stopped at a time limit", last];
  if (mistakes.length) return ["error", counted(mistakes.length, "mistake"), last];
  const right = rightText(ran);
  const kinds = attempt.hints?.map(({ kind }) => kind) ?? [];
  if (kinds.includes("loop")) return ["fail", `${right}, but a loop does not end`, last];
  if (kinds.includes("race")) return ["fail", `${right}, but invocations race`, last];
  if (corpus?.wrong) return ["fail", `${right}, wrong in ${corpus.wrong} of ${corpus.of} cases of the corpus`, last];
  const timed = attempt.times?.find(({ name }) => name === "attempt")?.result;
  if (timed && isWrong(timed)) return ["fail", `${right}, wrong on the timed problem`, last];
  if (attempt.ok === false) return ["error", "It did not run", last];
  if (!attempt.ok || !ran.length) return ["running", doing || "Waiting", last];
  if (!corpus || corpus.done < corpus.of || corpus.expected) return ["pass", right, last];
  const tried = corpus.of - (corpus.skipped ?? 0);
  const cases = tried === corpus.of ? `all ${counted(tried, "case")}` : `${tried} of ${corpus.of} cases`;
  return ["pass", `${right} and ${cases} of the corpus${tried < corpus.of ? ", the others refused" : ""}`, last];
}

function isWrong({ status, expected }) {
  return ["fail", "error"].includes(status) && !expected;
}

function rightText(ran) {
  const declared = ran.filter(({ result }) => result.status !== "pass").length;
  const right = `Right on ${counted(ran.length - declared, "shape")}`;
  return declared ? `${right}, wrong on ${declared} as the header states` : right;
}

/** Return the first line of the first mistake, hint or failed case; empty if there is none. */
function firstWord({ mistakes, hints, corpus }) {
  const failed = corpus?.failed?.[0];
  const text = mistakes?.[0]?.message ?? hints?.[0]?.text ?? (failed && `${failed.case}: ${failed.reason}`);
  return (text ?? "").split("\n")[0];
}

/** Return an error as text; results store an error that is not finite as text already. */
function errorOf(value) {
  return typeof value === "string" ? value : errorText(value);
}

/** Show the strip of stages. */
export function showStages(stages) {
  const items = stages.map(({ name, state, ms, note }) =>
    element(
      "li",
      { class: `stage ${state}` },
      element("span", {}, name),
      element("span", { class: "small" }, Number.isFinite(ms) ? `${ms.toFixed(0)} ms` : STATES[state] ?? state),
      note && element("span", { class: "small" }, note),
    ),
  );
  byId("stages").replaceChildren(...items);
}

/**
 * Show every mistake with its place and its line.
 * @param {object[]} mistakes
 * @param {(place: object, text: string) => Node} link  returns a place as text, with a link if possible
 */
export function showMistakes(mistakes, link) {
  byId("mistakes-section").hidden = mistakes.length === 0;
  const items = mistakes.map((mistake) => {
    const { by, message, file, line, column, source } = mistake;
    const place = [file, line, line && column].filter(Boolean).join(":");
    return element(
      "li",
      {},
      element("p", {}, element("span", { class: "tag fail" }, by), " ", link(mistake, place), ": ", message),
      source && element("pre", { class: "source", tabindex: 0, "aria-label": `The text of ${place}` }, caret(mistake)),
    );
  });
  byId("mistakes").replaceChildren(...items);
}

function caret({ source, column, length }) {
  if (!column) return source;
  const before = [...source].slice(0, column - 1).map((one) => (one === "\t" ? "\t" : " "));
  return `${source}\n${before.join("")}^${"~".repeat(Math.max(0, (length || 1) - 1))}`;
}

/** Show the verdict of each shape, the worst element, the likely causes, and the state of the corpus. */
export function showShapes(attempt, link) {
  const { shapes, worst, hints, corpus } = attempt ?? {};
  const rows = (shapes ?? []).map(({ problem, result }) =>
    row(SHAPES, [
      element("strong", { class: "mono" }, problem),
      element("span", { class: `tag ${TAGS[result.status] ?? ""}` }, result.status),
      errorOf(result.max_abs_error),
    ]),
  );
  // Each element has its own tolerance, so the largest error is not always the nearest to its tolerance.
  const details = (shapes ?? []).flatMap(({ problem, result: { reason, worst: nearest } }) => {
    const detail = reason ?? (nearest && `nearest to its tolerance: ${nearest}`);
    return detail ? [element("p", { class: "small" }, `${problem}: ${detail}`)] : [];
  });
  byId("shapes").replaceChildren(
    rows.length ? table(SHAPES, rows, { bleed: true }) : element("p", { class: "muted" }, "Not checked yet."),
    ...details,
    worst ? worstElement(worst) : "",
    hints?.length ? hintList(hints, link) : "",
    corpus ? corpusPart(corpus) : "",
  );
}

function worstElement({ output, index, got, expected, error, tolerance }) {
  return element(
    "p",
    { id: "worst" },
    "Furthest beyond its tolerance: ",
    element("strong", { class: "mono" }, `${output}[${(index ?? []).join(", ")}]`),
    ` is ${numberText(got)}, expected ${numberText(expected)} `,
    element("span", { class: "muted" }, `(off by ${numberText(error)}, allowed ${numberText(tolerance)})`),
  );
}

function hintList(hints, link) {
  const items = hints.map(({ kind, text, place }) =>
    element(
      "li",
      {},
      element("span", { class: "tag warn" }, kind),
      ` ${text} `,
      place && link(place, `line ${place.line}`),
    ),
  );
  return element("div", {}, element("h3", {}, "Likely causes"), element("ul", { class: "hints", id: "hints" }, ...items));
}

function corpusPart({ done, of, failed, wrong, expected, skipped }) {
  const declared = expected ? `, ${expected} wrong as the header states` : "";
  const refused = skipped ? `, ${skipped} refused and not run` : "";
  const words = `Corpus: ${done} of ${of} cases, ${wrong} failed${declared}${refused}.`;
  const items = (failed ?? []).map((one) => element("li", {}, `${one.case} (${one.problem}): ${one.reason}`));
  return element(
    "div",
    { id: "corpus" },
    element("progress", { max: of, value: done, "aria-label": "Cases of the corpus" }),
    element("p", { class: "small" }, words),
    items.length > 0 && element("ul", { class: "hints" }, ...items),
  );
}

/** Show the operation counts. */
export function showCost(cost) {
  byId("cost-section").hidden = !cost;
  const facts = Object.entries(COSTS).flatMap(([name, label]) => {
    const value = cost?.[name];
    const text = value === null || value === undefined ? "not counted" : numberText(value);
    return [element("dt", {}, label), element("dd", { class: "mono" }, text)];
  });
  byId("cost").replaceChildren(element("dl", { class: "facts" }, ...facts));
}

/** Show messages about the playground itself. */
export function showNotices(notices) {
  byId("notices").replaceChildren(...notices.map((text) => element("p", { class: "notice" }, text)));
}

