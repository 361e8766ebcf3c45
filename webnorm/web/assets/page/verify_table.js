// The table of verify.html: one row per shader, which expands to show its vectors.

import { byId, element } from "./dom.js";
import { errorText, gbpsText, NOTHING, percentText, timeText } from "./format.js";
import { row, table } from "./table.js";

const WORDS = { pass: "pass", fail: "FAIL", skip: "cannot run here" };
const ABOUT = [
  { name: "Shader", wide: true, unnamed: true },
  { name: "Needs", wide: true },
  { name: "Verdict" },
  { name: "Max error", number: true },
];
const SPEED = [
  { name: "GB/s", number: true },
  { name: "of copy", number: true },
];
const VECTOR = [
  { name: "Vector", wide: true, unnamed: true },
  { name: "Max error", number: true },
  { name: "Description", wide: true, unnamed: true },
];

/**
 * Return a verdict in its colour.
 * @param {"pass" | "fail" | "skip"} verdict
 * @returns {HTMLElement}
 */
export function verdictTag(verdict) {
  return element("span", { class: `tag ${verdict}` }, WORDS[verdict]);
}

function vectorTag(verdict) {
  return verdict === "skip" ? element("span", { class: "tag skip" }, "not compared") : verdictTag(verdict);
}

/** The table; it remembers which rows are open. */
export class ShaderTable {
  #open = new Set();

  /**
   * Return the table for the current state of a report.
   * @param {object} report
   * @param {object} manifest
   * @returns {HTMLElement}
   */
  show(report, manifest) {
    const native = manifest.shaders.find((shader) => shader.native?.adapter)?.native.adapter;
    const exported = native ? ` After the slash: the error that webnorm export measured on ${native}.` : "";
    const caption = `Max error: the largest absolute error of the stored output, and the tolerance of that element.${exported}`;
    const columns = report.copy.length > 0 ? [...ABOUT, ...SPEED] : ABOUT;
    const rows = report.shaders.flatMap((entry) => {
      const shader = manifest.shaders.find((one) => one.name === entry.name);
      const line = this.#line(entry, shader, columns);
      return entry.vectors.length ? [line, this.#vectors(entry, shader, manifest, columns.length)] : [line];
    });
    return element("div", { class: "card table" }, table(columns, rows, { caption }));
  }

  #line(entry, shader, columns) {
    const { timing, chosen, skipped, verdict } = entry;
    const name = entry.vectors.length ? this.#opener(entry) : element("span", { class: "mono" }, entry.name);
    const contents = [
      element("span", {}, name, " ", chosen && element("span", { class: "tag accent" }, "chosen")),
      needs(shader),
      element(
        "span",
        {},
        verdict === "skip" && !skipped ? NOTHING : verdictTag(verdict),
        " ",
        skipped,
        shader.loose && element("span", { class: "small line" }, `Warning: ${shader.loose}.`),
      ),
      verdict === "skip" ? NOTHING : errors(entry, shader.native),
      speed(timing),
      percentText(timing?.percent_of_copy),
    ];
    return row(columns, contents, skipped ? { class: "skipped" } : {});
  }

  #opener(entry) {
    const id = idOf(entry);
    const opener = element(
      "button",
      {
        type: "button",
        class: "plain opener mono",
        "aria-expanded": String(this.#open.has(id)),
        "aria-controls": id,
        title: "Show every vector",
      },
      entry.name,
    );
    opener.addEventListener("click", () => {
      const opened = !this.#open.delete(id);
      if (opened) this.#open.add(id);
      opener.setAttribute("aria-expanded", String(opened));
      byId(id).hidden = !opened;
    });
    return opener;
  }

  #vectors(entry, shader, manifest, width) {
    const lines = entry.vectors.map((vector) => {
      const named = manifest.vectors.find((one) => one.name === vector.name && one.cols === entry.cols);
      return row(VECTOR, [
        element("span", {}, element("strong", {}, vector.name), " ", vectorTag(vector.verdict)),
        errors(vector, shader.native?.vectors?.[vector.name]),
        vector.reason ?? named.what,
      ]);
    });
    const id = idOf(entry);
    return element(
      "tr",
      { class: "inner", role: "row", id, hidden: !this.#open.has(id) },
      element(
        "td",
        { colspan: width, role: "cell" },
        table(VECTOR, lines, { label: `Vectors of ${entry.name}` }),
      ),
    );
  }
}

function idOf(entry) {
  return `vectors-${entry.name}`;
}

function errors(here, native) {
  const there = native?.max_abs_error;
  const known = there === undefined ? null : element("span", { class: "second" }, ` / ${errorText(there)}`);
  const allowed = here.allowed === null ? "" : ` of ${errorText(here.allowed)}`;
  return element("span", {}, `${errorText(here.max_abs_error)}${allowed}`, known);
}

function needs({ features, limits, software }) {
  const words = [
    ...features,
    `${limits.maxComputeInvocationsPerWorkgroup} invocations`,
    `${limits.maxComputeWorkgroupStorageSize} B shared`,
    ...(software ? ["for software adapters"] : []),
  ];
  return element("span", { class: "small" }, words.join(", "));
}

function speed(timing) {
  if (!timing) return NOTHING;
  const [median, p20, p80] = [timing.median_ns, timing.p20_ns, timing.p80_ns].map(timeText);
  const title = `median ${median}, 60 % of the samples ${p20} to ${p80}`;
  return element("span", { title }, gbpsText(timing.gbps));
}
