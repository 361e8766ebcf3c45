// Tables. On a narrow screen style.css turns them into cards, whose cells show the names of their columns.

import { element } from "./dom.js";

/**
 * @typedef {{ name: string, number?: boolean, wide?: boolean, unnamed?: boolean }} Column
 * `number`: aligned to the right. On a card, `wide` takes a whole line, and `unnamed` hides the name.
 */

/**
 * @param {Column[]} columns
 * @param {HTMLElement[]} rows
 * @param {{ caption?: string | null, label?: string, bleed?: boolean, class?: string }} [attributes]
 *   bleed: as wide as its card
 * @returns {HTMLElement}
 */
export function table(columns, rows, { caption = null, label, bleed = false, ...attributes } = {}) {
  // Explicit roles, since the layout as cards removes the implicit roles of a table.
  const heads = columns.map(({ name, number }) =>
    element("th", { scope: "col", role: "columnheader", class: number ? "number" : null }, name),
  );
  const made = element(
    "table",
    { role: "table", "aria-label": label, ...attributes },
    caption && element("caption", {}, caption),
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)),
    element("tbody", { role: "rowgroup" }, ...rows),
  );
  // In a grid, Firefox makes a table with negative margins too wide.
  return bleed ? element("div", { class: "bleed" }, made) : made;
}

/**
 * @param {Column[]} columns
 * @param {(Node | string)[]} contents  one for each column
 * @param {Record<string, string>} [attributes]
 * @returns {HTMLElement}
 */
export function row(columns, contents, attributes = {}) {
  const cells = columns.map(({ name, number, wide, unnamed }, at) => {
    const kinds = [number && "number", wide && "wide"].filter(Boolean).join(" ");
    return element(
      "td",
      { role: "cell", class: kinds || null, "data-label": unnamed ? null : name },
      contents[at],
    );
  });
  return element("tr", { role: "row", ...attributes }, ...cells);
}
