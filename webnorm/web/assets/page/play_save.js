// The file and the editor: what is typed is saved, what others write is taken over, and neither is ever lost.

import { button, byId, element } from "./dom.js";
import { ask } from "./play_link.js";

const IDLE_MS = 300;
const KEY = "webnorm play autosave";

function plain(text) {
  return (text ?? "").replaceAll("\r\n", "\n").replaceAll("\r", "\n");
}

/** Holds the editor against the file. */
export class Saver {
  #texts = null;
  #file = null;
  #base = null;
  #savedText = "";
  // Editors of Windows end lines with two characters; this one has line feeds alone.
  #ending = "\n";
  #sending = false;
  // Snapshots before this one do not know of the last save yet.
  #revision = 0;
  #timer = 0;
  #compare;

  /** @param {(label: string, text: string) => void} compare  shows a text beside the editor's */
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

  /** Whether the editor has what no file has. */
  get dirty() {
    return this.#base !== null && this.#texts.text !== this.#savedText;
  }

  /** The SHA-256 of the text that was last saved or read. */
  get base() {
    return this.#base;
  }

  /** A person typed. */
  typed() {
    clearTimeout(this.#timer);
    this.#tell();
    if (byId("autosave").checked && byId("conflict").hidden) {
      this.#timer = setTimeout(() => this.save(), IDLE_MS);
    }
  }

  /**
   * The file as the server has it.
   * @param {{ path: string, text: string, base: string, missing?: boolean }} file
   * @param {number} revision
   */
  take(file, revision) {
    if (revision < this.#revision) return;
    const other = this.#file?.path !== file.path;
    this.#file = file;
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
    // While a text is sent, the file's may be that very text; the answer will tell.
  }

  /** Write the editor's text, where it is another than the file's. */
  async save() {
    clearTimeout(this.#timer);
    if (this.#sending || !this.dirty || !byId("conflict").hidden) return;
    const text = this.#texts.text;
    this.#sending = true;
    this.#texts.send();
    this.#tell("saving");
    try {
      const answer = await (await this.#put(text)).json();
      this.#sending = false;
      this.#revision = answer.revision;
      this.#settle(text, answer.base);
      if (this.dirty) this.typed();
    } catch (error) {
      this.#sending = false;
      if (error.status === 409) this.#conflict();
      else this.#tell(`not saved: ${error.message}`);
    }
  }

  #put(text) {
    return ask("PUT", "api/file", { text: text.replaceAll("\n", this.#ending), base: this.#base });
  }

  /** Save what could not be saved before. */
  again() {
    if (byId("autosave").checked) this.save();
  }

  #settle(text, base) {
    this.#savedText = text;
    this.#base = base;
    this.#texts.settle(text);
    byId("conflict").hidden = true;
    this.#tell();
  }

  #conflict() {
    clearTimeout(this.#timer);
    const mine = this.#texts.text;
    const chosen = (text) => () => {
      // Either way the newest text of the file is the one that is replaced.
      this.#savedText = plain(this.#file.text);
      this.#base = this.#file.base;
      byId("conflict").hidden = true;
      this.#texts.replace(text(), true);
      this.#tell();
      this.save();
    };
    byId("conflict").replaceChildren(
      element("p", {}, "The file was changed elsewhere while it was edited here. Both texts are still there."),
      element(
        "div",
        { class: "buttons" },
        button("Keep the editor's", chosen(() => this.#texts.text)),
        button("Take the file's", () => {
          this.#compare("what the editor had", mine);
          chosen(() => plain(this.#file.text))();
        }),
        button("Show the two", () => this.#compare("the file", plain(this.#file.text))),
      ),
    );
    byId("conflict").hidden = false;
    this.#tell();
  }

  #tell(what) {
    const state = this.dirty ? "not saved yet" : this.#file?.missing ? "the file is gone" : "saved";
    byId("saved").textContent = what ?? state;
  }
}
