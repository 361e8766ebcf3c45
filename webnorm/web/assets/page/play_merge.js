// Comparing the kernel with another text: an earlier save, a built-in kernel, or the file after a conflict.

import * as cm from "../vendor/editor.js";
import { byId, element } from "./dom.js";
import { shownAs, smallestChange } from "./play_editor.js";
import { ask } from "./play_link.js";

// Two columns do not fit on a phone.
const NARROW = matchMedia("(max-width: 47rem)");

/** The comparison panel at the end of the page. */
export class ComparisonPanel {
  #texts = null;
  #shown = null;
  #attempts = [];

  constructor() {
    byId("compare").addEventListener("click", () => this.#chosen());
    byId("other").addEventListener("change", () => this.#offer());
  }

  /** @param {import("./play_editor.js").Texts} texts */
  attach(texts) {
    this.#texts = texts;
  }

  /**
   * Fill the list of texts to compare with.
   * @param {object[]} attempts  the history
   * @param {{ op: string, kernel: string }[]} kernels  the built-in kernels
   */
  offer(attempts, kernels) {
    this.#attempts = attempts;
    const chosen = byId("other").value;
    byId("other").replaceChildren(
      group("Built-in kernels", kernels.map((one) => [`${one.op}/${one.kernel}`, `${one.op} ${one.kernel}`])),
      group("Earlier saves", attempts.map((one) => [one.number, `save ${one.number}, ${one.status}`]).reverse()),
    );
    if (chosen) byId("other").value = chosen;
    this.#offer();
  }

  /**
   * Show a text next to the editor's.
   * @param {string} label
   * @param {string} text
   */
  show(label, text) {
    this.close();
    const parent = byId("merge");
    parent.hidden = false;
    parent.replaceChildren(element("p", { class: "small" }, `${label}, and the current kernel`));
    const mine = this.#texts.text;
    const readOnly = cm.EditorState.readOnly.of(true);
    const wrapped = cm.EditorView.lineWrapping;
    const [left, right] = [shownAs(label), shownAs("The current kernel")];
    const collapse = { collapseUnchanged: { margin: 3, minSize: 8 } };
    if (NARROW.matches) {
      const unified = cm.unifiedMergeView({ original: text, mergeControls: false, ...collapse });
      this.#shown = new cm.EditorView({ parent, doc: mine, extensions: [...right.extensions, readOnly, wrapped, unified] });
      right.follow(this.#shown);
    } else {
      const side = ({ extensions }, doc) => ({ doc, extensions: [...extensions, readOnly, wrapped] });
      this.#shown = new cm.MergeView({ parent, a: side(left, text), b: side(right, mine), ...collapse });
      left.follow(this.#shown.a);
      right.follow(this.#shown.b);
    }
    parent.scrollIntoView({ block: "nearest" });
  }

  /** Update the panel after a change of the kernel. */
  refresh() {
    const view = this.#shown?.b ?? this.#shown;
    // Replace only the changed part: comparing all of a long text is slow.
    if (view) view.dispatch({ changes: smallestChange(view.state.doc.toString(), this.#texts.text) });
  }

  /** Close the panel. */
  close() {
    this.#shown?.destroy();
    this.#shown = null;
    byId("merge").hidden = true;
  }

  /**
   * Return the text of an earlier save.
   * @param {{ hash: string }} attempt
   * @returns {Promise<string>}
   */
  async source({ hash }) {
    return (await ask("GET", `api/source/${hash}`)).text();
  }

  #offer() {
    byId("compare").disabled = !byId("other").value;
  }

  async #chosen() {
    const [op, kernel] = byId("other").value.split("/");
    if (kernel) {
      this.show(`${op} ${kernel}`, await (await ask("GET", `api/kernel/${op}/${kernel}`)).text());
    } else {
      const attempt = this.#attempts.find(({ number }) => number === Number(byId("other").value));
      this.show(`Save ${attempt.number}`, await this.source(attempt));
    }
  }
}

function group(label, options) {
  const items = options.map(([value, text]) => element("option", { value }, text));
  return items.length ? element("optgroup", { label }, ...items) : "";
}
