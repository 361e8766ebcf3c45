// The package of the kernel: of one that is wrong only where a person insists, as `webnorm export` wants --force.

import { button, byId, download, element } from "./dom.js";
import { ask } from "./play_link.js";

// The server's status for a kernel that is wrong or unstable.
const UNFIT = 422;

/**
 * Save the package, or show why it is not to be used and offer it all the same.
 * @param {string} name  the kernel's
 * @param {(action: () => Promise<void>) => Promise<void>} doing  runs what a button does, and tells what fails
 * @param {boolean} [force]  whether a person insists
 */
export async function savePackage(name, doing, force = false) {
  const box = byId("unfit");
  box.hidden = true;
  try {
    const answer = await ask("POST", "api/export", { force });
    download(`${name}.tgz`, await answer.blob(), "application/gzip");
  } catch (error) {
    if (error.status !== UNFIT) throw error;
    const done = (work) => () => {
      // The box goes, and would take the keyboard's place with it.
      byId("export").focus();
      box.hidden = true;
      work();
    };
    const buttons = [
      button("Export it all the same", done(() => doing(() => savePackage(name, doing, true)))),
      button("Leave it", done(() => {})),
    ];
    box.replaceChildren(
      element("p", {}, `${error.message}.`),
      element("div", { class: "buttons" }, ...buttons),
    );
    box.hidden = false;
  }
}
