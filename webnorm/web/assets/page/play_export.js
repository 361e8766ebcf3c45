// Exporting the kernel as a package. A wrong kernel needs a confirmation, as `webnorm export` needs --force.

import { button, byId, download, element } from "./dom.js";
import { ask } from "./play_link.js";

// The server's status for a kernel that is wrong or unstable.
const UNFIT = 422;

/**
 * Save the package. For a wrong or unstable kernel, show the reason and ask for a confirmation first.
 * @param {string} name  the name of the kernel
 * @param {(action: () => Promise<void>) => Promise<void>} doing  runs an action, and shows its error
 * @param {boolean} [force]  true if the user confirmed
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
      // The box disappears and would lose the keyboard focus.
      byId("export").focus();
      box.hidden = true;
      work();
    };
    const buttons = [
      button("Export anyway", done(() => doing(() => savePackage(name, doing, true)))),
      button("Cancel", done(() => {})),
    ];
    box.replaceChildren(
      element("p", {}, `${error.message}.`),
      element("div", { class: "buttons" }, ...buttons),
    );
    box.hidden = false;
  }
}
