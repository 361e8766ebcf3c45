// Helpers for elements, and for copying and saving text.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Create an HTML element with attributes and children. Children that are null or false are left out. An attribute that
 * is null or false is left out; true becomes an empty attribute.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | undefined>} [attributes]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * Create an SVG element in the same way.
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
 * Return the element of the page with this id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * Create a button with an action.
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
 * Enable or disable a button by aria-disabled, which keeps the focus; a disabled button would lose it.
 * @param {string} id
 * @param {boolean} may
 */
export function allow(id, may) {
  byId(id).setAttribute("aria-disabled", String(!may));
}

/**
 * Return true if a button is enabled.
 * @param {string} id
 * @returns {boolean}
 */
export function allowed(id) {
  return byId(id).getAttribute("aria-disabled") !== "true";
}

/**
 * Save a text as a file of the user's choice.
 * @param {string} name
 * @param {string} text
 * @param {string} [type]
 */
export function download(name, text, type = "application/json") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: address, download: name }).click();
  // The browser has handled the click before the next task; some browsers need longer.
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/**
 * Copy a text to the clipboard, and show on the button if that worked.
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
