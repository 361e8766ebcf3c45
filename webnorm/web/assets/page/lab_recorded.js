// This device's results compared with the recorded results of other devices.
// rows is a name of the results' format.

import { barChart, shareChart } from "./chart.js";
import { dotChart } from "./lab_dots.js";
import { element } from "./dom.js";
import { gbpsText, NOTHING, optionsText, percentText, problemText } from "./format.js";
import { row, table } from "./table.js";

/**
 * @typedef {{ name: string, software: boolean, when: string, rows: number, gbps: number, percent: number | null,
 *   kernel: string | null }} Place
 * One device's best result on a problem; `kernel` is null for the kernel that webnorm chooses.
 * @typedef {{ op: string, problem: object, mine: Place & { browser: string }, others: Place[],
 *   lacking: string[] }} Standing
 * A problem on this device and on others; `lacking` lists devices without a record of it.
 */

const COLUMNS = [
  { name: "Device", wide: true, unnamed: true },
  { name: "Kernel", wide: true },
  { name: "Rows", number: true },
  { name: "GB/s", number: true },
  { name: "of its copy", number: true },
  { name: "Measured", wide: true },
];
const NATIVELY =
  "The recorded devices ran the kernel that webnorm chooses by default, outside of a browser. Compare the percentages: " +
  "each is relative to the fastest copy on the same device. GB/s depend on the speed of the device's memory.";
const SOFTWARE =
  "Devices marked “software” are CPUs that emulate a GPU: their times say nothing about any GPU.";

/**
 * Compare a device's fastest right kernel of one op with the record; null if none was timed.
 * @param {object[]} results  of one op, and of the copies
 * @param {string} key  the problem's name in the record
 * @param {{ name: string, software: boolean, browser: string }} device
 * @param {Record<string, object>} recorded  page/lab_recorded.json
 * @returns {Standing | null}
 */
export function standingOf(results, key, device, recorded) {
  const timed = results.filter(({ op, status, gbps }) => op !== "copy" && status === "pass" && gbps);
  const [best] = timed.sort((a, b) => a.median_ns - b.median_ns);
  if (!best) return null;
  const mine = {
    ...device,
    when: `now, in ${device.browser}`,
    rows: best.problem.rows,
    gbps: best.gbps,
    percent: best.percent_of_copy ?? null,
    kernel: best.kernel,
  };
  const devices = Object.values(recorded);
  return {
    op: best.op,
    problem: best.problem,
    mine,
    others: devices.filter(({ problems }) => problems[key]).map((one) => placeOf(one, one.problems[key])),
    lacking: devices.filter(({ problems }) => !problems[key]).map(({ name }) => name),
  };
}

function placeOf({ name, software, date }, { rows, gbps, percent_of_copy: percent }) {
  return { name, software, when: date, rows, gbps, percent, kernel: null };
}

/**
 * Return a device's name, marked if it is a software adapter.
 * @param {Place} place
 * @returns {string}
 */
export function nameOf({ name, software }) {
  return software ? `${name} (software)` : name;
}

/**
 * Return the title of a problem, such as "layer_norm, 4096x1024 float32, residual".
 * @param {Standing} standing
 * @returns {string}
 */
export function titleOf({ op, problem }) {
  return [op, problemText(problem), optionsText(problem.options)].filter(Boolean).join(", ");
}

/**
 * Return a card for one problem: charts of GB/s and of percentages of each device's copy, and a table of both.
 * @param {Standing} standing
 * @returns {HTMLElement}
 */
export function standingCard(standing) {
  const places = [standing.mine, ...standing.others];
  const title = titleOf(standing);
  const bars = places.map((place, at) => ({
    // Short enough for a phone; the table contains the name.
    label: nameOf(at === 0 ? { ...place, name: "This device" } : place),
    gbps: place.gbps,
    percent: place.percent,
    strong: at === 0,
  }));
  const chart = (name, drawn) => element("div", {}, element("h4", {}, name), drawn);
  return element(
    "article",
    { class: "card stack" },
    element("h3", {}, title),
    element(
      "div",
      { class: "side-by-side" },
      chart(
        "GB/s",
        barChart(
          `${title}, GB/s`,
          bars.map((bar) => ({ ...bar, percent: null })),
          null,
        ),
      ),
      chart("Percent of each device's own copy", shareChart(`${title}, percent of each device's copy`, bars)),
    ),
    table(COLUMNS, places.map(rowOf), { bleed: true, label: `${title}, compared with recorded devices` }),
    element("p", { class: "muted small" }, remarks(standing)),
  );
}

function rowOf(place, at) {
  const mine = at === 0;
  return row(COLUMNS, [
    element("strong", {}, mine ? "This device: " : "", place.name, " ", software(place)),
    place.kernel ? element("span", { class: "mono" }, place.kernel) : "webnorm's choice",
    String(place.rows),
    gbpsText(place.gbps),
    percentText(place.percent),
    place.when,
  ]);
}

function software(place) {
  return place.software ? element("span", { class: "tag warn" }, "software") : "";
}

/** Return the notes that a reader needs to compare the numbers of a standing. */
function remarks({ mine, others, lacking }) {
  const different = others.filter(({ rows }) => rows !== mine.rows);
  const listed = different.map(({ name, rows }) => `${name} had ${rows}`).join(", ");
  return [
    others.length > 0 && NATIVELY,
    different.length > 0 &&
      `The numbers of rows differ: this device had ${mine.rows}, ${listed}. A few rows cannot keep a large GPU busy, and ` +
        "may fit into a cache.",
    [mine, ...others].some((place) => place.software) && SOFTWARE,
    lacking.length > 0 && `No record of this problem: ${lacking.join(", ")}.`,
  ]
    .filter(Boolean)
    .join(" ");
}

/**
 * Return an overview of all ops: one line per op, with a mark for every device.
 * @param {Standing[]} standings
 * @returns {HTMLElement}
 */
export function overviewCard(standings) {
  const names = [...new Set(standings.flatMap(({ mine, others }) => [mine, ...others].map(nameOf)))];
  const columns = [
    { name: "Op", wide: true, unnamed: true },
    { name: "Fastest here" },
    { name: "GB/s", number: true },
    { name: "of its copy", number: true },
    ...names.slice(1).map((name) => ({ name, number: true })),
  ];
  const lines = standings.map((standing) => {
    const shares = names.map((name) => shareOf(standing, name));
    return { standing, shares };
  });
  const [{ problem }] = standings;
  const title = titleOf({ op: "All ops", problem });
  const rows = lines.map(({ standing: { op, mine }, shares }) =>
    row(columns, [
      element("strong", { class: "mono" }, op),
      element("span", { class: "mono" }, mine.kernel),
      gbpsText(mine.gbps),
      percentText(mine.percent),
      ...shares.slice(1).map((share) => (share === null ? NOTHING : percentText(share))),
    ]),
  );
  return element(
    "article",
    { class: "card stack" },
    element("h3", {}, title),
    element("h4", {}, "Percent of each device's own copy"),
    dotChart(
      `${title}, percent of each device's copy`,
      names,
      lines.map(({ standing, shares }) => ({ label: standing.op, shares })),
    ),
    table(columns, rows, { bleed: true, label: `${title}: the fastest kernel, and percent of each copy` }),
    element("p", { class: "muted small" }, remarks(together(standings))),
  );
}

function shareOf({ mine, others }, name) {
  return [mine, ...others].find((place) => nameOf(place) === name)?.percent ?? null;
}

/** Merge several standings for the remarks: each device appears once. */
function together(standings) {
  const [{ mine }] = standings;
  const others = new Map(standings.flatMap((one) => one.others.map((place) => [place.name, place])));
  const lacking = standings.flatMap((one) => one.lacking.filter((name) => !others.has(name)));
  return { mine, others: [...others.values()], lacking: [...new Set(lacking)] };
}
