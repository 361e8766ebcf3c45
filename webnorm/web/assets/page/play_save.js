// Synchronising the file and the editor: typed text is saved, changes of the file are loaded, and no text is lost.

import { button, byId, element } from "./dom.js";
import { ask } from "./play_link.js";

const IDLE_MS = 300;
const KEY = "webnorm play autosave";

function plain(text) {
  return (text ?? "").replaceAll("\r\n", "\n").replaceAll("\r", "\n");
}

/** Keeps the editor and the file in step. */
export class Saver {
  #texts = null;
  #file = null;
  #base = null;
  #savedText = "";
  // Files of Windows end lines with two characters; this editor uses line feeds only.
  #ending = "\n";
  #sending = false;
  // The newest revision known. Snapshots with a smaller one do not contain the last save yet.
  #revision = 0;
  #timer = 0;
  #compare;

  /** @param {(label: string, text: string) => void} compare  shows a text next to the editor's */
  constructor(compare) {
    this.#compare = compare;
    const automatic = byId("autosave");
    automatic.checked = localStorage.getItem(KEY) !== "off";
    automatic.addEventListener("change", () => {
      localStorage.setItem(KEY, automatic.checked ? "on" : "off");
      this.typed();
    });
    byId("save").addEventListener("click", () => this.save());
    window.addEventListener("beforeunload", (event) => {
      if (this.dirty) event.preventDefault();
    });
  }

  /** @param {import("./play_editor.js").Texts} texts */
  attach(texts) {
    this.#texts = texts;
  }

  /** True if the editor contains changes that no file contains. */
  get dirty() {
    return this.#base !== null && this.#texts.text !== this.#savedText;
  }

  /** The SHA-256 of the text that was last saved or read. */
  get base() {
    return this.#base;
  }

  /** React to a change by the user. */
  typed() {
    clearTimeout(this.#timer);
    this.#showState();
    if (byId("autosave").checked && byId("conflict").hidden) {
      this.#timer = setTimeout(() => this.save(), IDLE_MS);
    }
  }

  /**
   * Take over the server's state of the file.
   * @param {{ path: string, text: string, base: string, missing?: boolean }} file
   * @param {number} revision
   */
  take(file, revision) {
    if (revision < this.#revision) return;
    const other = this.#file?.path !== file.path;
    this.#file = file;
    this.#revision = revision;
    this.#follow(other);
  }

  /** Load the file's text, or show a conflict if the editor has changes too. */
  #follow(other = false) {
    const file = this.#file;
    if (file.base === this.#base && !other) return;
    this.#ending = file.text?.includes("\r\n") ? "\r\n" : "\n";
    const text = plain(file.text);
    if (other || !this.dirty) {
      this.#texts.replace(text);
      this.#settle(text, file.base);
    } else if (text === this.#texts.text) {
      this.#settle(text, file.base);
    } else if (!this.#sending) {
      this.#conflict();
    }
    // While a text is being sent, the file's text may be the same text; the answer decides.
  }

  /** Save the editor's text if it differs from the file's. */
  async save() {
    clearTimeout(this.#timer);
    if (this.#sending || !this.dirty || !byId("conflict").hidden) return;
    const text = this.#texts.text;
    const before = this.#base;
    this.#sending = true;
    this.#texts.send();
    this.#showState("saving");
    try {
      const answer = await (await this.#put(text)).json();
      this.#sending = false;
      // Snapshots with this save, and with later texts, may have arrived before the answer.
      if (this.#base === before) this.#settle(text, answer.base);
      if (answer.revision > this.#revision) this.#revision = answer.revision;
      else this.#follow();
      if (this.dirty) this.typed();
    } catch (error) {
      this.#sending = false;
      if (error.status === 409) this.#conflict();
      else this.#showState(`not saved: ${error.message}`);
    }
  }

  #put(text) {
    return ask("PUT", "api/file", { text: text.replaceAll("\n", this.#ending), base: this.#base });
  }

  /** Retry a save that failed. */
  again() {
    if (byId("autosave").checked) this.save();
  }

  #settle(text, base) {
    this.#savedText = text;
    this.#base = base;
    this.#texts.settle(text);
    byId("conflict").hidden = true;
    this.#showState();
  }

  #conflict() {
    clearTimeout(this.#timer);
    const mine = this.#texts.text;
    const chosen = (text) => () => {
      // Either choice replaces the newest text of the file.
      this.#savedText = plain(this.#file.text);
      this.#base = this.#file.base;
      byId("conflict").hidden = true;
      this.#texts.replace(text(), true);
      this.#showState();
      this.save();
    };
    byId("conflict").replaceChildren(
      element("p", {}, "The file was changed elsewhere while you edited it here. Both texts still exist. Choose one."),
      element(
        "div",
        { class: "buttons" },
        button("Keep the editor's text", chosen(() => this.#texts.text)),
        button("Use the file's text", () => {
          this.#compare("The editor's earlier text", mine);
          chosen(() => plain(this.#file.text))();
        }),
        button("Compare the texts", () => this.#compare("The file's text", plain(this.#file.text))),
      ),
    );
    byId("conflict").hidden = false;
    this.#showState();
  }

  #showState(text) {
    const state = this.dirty ? "not saved yet" : this.#file?.missing ? "the file is gone" : "saved";
    byId("saved").textContent = text ?? state;
  }
}
