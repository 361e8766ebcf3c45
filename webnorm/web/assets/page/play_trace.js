// The values that trace() in the kernel wrote, compared with float64.

import { byId, element } from "./dom.js";
import { counted } from "./format.js";
import { numberText } from "./play_results.js";
import { row, table } from "./table.js";

const MOST = 200;
const COLUMNS = [
  { name: "Expression", wide: true, unnamed: true },
  { name: "Row", number: true },
  { name: "Workgroup", number: true },
  { name: "Invocation", number: true },
  { name: "Columns from", number: true },
  { name: "Value", number: true },
  { name: "float64", number: true },
  { name: "Verdict", unnamed: true },
];

/** Return the first records of every site, so that a site with many records does not hide the others. */
function someOfEach({ sites, records }) {
  const most = Math.ceil(MOST / sites.length);
  const taken = sites.map(() => 0);
  return records.filter(({ site }) => taken[site]++ < most);
}

function valuesText(values) {
  return values?.map(numberText).join(", ") ?? "";
}

/**
 * Show a trace, or a note that there is none.
 * @param {object | null | undefined} trace
 * @param {string | undefined} note  the reason why there is none
 * @param {(place: object, text: string) => Node} link  returns a place as text, with a link if possible
 */
export function showTrace(trace, note, link) {
  const parent = byId("trace");
  byId("trace-note").hidden = !note;
  byId("trace-note").textContent = note ?? "";
  if (!trace) return parent.replaceChildren(element("p", { class: "muted" }, "Nothing was traced."));
  const shown = someOfEach(trace);
  const rows = shown.map((record) => {
    const { name, place } = trace.sites[record.site];
    return row(
      COLUMNS,
      [
        place ? link(place, name) : element("code", {}, name),
        String(record.row ?? "–"),
        String(record.workgroup),
        String(record.invocation),
        String(record.column ?? "–"),
        valuesText(record.values),
        record.expected ? valuesText(record.expected) : "–",
        record.departs ? element("span", { class: "tag fail" }, "departs") : "",
      ],
      record.departs ? { class: "departs" } : {},
    );
  });
  const less = shown.length < trace.count ? `, ${shown.length} are shown` : "";
  const where = trace.filter ? ` where ${trace.filter}` : "";
  const unknown = shown.some(({ expected }) => !expected) ? " –: the float64 reference has no value of that name." : "";
  const caption = `${counted(trace.count, "value")}${where}${less}.${unknown}`;
  parent.replaceChildren(table(COLUMNS, rows, { caption, bleed: true }));
}
