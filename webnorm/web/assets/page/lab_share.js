// Results as a text that people send one another.
// rows: a name of the results' format.

import { byId } from "./dom.js";
import { gbpsText, percentText } from "./format.js";
import { nameOf, titleOf } from "./lab_recorded.js";

const CONFIRMED_MS = 2000;

/**
 * What was found, in a few lines, with where it can be tried.
 * @param {import("./lab_recorded.js").Standing[]} standings
 * @param {string} found  how many kernels were right, in words
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
  const beware = mine?.software ? ["A software adapter: these times say nothing about a GPU."] : [];
  return [...head, ...lines, `Checked against float64: ${found}`, ...beware, link].join("\n");
}

function speed({ gbps, percent }) {
  return percent === null
    ? `${gbpsText(gbps)} GB/s`
    : `${gbpsText(gbps)} GB/s, ${percentText(percent)} of its copy`;
}

/**
 * Put a text on the clipboard and say so; where the browser refuses that, show it to be copied by hand.
 * @param {string} text
 * @param {HTMLElement} pressed
 */
export async function share(text, pressed) {
  const area = byId("summary");
  try {
    await navigator.clipboard.writeText(text);
    area.hidden = true;
    tell("Copied: the results in words, and a link to the same choice.");
    pressed.textContent = "Copied ✓";
    setTimeout(() => (pressed.textContent = "Copy"), CONFIRMED_MS);
  } catch {
    area.value = text;
    area.rows = text.split("\n").length;
    area.hidden = false;
    area.focus();
    area.select();
    tell("The browser does not let this page copy. Here is the text, selected: copy it from there.");
  }
}

/**
 * Say what became of the results.
 * @param {string} text
 */
export function tell(text) {
  byId("shared").textContent = text;
}
