// Speed: this save compared with a copy and other kernels, and a plot of all saves.

import { barChart } from "./chart.js";
import { button, byId, element, svg } from "./dom.js";
import { gbpsText, percentText, problemText, timeText } from "./format.js";
import { row, table } from "./table.js";

const NAMES = {
  attempt: "this save",
  previous: "the previous timed save",
  best: "the best built-in",
  goal: "the lesson's kernel",
  copy: "copy",
};
const TIMES = [
  { name: "Kernel", wide: true, unnamed: true },
  { name: "Median", number: true },
  { name: "GB/s", number: true },
  { name: "of copy", number: true },
];
const ATTEMPTS = [
  { name: "Save", wide: true, unnamed: true },
  { name: "Verdict" },
  { name: "Median", number: true },
  { name: "of copy", number: true },
  { name: "Text" },
];
const TAGS = { pass: "pass", fail: "fail", error: "fail" };
const HEIGHT = 160;
// The plot extends above the roofline, since caches may make a kernel faster than a copy.
const MOST_PERCENT = 125;

/** @param {{ name: string, result: object }[] | null | undefined} times */
export function showTimes(times) {
  byId("times-section").hidden = !times?.length;
  if (!times?.length) return;
  const named = ({ name, result }) => ["best", "goal"].includes(name) ? `${NAMES[name]} (${result.op}/${result.kernel})` : NAMES[name] ?? name;
  const copy = times.find(({ name }) => name === "copy")?.result;
  const bars = times
    .filter(({ name, result }) => name !== "copy" && Number.isFinite(result.gbps))
    .map((one) => ({
      // Without the kernel's name, which the table has: on a phone it would reach into the numbers.
      label: NAMES[one.name] ?? one.name,
      gbps: one.result.gbps,
      low: one.result.bytes / one.result.p80_ns || one.result.gbps,
      high: one.result.bytes / one.result.p20_ns || one.result.gbps,
      percent: one.result.percent_of_copy ?? null,
      strong: one.name === "attempt",
    }));
  const rows = times.map((one) =>
    row(TIMES, [
      element("strong", {}, named(one)),
      timeText(one.result.median_ns),
      gbpsText(one.result.gbps),
      percentText(one.result.percent_of_copy),
    ]),
  );
  const title = `GB/s for ${problemText(times[0].result.problem)}`;
  byId("times").replaceChildren(
    element("h3", {}, title),
    bars.length ? barChart(title, bars, copy?.gbps ? { label: "copy", gbps: copy.gbps } : null) : "",
    table(TIMES, rows, { bleed: true, label: "Times" }),
  );
}

/**
 * Show all attempts: a plot of their speeds, and a table with buttons to compare or restore each.
 * @param {object[]} history
 * @param {(attempt: object) => void} compare
 * @param {(attempt: object) => void} restore
 */
export function showHistory(history, compare, restore) {
  byId("history-section").hidden = history.length === 0;
  const rows = history.toReversed().map((attempt) =>
    row(ATTEMPTS, [
      element("strong", {}, `${attempt.number}, ${new Date(attempt.saved).toLocaleTimeString()}`),
      element("span", { class: `tag ${TAGS[attempt.status] ?? ""}` }, attempt.status),
      timeText(attempt.median_ns),
      percentText(attempt.percent_of_copy),
      element(
        "span",
        { class: "buttons" },
        button("Compare", () => compare(attempt), { "aria-label": `Compare with save ${attempt.number}` }),
        button("Restore", () => restore(attempt), { "aria-label": `Restore save ${attempt.number}` }),
      ),
    ]),
  );
  byId("history").replaceChildren(
    plot(history),
    element("p", { class: "small muted" }, "Speed in percent of a copy; the dashed line is the copy. × marks a wrong save."),
    element("details", {}, element("summary", {}, "Every attempt"), table(ATTEMPTS, rows, { label: "Attempts" })),
  );
}

function plot(history) {
  const x = (at) => `${(4 + (92 * at) / Math.max(history.length - 1, 1)).toFixed(2)}%`;
  const y = (percent) => HEIGHT - (HEIGHT * Math.min(percent, MOST_PERCENT)) / MOST_PERCENT;
  const timed = history.filter(({ percent_of_copy: percent }) => Number.isFinite(percent));
  const listed = timed.map((one) => `save ${one.number} ${percentText(one.percent_of_copy)}`).join(", ");
  const points = history.map((attempt, at) => {
    const percent = attempt.percent_of_copy;
    const title = svg("title", {}, `save ${attempt.number}: ${attempt.status}, ${percentText(percent)} of copy`);
    if (attempt.status !== "pass") {
      return svg("text", { class: "wrong-point", x: x(at), y: HEIGHT - 4, "text-anchor": "middle" }, "×", title);
    }
    return Number.isFinite(percent) && svg("circle", { class: "point", cx: x(at), cy: y(percent), r: 4 }, title);
  });
  const attributes = {
    class: "chart plot",
    width: "100%",
    height: HEIGHT,
    role: "img",
    "aria-label": `Percent of copy by save: ${listed || "nothing was timed"}`,
  };
  return svg(
    "svg",
    attributes,
    ...[0, 50].map((percent) => svg("line", { class: "grid", x1: 0, x2: "100%", y1: y(percent), y2: y(percent) })),
    svg("line", { class: "reference", x1: 0, x2: "100%", y1: y(100), y2: y(100) }),
    svg("text", { class: "reference-label", x: 0, y: y(100) - 5 }, "copy, 100 %"),
    svg("text", { class: "reference-label", x: 0, y: y(50) - 5 }, "50 %"),
    ...points,
  );
}
