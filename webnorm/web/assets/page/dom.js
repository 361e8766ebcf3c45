// Elements, and what a page does with text: show, copy, save.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element with attributes and children; children that are null or false are left out.
 * An attribute that is null or false is left out, true is an empty one.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | undefined>} [attributes]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * The same for SVG.
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/**
 * The element of the page with this id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * A button that does something.
 * @param {string} label
 * @param {(event: Event) => void} action
 * @param {Record<string, string | boolean>} [attributes]
 * @returns {HTMLElement}
 */
export function button(label, action, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", action);
  return made;
}

/**
 * Say whether a button does something now. One that is disabled would lose the focus; this one keeps it.
 * @param {string} id
 * @param {boolean} may
 */
export function allow(id, may) {
  byId(id).setAttribute("aria-disabled", String(!may));
}

/**
 * Whether a button does something now.
 * @param {string} id
 * @returns {boolean}
 */
export function allowed(id) {
  return byId(id).getAttribute("aria-disabled") !== "true";
}

/**
 * Save a text as a file of the person's choice.
 * @param {string} name
 * @param {string} text
 * @param {string} [type]
 */
export function download(name, text, type = "application/json") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: address, download: name }).click();
  // The click has been taken up by the time the next task runs; some browsers want longer.
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/**
 * Put a text on the clipboard, and say on the button whether that worked.
 * @param {string} text
 * @param {HTMLElement} pressed
 */
export async function copyText(text, pressed) {
  const label = pressed.textContent;
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = "Copied";
  } catch {
    pressed.textContent = "The browser refused";
  }
  setTimeout(() => (pressed.textContent = label), 1500);
}

/**
 * Let the browser draw and take input before going on. Timers of a hidden page are slow, messages are not.
 * @returns {Promise<void>}
 */
export function breathe() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
