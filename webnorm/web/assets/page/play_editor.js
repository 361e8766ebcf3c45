// The two editors: the kernel, which the user edits, and the rendered text. A map connects their lines.

import * as cm from "../vendor/editor.js";
import { byId } from "./dom.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");
const TAB = "    ";

const mark = cm.StateEffect.define();
const MARKED = cm.Decoration.line({ class: "cm-marked" });
const marks = cm.StateField.define({
  create: () => cm.Decoration.none,
  update(value, transaction) {
    const asked = transaction.effects.find((effect) => effect.is(mark));
    if (!asked) return value.map(transaction.changes);
    const { doc } = transaction.state;
    const lines = asked.value.filter((line) => line >= 1 && line <= doc.lines);
    return cm.Decoration.set(lines.map((line) => MARKED.range(doc.line(line).from)));
  },
  provide: (field) => cm.EditorView.decorations.from(field),
});

/**
 * Return the extensions that all editors of the page share; the colours follow the system's.
 * @param {string} label  the name of the text
 * @returns {{ extensions: object[], follow: (view: object) => void }}
 */
export function shownAs(label) {
  const colours = new cm.Compartment();
  const extensions = [
    colours.of(cm.colours(DARK.matches)),
    cm.EditorView.cspNonce.of(byId("nonce").nonce),
    cm.EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
    cm.lineNumbers(),
    cm.drawSelection(),
    cm.template,
    cm.search(),
    cm.highlightSelectionMatches(),
    cm.keymap.of([...cm.searchKeymap]),
  ];
  const follow = (view) =>
    DARK.addEventListener("change", () =>
      view.dispatch({ effects: colours.reconfigure(cm.colours(DARK.matches)) }),
    );
  return { extensions, follow };
}

function opened(parent, label, extensions) {
  const shown = shownAs(label);
  const view = new cm.EditorView({ parent, extensions: [...shown.extensions, marks, ...extensions] });
  shown.follow(view);
  return view;
}

/** Return the number of the line with the cursor. */
function lineOf({ doc, selection }) {
  return doc.lineAt(selection.main.head).number;
}

/** Convert a number of characters, as in Python, to UTF-16 units, as in JavaScript. */
function unitsOf(text, characters) {
  return [...text].slice(0, characters).join("").length;
}

/**
 * Return the smallest change from one text to another: equal parts at both ends stay untouched.
 * @param {string} old
 * @param {string} text
 */
export function smallestChange(old, text) {
  const most = Math.min(old.length, text.length);
  let from = 0;
  while (from < most && old[from] === text[from]) from += 1;
  let same = 0;
  while (same < most - from && old[old.length - 1 - same] === text[text.length - 1 - same]) same += 1;
  return { from, to: old.length - same, insert: text.slice(from, text.length - same) };
}

/** The two editors and the map between their lines. */
export class Texts {
  #origins = [];
  #files = [];
  // The changes since the text that was last saved or read; mistakes and origins refer to that text.
  #since = null;
  #base;
  #sent = null;
  #rendered = null;
  #loading = false;

  /**
   * @param {() => void} typed  called on each change by the user
   * @param {() => void} save
   */
  constructor(typed, save) {
    this.kernel = opened(byId("editor"), "Kernel", [
      cm.lintGutter(),
      cm.history(),
      cm.closeBrackets(),
      cm.bracketMatching(),
      cm.autocompletion({ override: [cm.completeAnyWord] }),
      cm.highlightActiveLine(),
      cm.highlightActiveLineGutter(),
      cm.indentUnit.of(TAB),
      cm.keymap.of([
        { key: "Mod-s", run: () => (save(), true), preventDefault: true },
        ...cm.closeBracketsKeymap,
        ...cm.completionKeymap,
        ...cm.defaultKeymap,
        ...cm.historyKeymap,
        ...cm.lintKeymap,
        cm.indentWithTab,
      ]),
      cm.EditorView.updateListener.of((update) => this.#kernelChanged(update, typed)),
    ]);
    this.rendered = opened(byId("rendered"), "Rendered WGSL, for reading", [
      cm.EditorState.readOnly.of(true),
      cm.keymap.of([...cm.defaultKeymap]),
      cm.EditorView.updateListener.of((update) => {
        if (update.selectionSet && update.view.hasFocus) this.#markKernel();
      }),
    ]);
    this.#base = this.kernel.state.doc;
  }

  /** The kernel's text in the editor. */
  get text() {
    return this.kernel.state.doc.toString();
  }

  /** Put a text into the editor; `typing` is true if the user chose it, so that it is saved. */
  replace(text, typing = false) {
    const change = smallestChange(this.text, text);
    this.#loading = !typing;
    // Undo must not go back to the empty editor before the first text, which would then be saved.
    const undoable = this.kernel.state.doc.length > 0;
    this.kernel.dispatch({ changes: change, annotations: cm.Transaction.addToHistory.of(undoable) });
    this.#loading = false;
  }

  /** Note that the current text is sent to the server. */
  send() {
    this.#sent = { doc: this.kernel.state.doc, since: null };
  }

  /** Note that mistakes and lines now refer to the sent text, or to `text` if the editor contains it. */
  settle(text) {
    const here = this.kernel.state.doc;
    const settled = here.toString() === text ? { doc: here, since: null } : this.#sent;
    if (settled) [this.#base, this.#since, this.#sent] = [settled.doc, settled.since, null];
  }

  /**
   * Underline mistakes.
   * @param {{ own: boolean, line: number, column: number, length: number, message: string, by: string }[]} mistakes
   */
  underline(mistakes) {
    const found = mistakes.filter((one) => one.own && one.line).map((one) => this.#diagnostic(one));
    this.kernel.dispatch(cm.setDiagnostics(this.kernel.state, found));
  }

  /**
   * Go to a place in the kernel.
   * @param {{ line: number, column?: number }} place
   */
  goTo(place) {
    const { from } = this.#range({ column: 1, length: 0, ...place });
    this.kernel.dispatch({ selection: { anchor: from }, effects: cm.EditorView.scrollIntoView(from, { y: "center" }) });
    this.kernel.focus();
  }

  /**
   * Show the rendered text.
   * @param {{ text: string, files: string[], origins: [number, number][] } | null | undefined} rendered
   */
  show(rendered) {
    const { text, files, origins } = rendered ?? { text: "", files: [], origins: [] };
    if (text !== this.#rendered) {
      this.#rendered = text;
      const change = smallestChange(this.rendered.state.doc.toString(), text);
      this.rendered.dispatch({ changes: change });
    }
    this.#files = files;
    this.#origins = origins;
    this.#markRendered(false);
  }

  #range({ line, column, length }) {
    const { lines } = this.#base;
    const found = this.#base.line(Math.min(Math.max(line, 1), lines));
    const begin = Math.min(found.from + unitsOf(found.text, (column || 1) - 1), found.to);
    const end = length
      ? begin + unitsOf(this.#base.sliceString(begin, Math.min(begin + 2 * length, this.#base.length)), length)
      : found.to;
    const now = (position, side) => (this.#since ? this.#since.mapPos(position, side) : position);
    return { from: now(begin, 1), to: Math.max(now(end, -1), now(begin, 1)) };
  }

  #diagnostic(mistake) {
    const { message, by } = mistake;
    return { ...this.#range(mistake), severity: mistake.severity ?? "error", source: by, message };
  }

  #kernelChanged(update, typed) {
    if (update.docChanged) {
      const after = (since) => (since ? since.compose(update.changes) : update.changes);
      this.#since = after(this.#since);
      if (this.#sent) this.#sent.since = after(this.#sent.since);
      if (!this.#loading) typed();
    }
    if (update.selectionSet && update.view.hasFocus) this.#markRendered(true);
  }

  /** Mark the rendered lines of the kernel's current line. */
  #markRendered(scroll) {
    const line = this.#baseLine(lineOf(this.kernel.state));
    const lines = this.#origins.flatMap(([file, from], at) => (file === 0 && from === line ? [at + 1] : []));
    this.#mark(this.rendered, lines, scroll);
    this.#mark(this.kernel, [], false);
    byId("origin").textContent = lines.length ? `line ${lines.join(", ")}`.slice(0, 60) : "";
  }

  /** Mark the origin of the current rendered line, and show its place. */
  #markKernel() {
    const [file, line] = this.#origins[lineOf(this.rendered.state) - 1] ?? [];
    if (line === undefined) return;
    this.#mark(this.rendered, [], false);
    this.#mark(this.kernel, file === 0 ? [this.#lineNow(line)] : [], true);
    byId("origin").textContent = `${this.#files[file] ?? "?"}:${line}`;
  }

  #mark(view, lines, scroll) {
    const effects = [mark.of(lines)];
    if (scroll && lines.length) {
      const { from } = view.state.doc.line(Math.min(lines[0], view.state.doc.lines));
      effects.push(cm.EditorView.scrollIntoView(from, { y: "nearest", yMargin: 40 }));
    }
    // During an update of the other editor this must wait for its end.
    queueMicrotask(() => view.dispatch({ effects }));
  }

  #baseLine(line) {
    if (!this.#since) return line;
    const position = this.#since.invertedDesc.mapPos(this.kernel.state.doc.line(line).from, 1);
    return this.#base.lineAt(Math.min(position, this.#base.length)).number;
  }

  #lineNow(line) {
    const { from } = this.#range({ line, column: 1, length: 0 });
    return this.kernel.state.doc.lineAt(from).number;
  }
}
