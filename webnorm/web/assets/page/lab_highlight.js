// Syntax highlighting of WGSL.

import { element } from "./dom.js";

const KEYWORDS = new Set(
  (
    "break case const continue continuing default diagnostic discard else enable fn for if let loop " +
    "override requires return struct switch var while true false"
  ).split(" "),
);
const SCALAR = "bool|f16|[fiu]32";
const SPACE = "workgroup|storage|uniform|immediate|read|read_write";
const TYPE = new RegExp(`^(?:${SCALAR}|vec[234][fiuh]?|mat[234]x[234][fh]?|array|atomic|ptr|${SPACE})$`);
const TOKEN = /(\/\/.*)|(@\w+|\b[A-Za-z_]\w*\b)|(\b(?:0x[\da-fA-F]+|\d[\d.]*(?:e[+-]?\d+)?)[uifh]?)/g;

/**
 * Return the text as nodes: comments, keywords, types and numbers are in spans with these classes.
 * @param {string} text
 * @returns {(string | HTMLElement)[]}
 */
export function highlighted(text) {
  const nodes = [];
  let done = 0;
  for (const { 0: token, 1: comment, 2: word, index } of text.matchAll(TOKEN)) {
    const kind = comment ? "comment" : word ? kindOf(word) : "number-literal";
    if (kind) {
      nodes.push(text.slice(done, index), element("span", { class: kind }, token));
      done = index + token.length;
    }
  }
  nodes.push(text.slice(done));
  return nodes;
}

function kindOf(word) {
  if (KEYWORDS.has(word) || word.startsWith("@")) return "keyword";
  return TYPE.test(word) ? "type" : null;
}
