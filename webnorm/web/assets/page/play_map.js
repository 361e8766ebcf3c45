// A map of the error by row and column, in units of the tolerance. It reveals patterns such as a wrong tail.
// rows and cols are names of the snapshot's format; an output is shown as a matrix.

import { button, byId, element, svg } from "./dom.js";
import { counted, errorText } from "./format.js";
import { row, table } from "./table.js";

// The lower bounds, in units of the tolerance, of the classes of play.css; NaN and infinity have the last class.
const STEPS = [0, 0.1, 1, 10, 1000];
const WORDS = ["under 0.1", "to 1: still right", "to 10", "to 1000", "more", "NaN, infinite or never written"];
const MOST_ROWS = 50;
const ROWS = [
  { name: "Rows", wide: true, unnamed: true },
  { name: "Wrong cells", number: true },
  { name: "Largest", number: true },
  { name: "Columns" },
  { name: "Trace" },
];

function valueOf(cell) {
  return typeof cell === "number" ? cell : Infinity;
}

function stepOf(value) {
  return value === Infinity ? STEPS.length : Math.max(0, STEPS.findLastIndex((least) => value > least));
}

/**
 * Show a map; a click on a row traces the row.
 * @param {object | null | undefined} map  `rows`, `cols`, `row_step`, `col_step` and `cells`
 * @param {(row: number) => void} trace
 */
export function showMap(map, trace) {
  byId("map-section").hidden = !map?.cells.length;
  if (!map?.cells.length) return byId("map").replaceChildren();
  const lines = wrongLines(map);
  const worst = Math.max(...map.cells.flat().map(valueOf));
  const summary =
    `Error of ${map.output}, ${map.rows} rows by ${map.cols} columns: ${counted(lines.length, "line")} of cells ` +
    `with a wrong element; the largest error is ${errorText(worst)} times its tolerance`;
  const picture = drawing(map, summary);
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const at = Math.floor(((event.clientY - box.top) / box.height) * map.cells.length);
    trace(Math.min(Math.max(at, 0), map.cells.length - 1) * map.row_step);
  });
  byId("map").replaceChildren(
    element("p", { class: "small" }, `${summary}. Rows go down, columns to the right. Click a row to trace it.`),
    picture,
    legend(),
    element("details", {}, element("summary", {}, "Show as a table"), listed(map, lines, trace)),
  );
}

/** Draw the map; neighbours of one class become one rectangle. */
function drawing(map, summary) {
  const across = map.cells[0].length;
  const pieces = map.cells.flatMap((cells, y) => {
    const runs = [];
    cells.forEach((cell, x) => {
      const step = stepOf(valueOf(cell));
      const last = runs.at(-1);
      if (last?.step === step) last.width += 1;
      else runs.push({ step, x, width: 1 });
    });
    return runs.map(({ step, x, width }) => svg("rect", { class: `heat${step}`, x, y, width, height: 1 }));
  });
  const attributes = {
    class: "heat",
    viewBox: `0 0 ${across} ${map.cells.length}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": summary,
    height: Math.min(Math.max(8 * map.cells.length, 60), 280),
  };
  return svg("svg", attributes, ...pieces);
}

function legend() {
  const items = WORDS.map((words, step) =>
    element("li", {}, svg("svg", { class: "swatch", "aria-hidden": "true" }, svg("rect", { class: `heat${step}`, width: "100%", height: "100%" })), words),
  );
  return element("ul", { class: "legend small", "aria-label": "Error as a multiple of the tolerance" }, ...items);
}

function wrongLines({ cells, row_step: rowStep, col_step: colStep, rows, cols }) {
  return cells.flatMap((line, at) => {
    const wrong = line.flatMap((cell, x) => (valueOf(cell) > 1 ? [x] : []));
    if (!wrong.length) return [];
    const [first, last] = [wrong[0] * colStep, Math.min((wrong.at(-1) + 1) * colStep, cols) - 1];
    return [
      {
        row: at * rowStep,
        end: Math.min((at + 1) * rowStep, rows) - 1,
        count: wrong.length,
        largest: Math.max(...wrong.map((x) => valueOf(line[x]))),
        columns: first === last ? `${first}` : `${first} to ${last}`,
      },
    ];
  });
}

function listed(map, lines, trace) {
  const rows = lines.slice(0, MOST_ROWS).map((line) =>
    row(ROWS, [
      element("strong", {}, line.row === line.end ? `row ${line.row}` : `rows ${line.row} to ${line.end}`),
      String(line.count),
      errorText(line.largest),
      line.columns,
      button(`Trace row ${line.row}`, () => trace(line.row)),
    ]),
  );
  const more = lines.length - rows.length;
  const caption = more > 0 ? `The first ${rows.length} wrong lines of cells; ${more} more are not shown.` : null;
  return table(ROWS, rows, { caption, label: "Rows with errors" });
}
