// What a kernel's header and body may use, fetched when somebody first asks.

import { byId } from "./dom.js";
import { ask } from "./play_link.js";

/**
 * Show the guide once its place is opened.
 * @param {(action: () => Promise<void>) => Promise<void>} doing  does it, and tells what fails
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
