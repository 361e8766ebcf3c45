// What the lab shows of kernels and results.
// rows: a name of the results' format.

import { barChart } from "./chart.js";
import { button, byId, copyText, download, element } from "./dom.js";
import {
  constantsText,
  counted,
  errorText,
  gbpsText,
  NOTHING,
  optionsText,
  percentText,
  problemText,
  timeText,
} from "./format.js";
import { highlighted } from "./lab_highlight.js";
import { verdictOf } from "./lab_results.js";
import { NOISY_SPREAD } from "./numbers.js";
import { drift, spread } from "./statistics.js";
import { row, table } from "./table.js";
import { bestCopy } from "./trials.js";

const COLUMNS = [
  { name: "Kernel", wide: true, unnamed: true },
  { name: "Constants", wide: true },
  { name: "Median", number: true },
  { name: "p20 to p80", number: true },
  { name: "GB/s", number: true },
  { name: "of copy", number: true },
  { name: "Max error", number: true },
  { name: "Verdict" },
];
const TAGS = { pass: "pass", FAIL: "fail", error: "fail", "expected failure": "warn", skip: "" };

// The ladder that the cards were last drawn from.
let drawn = "";

/**
 * Show the kernels of a ladder, to read, and to run or leave out, without the results that stood there. Cards that stay
 * the same stay in place: a press of the mouse, which first leaves the field that was changed, would miss a new one.
 * @param {string} op
 * @param {{ kernel: string, shader: object, why: string | null, text: string }[]} steps
 * @param {{ takes: (kernel: string) => boolean, take: (kernel: string, taken: boolean) => void }} choice
 *   whether a kernel is run, and who hears of a change of that
 */
export function showLadder(op, steps, { takes, take }) {
  const key = JSON.stringify([op, steps]);
  if (key !== drawn) redraw(steps.map((step) => kernelCard(op, step, take)));
  drawn = key;
  for (const { kernel } of steps) {
    const result = byId(resultId(op, kernel));
    result.replaceChildren();
    result.closest("article").querySelector("input").checked = takes(kernel);
  }
}

/** Put other cards into the place of those shown; a kernel's card keeps its open text and the focus. */
function redraw(cards) {
  const shown = byId("kernels");
  const parts = (card) => [...card.querySelectorAll("button, input, pre, summary")];
  const old = [...shown.children].map((card) => ({
    kernel: card.dataset.kernel,
    open: card.querySelector("details").open,
    focused: parts(card).indexOf(document.activeElement),
  }));
  shown.replaceChildren(...cards);
  for (const { kernel, open, focused } of old) {
    const card = cards.find((one) => one.dataset.kernel === kernel);
    if (!card) continue;
    card.querySelector("details").open = open;
    parts(card)[focused]?.focus();
  }
}

function kernelCard(op, { kernel, shader, why, text }, take) {
  const tags = [
    shader.unstable && element("span", { class: "tag warn", title: shader.unstable }, "unstable"),
    ...shader.features.map((feature) => element("span", { class: "tag accent" }, feature)),
    ...Object.entries(shader.constants).map(([name, value]) =>
      element("span", { class: "tag" }, `${name}=${Number(value)}`),
    ),
  ].filter(Boolean);
  return element(
    "article",
    { class: "card kernel", "data-kernel": kernel },
    element(
      "div",
      { class: "rung", title: `Rung ${shader.rung} of the ladder`, "aria-label": `rung ${shader.rung}` },
      shader.rung,
    ),
    element(
      "div",
      { class: "body" },
      element(
        "div",
        { class: "tile-head" },
        element("h3", { class: "mono" }, kernel),
        runBox(kernel, take),
        element("span", { class: "line", id: resultId(op, kernel) }),
      ),
      element("p", {}, shader.summary),
      shader.differs && element("p", { class: "differs" }, shader.differs),
      shader.unstable && element("p", { class: "muted small" }, `Unstable: ${shader.unstable}`),
      element("div", { class: "tags" }, ...tags),
      why && element("p", { class: "muted small" }, `Not run here: ${why}.`),
      source(shader, text),
    ),
  );
}

function runBox(kernel, take) {
  const box = element("input", { type: "checkbox", "aria-label": `Run ${kernel}` });
  box.addEventListener("change", () => take(kernel, box.checked));
  return element("label", { class: "check" }, box, " Run");
}

function source(shader, text) {
  const pre = element("pre", { class: "source", tabindex: 0, "aria-label": `WGSL of ${shader.name}` });
  const buttons = element(
    "div",
    { class: "buttons" },
    button("Copy", (event) => copyText(text, event.currentTarget)),
    button("Download", () => download(`${shader.name}.wgsl`, text, "text/plain")),
  );
  const lines = counted(text.trimEnd().split("\n").length, "line");
  const told = element("summary", {}, `WGSL, ${lines}`);
  const details = element("details", {}, told, buttons, pre);
  details.addEventListener("toggle", () => {
    if (details.open && !pre.hasChildNodes()) pre.append(...highlighted(text));
  });
  return details;
}

function resultId(op, kernel) {
  return `result-${op}-${kernel}`;
}

/**
 * Put a result on its kernel's card, where that is shown.
 * @param {object} result
 */
export function showResult(result) {
  const told = result.gbps
    ? `${gbpsText(result.gbps)} GB/s, ${percentText(result.percent_of_copy)} of copy `
    : "";
  byId(resultId(result.op, result.kernel))?.replaceChildren(told, tag(result));
}

function tag(result) {
  const verdict = verdictOf(result);
  return element("span", { class: `tag ${TAGS[verdict]}` }, verdict);
}

/**
 * The results of one op: a chart of what is right, a table of all.
 * @param {object[]} results
 * @param {string} checked  what was checked, in words
 * @param {boolean} software
 * @returns {HTMLElement}
 */
export function resultCard(results, checked, software) {
  const kernels = results.filter((result) => result.op !== "copy");
  const copy = bestCopy(results);
  const timed = kernels.filter((result) => result.gbps).sort((a, b) => a.median_ns - b.median_ns);
  const [{ op, problem }] = kernels;
  const title = [op, problemText(problem), optionsText(problem.options), problem.distribution]
    .filter(Boolean)
    .join(", ");
  const bars = timed.map((result, at) => ({
    label: result.kernel,
    gbps: result.gbps,
    low: result.bytes / result.p80_ns,
    high: result.bytes / result.p20_ns,
    percent: result.percent_of_copy ?? null,
    strong: at === 0,
  }));
  const untimed = kernels.filter((result) => !result.gbps);
  const reasons = [...timed, ...untimed].filter((result) => result.reason);
  return element(
    "article",
    { class: "card stack" },
    element("h3", {}, title),
    banner(copy, software),
    bars.length > 0 && barChart(title, bars, copy && { label: "copy", gbps: copy.gbps }),
    tableOf([...(copy ? [copy] : []), ...timed, ...untimed]),
    ...reasons.map((result) =>
      element("p", { class: "small" }, `${result.kernel}: ${verdictOf(result)}: ${result.reason}`),
    ),
    element("p", { class: "muted small" }, `${checked} ${timedText(timed[0] ?? copy, copy, software)}`),
  );
}

const REMEDY = "Close other tabs and programs, plug the laptop in, and run again.";

/** What keeps the copy, and so every share of it, from saying much; null where nothing does. */
function banner(copy, software) {
  const flags = new Set(copy?.flags);
  const scatter = flags.has("noisy") && [
    `the copy's samples scatter by ${percentText(100 * spread(copy.samples_ns))} of their median`,
    `(p20 to p80; more than ${percentText(100 * NOISY_SPREAD)} is noise)`,
  ];
  const told = [
    scatter && scatter.join(" "),
    flags.has("drifting") && `the copy became ${slower(copy.samples_ns)} while everything was timed`,
    flags.has("unsettled") && "the copies did not come to agree before the timing began",
    flags.has("few samples") && "there was time for few samples only",
  ].filter(Boolean);
  if (told.length === 0) return null;
  const why = told.join("; ");
  return element(
    "p",
    { class: "banner", role: "alert" },
    element("strong", {}, "These times say little: "),
    `${why}. ${software ? "A software adapter shares the processor with everything else. " : ""}${REMEDY}`,
  );
}

function slower(samples) {
  const moved = 100 * drift(samples);
  return `${Math.abs(moved).toFixed(1)} % ${moved < 0 ? "faster" : "slower"}`;
}

function timedText(result, copy, software) {
  if (!result?.gbps) return "Nothing was timed.";
  const warm = result.cache === "warm" && !software ? ", from a warm cache" : "";
  const samples = counted(result.samples_ns.length, "sample");
  const how =
    `Timed by ${result.timing_method}${warm}, one call after the other: the median of ${samples}, taken in ` +
    "turn; whiskers reach from p20 to p80.";
  const moved = copy
    ? ` Between the first third of the samples and the last the copy became ${slower(copy.samples_ns)}.`
    : "";
  const beware = software ? " This is a software adapter: its ranking says nothing about a GPU's." : "";
  return how + moved + beware;
}

function tableOf(results) {
  const rows = results.map((result) => {
    const name = result.op === "copy" ? `${result.kernel} (roofline)` : result.kernel;
    const remarks = result.flags?.length ? ` ${result.flags.join(", ")}` : "";
    return row(COLUMNS, [
      element("strong", { class: "mono" }, name),
      element("span", { class: "second" }, constantsText(result.constants) || NOTHING),
      timeText(result.median_ns),
      rangeText(result),
      gbpsText(result.gbps),
      percentText(result.percent_of_copy),
      errorText(result.max_abs_error),
      element("span", {}, tag(result), remarks),
    ]);
  });
  return table(COLUMNS, rows, { class: "bleed" });
}

function rangeText({ p20_ns: low, p80_ns: high }) {
  if (!low) return NOTHING;
  const [number, unit] = timeText(low).split(" ");
  const end = timeText(high);
  return `${end.endsWith(` ${unit}`) ? number : `${number} ${unit}`} to ${end}`;
}

/**
 * What a bench has checked, in words.
 * @param {{ rows: number, checked: number, distribution: string }} bench
 * @returns {string}
 */
export function checkedText({ rows, checked, distribution }) {
  const held = (count) => `Checked: every output of ${count} rows of ${distribution} x against float64.`;
  if (checked === rows) return held(`all ${rows}`);
  return `${held(checked)} The ${rows} timed rows repeat these; their outputs had to be the same bits.`;
}

/**
 * How many results are right, wrong and neither.
 * @param {object[]} results
 * @returns {string}
 */
export function summary(results) {
  const words = {
    pass: "right",
    FAIL: "wrong",
    error: "broken",
    "expected failure": "wrong as its header says",
    skip: "not run",
  };
  const verdicts = results.filter((result) => result.op !== "copy").map(verdictOf);
  const count = (verdict) => verdicts.filter((one) => one === verdict).length;
  const parts = Object.keys(words)
    .filter(count)
    .map((verdict) => `${count(verdict)} ${words[verdict]}`);
  return `${parts.join(", ")}.`;
}
