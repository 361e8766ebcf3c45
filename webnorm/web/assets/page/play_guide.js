// The guide to a kernel's header and body, loaded when it is first opened.

import { byId } from "./dom.js";
import { ask } from "./play_link.js";

/**
 * Load and show the guide when its section is opened.
 * @param {(action: () => Promise<void>) => Promise<void>} doing  runs an action, and shows its error
 */
export function offerGuide(doing) {
  byId("guide").addEventListener("toggle", () => {
    const place = byId("guide-text");
    if (place.childElementCount) return;
    doing(async () => {
      place.innerHTML = await (await ask("GET", "api/guide")).text();
    });
  });
}
