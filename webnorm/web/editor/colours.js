// The editor's theme, with the colour variables of the page's style sheets.

import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const HIGHLIGHT = HighlightStyle.define([
  { tag: [tags.keyword, tags.annotation], color: "var(--keyword)" },
  { tag: tags.typeName, color: "var(--type)" },
  { tag: [tags.number, tags.string], color: "var(--number)" },
  { tag: tags.comment, color: "var(--comment)" },
  { tag: [tags.meta, tags.controlKeyword, tags.special(tags.variableName)], color: "var(--jinja)" },
  { tag: [tags.heading, tags.propertyName], color: "var(--type)" },
]);

const SPEC = {
  "&": { backgroundColor: "var(--card)", color: "var(--ink)", fontSize: "0.85rem" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": {
    backgroundColor: "var(--sunken)",
    borderRight: "1px solid var(--line)",
    color: "var(--muted)",
  },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--active)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--selected)",
  },
  ".cm-selectionMatch": { backgroundColor: "var(--selected)" },
  // CodeMirror's underlines are images in data: URLs, which the page's policy does not allow.
  ".cm-lintRange-error, .cm-lintRange-warning, .cm-lintRange-info, .cm-lintRange-hint": {
    backgroundImage: "none",
    paddingBottom: 0,
    textDecoration: "underline wavy var(--fail)",
    textDecorationSkipInk: "none",
  },
  ".cm-lintRange-warning, .cm-lintRange-info, .cm-lintRange-hint": { textDecorationColor: "var(--warn)" },
  ".cm-lint-marker": {
    width: "0.7em",
    height: "0.7em",
    margin: "0.4em 0 0 0.1em",
    borderRadius: "50%",
    backgroundColor: "var(--fail)",
  },
  ".cm-lint-marker-error, .cm-lint-marker-warning, .cm-lint-marker-info": { content: "none" },
  ".cm-lint-marker-warning, .cm-lint-marker-info": { backgroundColor: "var(--warn)" },
  ".cm-panels, .cm-tooltip": {
    backgroundColor: "var(--card)",
    borderColor: "var(--line)",
    color: "var(--ink)",
  },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": {
    backgroundColor: "var(--accent)",
    color: "var(--on-accent)",
  },
  ".cm-button, .cm-textfield": {
    backgroundImage: "none",
    backgroundColor: "var(--card)",
    borderColor: "var(--line)",
    color: "var(--ink)",
  },
};

/**
 * @param {boolean} dark  selects CodeMirror's dark or light base theme
 * @returns {import("@codemirror/state").Extension}
 */
export function colours(dark) {
  return [EditorView.theme(SPEC, { dark }), syntaxHighlighting(HIGHLIGHT)];
}
