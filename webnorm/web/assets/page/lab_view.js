// The lab's view of kernels and results.
// rows is a name of the results' format.

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

// A key of the ladder that the page shows now.
let drawn = "";

/**
 * Show the kernels of a ladder, each with a box to include it, and clear earlier results. Unchanged cards stay in place:
 * a mouse press first blurs a changed field, and must not miss a card that was redrawn meanwhile.
 * @param {string} op
 * @param {{ kernel: string, shader: object, why: string | null, text: string }[]} steps
 * @param {{ takes: (kernel: string) => boolean, take: (kernel: string, taken: boolean) => void }} choice
 *   takes: true if a kernel is run; take: called when the user changes that
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

/** Replace the cards; a kernel's card keeps its open text and the focus. */
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
  const title = element("summary", {}, `WGSL, ${lines}`);
  const details = element("details", {}, title, buttons, pre);
  details.addEventListener("toggle", () => {
    if (details.open && !pre.hasChildNodes()) pre.append(...highlighted(text));
  });
  return details;
}

function resultId(op, kernel) {
  return `result-${op}-${kernel}`;
}

/**
 * Show a result on its kernel's card, if the page shows that card.
 * @param {object} result
 */
export function showResult(result) {
  const speed = result.gbps
    ? `${gbpsText(result.gbps)} GB/s, ${percentText(result.percent_of_copy)} of copy `
    : "";
  byId(resultId(result.op, result.kernel))?.replaceChildren(speed, tag(result));
}

function tag(result) {
  const verdict = verdictOf(result);
  return element("span", { class: `tag ${TAGS[verdict]}` }, verdict);
}

/**
 * Return the results of one op: a chart of the right kernels, and a table of all.
 * @param {object[]} results
 * @param {string} checked  a sentence about the checks
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

/** Return a warning if the copy's times are unreliable, and with them every percentage; null if they are fine. */
function banner(copy, software) {
  const flags = new Set(copy?.flags);
  const scatter = flags.has("noisy") && [
    `the copy's samples scatter by ${percentText(100 * spread(copy.samples_ns))} of their median`,
    `(p20 to p80; more than ${percentText(100 * NOISY_SPREAD)} is noise)`,
  ];
  const reasons = [
    scatter && scatter.join(" "),
    flags.has("drifting") && `the copy became ${slower(copy.samples_ns)} during the run`,
    flags.has("unsettled") && "the copy's times did not settle before timing started",
    flags.has("few samples") && "there was time for only a few samples",
  ].filter(Boolean);
  if (reasons.length === 0) return null;
  const why = reasons.join("; ");
  return element(
    "p",
    { class: "banner", role: "alert" },
    element("strong", {}, "These times are unreliable: "),
    `${why}. ${software ? "A software adapter shares the CPU with other programs. " : ""}${REMEDY}`,
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
    "turn. Whiskers reach from p20 to p80.";
  const moved = copy
    ? ` From the first third of the samples to the last third, the copy became ${slower(copy.samples_ns)}.`
    : "";
  const warning = software ? " This is a software adapter: its ranking says nothing about GPUs." : "";
  return how + moved + warning;
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
  return table(COLUMNS, rows, { bleed: true });
}

function rangeText({ p20_ns: low, p80_ns: high }) {
  if (!low) return NOTHING;
  const [number, unit] = timeText(low).split(" ");
  const end = timeText(high);
  return `${end.endsWith(` ${unit}`) ? number : `${number} ${unit}`} to ${end}`;
}

/**
 * Return a sentence about the checks of a bench.
 * @param {{ rows: number, checked: number, distribution: string }} bench
 * @returns {string}
 */
export function checkedText({ rows, checked, distribution }) {
  const sentence = (count) => `Checked: every output of ${count} rows of ${distribution} x against float64.`;
  if (checked === rows) return sentence(`all ${rows}`);
  return `${sentence(checked)} The ${rows} timed rows repeat these rows; their outputs must have the same bits.`;
}

/**
 * Count the results by verdict, in words.
 * @param {object[]} results
 * @returns {string}
 */
export function summary(results) {
  const words = {
    pass: "right",
    FAIL: "wrong",
    error: "broken",
    "expected failure": "wrong as the header states",
    skip: "not run",
  };
  const verdicts = results.filter((result) => result.op !== "copy").map(verdictOf);
  const count = (verdict) => verdicts.filter((one) => one === verdict).length;
  const parts = Object.keys(words)
    .filter(count)
    .map((verdict) => `${count(verdict)} ${words[verdict]}`);
  return `${parts.join(", ")}.`;
}
