// A dot chart of percentages of a copy: one line per op, one shape per device.

import { element, svg } from "./dom.js";
import { percentText } from "./format.js";

const LINE = 44;
const TOP = 22;
// The margins, in percent, keep the marks at both ends whole.
const [FIRST, LAST] = [2, 97];
const SIZE = 7;
// Marks differ in shape, not only in colour.
const SHAPES = [
  () => svg("circle", { r: SIZE }),
  () => svg("rect", { x: -SIZE + 1, y: -SIZE + 1, width: 2 * SIZE - 2, height: 2 * SIZE - 2 }),
  () => svg("path", { d: `M0 ${-SIZE - 1} L${SIZE + 1} 0 L0 ${SIZE + 1} L${-SIZE - 1} 0 Z` }),
  () => svg("path", { d: `M0 ${-SIZE} L${SIZE} ${SIZE - 1} L${-SIZE} ${SIZE - 1} Z` }),
];

/**
 * Return the legend and an SVG as wide as its parent.
 * @param {string} title
 * @param {string[]} devices  the first is this device
 * @param {{ label: string, shares: (number | null)[] }[]} lines  shares in percent, one per device
 * @returns {HTMLElement}
 */
export function dotChart(title, devices, lines) {
  const most = Math.max(100, ...lines.flatMap(({ shares }) => shares.filter((share) => share !== null)));
  const place = (share) => `${(FIRST + ((LAST - FIRST) * share) / most).toFixed(2)}%`;
  const height = TOP + LINE * lines.length;
  const described = lines.map(
    ({ label, shares }) =>
      `${label}: ${devices
        .map((device, at) => shares[at] !== null && `${device} ${percentText(shares[at])}`)
        .filter(Boolean)
        .join(", ")}`,
  );
  const full = place(100);
  return element(
    "div",
    { class: "dots" },
    element("div", { class: "tags" }, ...devices.map(legend)),
    svg(
      "svg",
      { class: "chart", width: "100%", height, role: "img", "aria-label": `${title}. ${described.join("; ")}` },
      svg("text", { class: "reference-label", x: full, y: TOP - 8, "text-anchor": "end" }, "copy 100 %"),
      svg("line", { class: "reference", x1: full, x2: full, y1: TOP, y2: height }),
      ...lines.map((line, at) => oneLine(line, TOP + LINE * at, place)),
    ),
  );
}

function legend(device, at) {
  const mark = svg("svg", { class: "legend", width: 18, height: 18, "aria-hidden": "true" });
  mark.append(marked(at, "50%", "50%"));
  return element("span", { class: "key" }, mark, at === 0 ? `This device: ${device}` : device);
}

function oneLine({ label, shares }, y, place) {
  const middle = y + 30;
  const marks = shares.map((share, at) => share !== null && marked(at, place(share), middle)).reverse();
  return svg(
    "g",
    {},
    svg("text", { class: "bar-label", x: 0, y: y + 14 }, label),
    svg("rect", { class: "track", x: 0, y: middle - 2, width: "100%", height: 4, rx: 2 }),
    ...marks,
  );
}

/** Return a device's mark centred at a point. */
function marked(at, x, y) {
  const shape = SHAPES[at % SHAPES.length]();
  return svg("svg", { x, y, overflow: "visible", class: `dot dot-${at % SHAPES.length}` }, shape);
}
