// The results as a text to copy and send.
// rows is a name of the results' format.

import { byId } from "./dom.js";
import { gbpsText, percentText } from "./format.js";
import { nameOf, titleOf } from "./lab_recorded.js";

const CONFIRMED_MS = 2000;

/**
 * Return the results in a few lines, with a link to the same selection.
 * @param {import("./lab_recorded.js").Standing[]} standings
 * @param {string} found  the counts of verdicts, in words
 * @param {string} link
 * @returns {string}
 */
export function summaryText(standings, found, link) {
  const lines = standings.flatMap((standing) => [
    `${titleOf(standing)}: fastest here is ${standing.mine.kernel}, ${speed(standing.mine)}`,
    ...standing.others.map((place) => {
      const rows = place.rows === standing.mine.rows ? "" : `, ${place.rows} rows`;
      return `  ${nameOf(place)}: ${speed(place)} (recorded ${place.when}${rows})`;
    }),
  ]);
  const [{ mine } = {}] = standings;
  const head = mine ? [`webnorm lab on ${nameOf(mine)}, in ${mine.browser}`] : ["webnorm lab"];
  const warning = mine?.software ? ["A software adapter: these times say nothing about a GPU."] : [];
  return [...head, ...lines, `Checked against float64: ${found}`, ...warning, link].join("\n");
}

function speed({ gbps, percent }) {
  return percent === null
    ? `${gbpsText(gbps)} GB/s`
    : `${gbpsText(gbps)} GB/s, ${percentText(percent)} of its copy`;
}

/**
 * Copy a text to the clipboard and confirm it; if the browser refuses, show the text for copying by hand.
 * @param {string} text
 * @param {HTMLElement} pressed
 */
export async function share(text, pressed) {
  const area = byId("summary");
  try {
    await navigator.clipboard.writeText(text);
    area.hidden = true;
    announce("Copied: a summary of the results, and a link to the same selection.");
    pressed.textContent = "Copied ✓";
    setTimeout(() => (pressed.textContent = "Copy"), CONFIRMED_MS);
  } catch {
    area.value = text;
    area.rows = text.split("\n").length;
    area.hidden = false;
    area.focus();
    area.select();
    announce("The browser does not let this page copy. The text is selected below: copy it from there.");
  }
}

/**
 * Show a message about copying or sending the results.
 * @param {string} text
 */
export function announce(text) {
  byId("shared").textContent = text;
}
