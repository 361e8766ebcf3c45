// Bar charts of throughput, with a line for the copy. The classes of style.css set the colours.

import { gbpsText, percentText } from "./format.js";
import { svg } from "./dom.js";

const BAR = 36;
const TOP = 22;
// The longest bar, in percent; the rest is room for its whisker.
const FULL = 98;

/**
 * @typedef {{ label: string, gbps: number, low?: number, high?: number, percent: number | null,
 *   strong: boolean }} Bar
 * `low` and `high` are GB/s at p80 and p20 of the time, if known; a strong bar is highlighted.
 */

/**
 * Return an SVG as wide as its parent: one bar per line, with its name and number above it, so that it fits a phone.
 * @param {string} title
 * @param {Bar[]} bars
 * @param {{ label: string, gbps: number } | null} reference  the copy
 * @returns {SVGElement}
 */
export function barChart(title, bars, reference) {
  const drawn = bars.map((bar) => ({
    ...bar,
    value: bar.gbps,
    text: `${gbpsText(bar.gbps)}${bar.percent === null ? "" : ` · ${percentText(bar.percent)}`}`,
    description: `${bar.label} ${gbpsText(bar.gbps)} GB/s${rangeText(bar)}`,
  }));
  const line = reference && {
    text: `${reference.label} ${gbpsText(reference.gbps)} GB/s`,
    value: reference.gbps,
  };
  return chart(title, drawn, line);
}

/**
 * Return the same chart for percentages of a copy, which is a line at 100 %.
 * @param {string} title
 * @param {{ label: string, percent: number | null, strong: boolean }[]} bars  null: there was no copy
 * @returns {SVGElement}
 */
export function shareChart(title, bars) {
  const drawn = bars.map((bar) => ({
    ...bar,
    value: bar.percent ?? 0,
    text: percentText(bar.percent),
    description: `${bar.label} ${percentText(bar.percent)}`,
  }));
  return chart(title, drawn, { text: "copy 100 %", value: 100 });
}

function chart(title, bars, reference) {
  const largest = Math.max(...bars.map((bar) => Math.max(bar.value, bar.high ?? 0)), reference?.value ?? 0);
  const share = (value) => `${((FULL * value) / largest).toFixed(2)}%`;
  const height = TOP + BAR * bars.length + 4;
  const summary = bars.map(({ description }) => description).join(", ");
  const description = reference ? `${summary}; ${reference.text}` : summary;
  return svg(
    "svg",
    { class: "chart", width: "100%", height, role: "img", "aria-label": `${title}: ${description}` },
    reference && referenceLabel(reference.text, share(reference.value)),
    ...bars.map((bar, at) => oneBar(bar, TOP + BAR * at, share, reference)),
  );
}

function rangeText({ low, high }) {
  return low === undefined ? "" : ` (${gbpsText(low)} to ${gbpsText(high)})`;
}

function referenceLabel(text, x) {
  // Near the right edge the label ends at the line, else it begins there.
  const anchor = parseFloat(x) > 50 ? "end" : "start";
  return svg("text", { class: "reference-label", x, y: TOP - 8, "text-anchor": anchor }, text);
}

/** Return the lines of a whisker, from p80 to p20 of the time, with caps that are visible on any bar. */
function whisker(low, high, middle) {
  const line = (x1, x2, half) =>
    svg("line", { class: "whisker", x1, x2, y1: middle - half, y2: middle + half });
  return [line(low, high, 0), line(low, low, 4), line(high, high, 4)];
}

function oneBar(bar, y, share, reference) {
  const across = reference && share(reference.value);
  const middle = y + 25;
  return svg(
    "g",
    {},
    svg("text", { class: bar.strong ? "bar-label strong" : "bar-label", x: 0, y: y + 14 }, bar.label),
    svg("text", { class: "bar-value", x: "100%", y: y + 14, "text-anchor": "end" }, bar.text),
    svg("rect", { class: "track", x: 0, y: y + 20, width: "100%", height: 10, rx: 2 }),
    svg("rect", {
      class: bar.strong ? "bar strong" : "bar",
      x: 0,
      y: y + 20,
      width: share(bar.value),
      height: 10,
      rx: 2,
    }),
    ...(bar.low === undefined ? [] : whisker(share(bar.low), share(bar.high), middle)),
    // Only as high as the bar, since text is above it.
    reference && svg("line", { class: "reference", x1: across, x2: across, y1: y + 18, y2: y + 32 }),
  );
}
