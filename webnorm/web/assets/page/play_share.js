// One file to share: the kernel with its results and device, readable without other files.

import { byId, download, element } from "./dom.js";

const STYLES = ["page/style.css", "page/play.css"];
// The sections that a reader of the file needs.
const PARTS = ["shapes-title", "map-section", "times-section", "cost-section", "history-section"];

/**
 * Save the kernel and the shown results as one page.
 * @param {{ file: { name: string, op?: string, text: string }, attempt?: object, device?: object }} snapshot
 */
export async function share({ file, attempt, device }) {
  const styles = await Promise.all(STYLES.map(async (path) => (await fetch(path)).text()));
  const kernel = `data:text/plain;charset=utf-8,${encodeURIComponent(file.text)}`;
  const page = element(
    "main",
    {},
    element("h1", { class: "mono" }, file.name),
    element("p", {}, about(file, attempt, device)),
    element("p", {}, element("a", { href: kernel, download: file.name }, `Save ${file.name}`)),
    ...PARTS.map(part).filter(Boolean),
    element("section", {}, element("h2", {}, "Kernel"), element("pre", { class: "card mono" }, file.text)),
  );
  const head = element("head", {}, element("meta", { charset: "utf-8" }), element("title", {}, file.name));
  head.append(
    element("meta", { name: "viewport", content: "width=device-width, initial-scale=1" }),
    element("meta", { name: "color-scheme", content: "light dark" }),
    element("style", {}, styles.join("\n")),
  );
  const body = element("body", { class: "play", "data-state": document.body.dataset.state }, page);
  const html = element("html", { lang: "en" }, head, body);
  download(`${file.name.replace(/\.wgsl$/, "")}.html`, `<!doctype html>\n${html.outerHTML}\n`, "text/html");
}

function about({ op }, attempt, device) {
  const verdict = attempt?.ok ? "right" : attempt?.ok === false ? "wrong" : "not checked";
  return `A kernel of ${op ?? "an unknown op"}, ${verdict}, on ${device?.adapter ?? "no adapter"}, ${attempt?.saved ?? ""}.`;
}

/** Return a copy of a section without forms, buttons and ids, which only work in the playground. */
function part(id) {
  const section = byId(id).closest("section");
  if (section.hidden) return null;
  const copied = section.cloneNode(true);
  copied.querySelectorAll("form").forEach((form) => form.remove());
  copied.querySelectorAll("button").forEach((button) => button.replaceWith(button.textContent));
  copied.querySelectorAll("[id]").forEach((each) => each.removeAttribute("id"));
  copied.querySelectorAll("[aria-labelledby]").forEach((each) => each.removeAttribute("aria-labelledby"));
  copied.removeAttribute("id");
  copied.removeAttribute("aria-labelledby");
  return copied;
}
