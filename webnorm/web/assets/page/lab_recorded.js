// This device's results beside those that the record has of others.
// rows: a name of the results' format.

import { barChart, shareChart } from "./chart.js";
import { dotChart } from "./lab_dots.js";
import { element } from "./dom.js";
import { gbpsText, NOTHING, optionsText, percentText, problemText } from "./format.js";
import { row, table } from "./table.js";

/**
 * @typedef {{ name: string, software: boolean, when: string, rows: number, gbps: number, percent: number | null,
 *   kernel: string | null }} Place
 * One device's best on a problem; `kernel` is null for webnorm's own choice.
 * @typedef {{ op: string, problem: object, mine: Place & { browser: string }, others: Place[],
 *   lacking: string[] }} Standing
 * A problem on this device and on others; `lacking` are devices without a record of it.
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
  "The recorded devices ran the kernel that webnorm chooses itself, outside of a browser. Each device's " +
  "percentage is of the fastest copy on that device, so it can be compared; GB/s say how fast its memory is.";
const SOFTWARE =
  "Devices marked “software” are processors that imitate a GPU: their times say nothing about any GPU.";

/**
 * Where a device stands with the fastest right kernel of one op; null where none was timed.
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
 * A device's name, and that it is none where it is software.
 * @param {Place} place
 * @returns {string}
 */
export function nameOf({ name, software }) {
  return software ? `${name} (software)` : name;
}

/**
 * A problem as it is told: "layer_norm, 4096x1024 float32, residual".
 * @param {Standing} standing
 * @returns {string}
 */
export function titleOf({ op, problem }) {
  return [op, problemText(problem), optionsText(problem.options)].filter(Boolean).join(", ");
}

/**
 * One problem: GB/s, the share of each device's own copy, and both in a table.
 * @param {Standing} standing
 * @returns {HTMLElement}
 */
export function standingCard(standing) {
  const places = [standing.mine, ...standing.others];
  const title = titleOf(standing);
  const bars = places.map((place, at) => ({
    // As short as fits beside a number on a phone; the table has the name.
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
      { class: "beside" },
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
    table(COLUMNS, places.map(rowOf), { class: "bleed", label: `${title}, beside recorded devices` }),
    element("p", { class: "muted small" }, remarks(standing)),
  );
}

function rowOf(place, at) {
  const mine = at === 0;
  return row(COLUMNS, [
    element("strong", {}, mine ? "This device: " : "", place.name, " ", software(place)),
    place.kernel ? element("span", { class: "mono" }, place.kernel) : "webnorm's own choice",
    String(place.rows),
    gbpsText(place.gbps),
    percentText(place.percent),
    place.when,
  ]);
}

function software(place) {
  return place.software ? element("span", { class: "tag warn" }, "software") : "";
}

/** What keeps the numbers of a standing from being compared without a thought. */
function remarks({ mine, others, lacking }) {
  const unlike = others.filter(({ rows }) => rows !== mine.rows);
  const told = unlike.map(({ name, rows }) => `${name} had ${rows}`).join(", ");
  return [
    others.length > 0 && NATIVELY,
    unlike.length > 0 &&
      `Rows differ: here are ${mine.rows}, ${told}. Few rows keep no large GPU busy, and may fit into a cache.`,
    [mine, ...others].some((place) => place.software) && SOFTWARE,
    lacking.length > 0 && `No record of this problem: ${lacking.join(", ")}.`,
  ]
    .filter(Boolean)
    .join(" ");
}

/**
 * All ops at once: a line each, with a mark for every device.
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
    table(columns, rows, { class: "bleed", label: `${title}: the fastest kernel, and percent of each copy` }),
    element("p", { class: "muted small" }, remarks(together(standings))),
  );
}

function shareOf({ mine, others }, name) {
  return [mine, ...others].find((place) => nameOf(place) === name)?.percent ?? null;
}

/** What the remarks on several standings are about: each device once. */
function together(standings) {
  const [{ mine }] = standings;
  const others = new Map(standings.flatMap((one) => one.others.map((place) => [place.name, place])));
  const lacking = standings.flatMap((one) => one.lacking.filter((name) => !others.has(name)));
  return { mine, others: [...others.values()], lacking: [...new Set(lacking)] };
}
