// A device for a package's shaders, or an error of one line with the reason.

import { descriptorFor, madeBy } from "./choice.js";
import { checkedOptions, COUNT, isCount, isObject, unexpected } from "./options.js";

/** The first browser versions with WebGPU by default. */
export const WEBGPU_SINCE = "use Chrome or Edge 113, Safari 26 or Firefox 141, or later";

/** Flags for Chromium on Linux. Recent versions have `navigator.gpu` without them, but it gives no adapter. */
export const LINUX_FLAGS =
  "on Linux, start Chrome or Chromium with --enable-unsafe-webgpu --enable-features=Vulkan, or set both flags in " +
  "chrome://flags/#enable-unsafe-webgpu and chrome://flags/#enable-vulkan";

/** Settings for Firefox on Linux, where WebGPU is off by default. */
export const FIREFOX_SETTINGS =
  "on Linux, set dom.webgpu.enabled and gfx.webgpu.ignore-blocklist to true on the page about:config, and restart Firefox";

const DEVICE_OPTIONS = ["gpu", "powerPreference", "requiredFeatures", "requiredLimits"];
const POWER = ["low-power", "high-performance"];

/** Return the reason for a missing `navigator.gpu`. A host such as Node has no `isSecureContext`. */
export function whyNoGpu({ isSecureContext, navigator } = globalThis) {
  if (isSecureContext === undefined) return "navigator.gpu is missing; pass a GPU object as the option gpu";
  return isSecureContext
    ? `this browser has no WebGPU (navigator.gpu is missing): ${WEBGPU_SINCE}${onLinux(navigator)}`
    : "WebGPU needs a secure context: open this page over https:// or from localhost";
}

/** Return the likely reason why `navigator.gpu` gives no adapter. */
export function whyNoAdapter({ navigator } = globalThis) {
  return (
    "WebGPU gives no adapter: hardware acceleration is off, or the GPU or its driver is on the browser's " +
    `blocklist; see ${isFirefox(navigator) ? "about:support" : "chrome://gpu"}${onLinux(navigator)}`
  );
}

/** The advice if Dawn in Node finds no adapter. It also prints what each driver lacks. */
export const DAWN_DRIVERS =
  "Dawn supports GPU drivers and SwiftShader, not llvmpipe. Install the GPU's driver, or set VK_DRIVER_FILES to " +
  "Chromium's vk_swiftshader_icd.json";

/** The reason why the caller's GPU object gives no adapter. */
const NO_DRIVER = `the option gpu gives no adapter: it supports none of the installed drivers. ${DAWN_DRIVERS}`;

function onLinux(navigator) {
  if (!/Linux(?!.*Android)/.test(navigator?.userAgent)) return "";
  return `; ${isFirefox(navigator) ? FIREFOX_SETTINGS : LINUX_FLAGS}`;
}

function isFirefox(navigator) {
  return /\bFirefox\//.test(navigator?.userAgent);
}

/**
 * Request a device with the features and limits that a manifest's shaders can use and the adapter supports.
 *
 * Options: `powerPreference`; `gpu` in place of navigator.gpu; `requiredFeatures` and `requiredLimits` that the app
 * itself needs. Rejects with an Error of one line that names what is missing: WebGPU, an adapter, a feature or a limit.
 */
export async function deviceFor(manifest, options) {
  const { op } = manifest;
  const { gpu: own, powerPreference, ...more } = checkedOptions(op, options, DEVICE_OPTIONS);
  checkMore(op, more);
  const gpu = own === undefined ? globalThis.navigator?.gpu : own;
  if (own === undefined && !gpu) throw new Error(`${op}: ${whyNoGpu()}`);
  if (typeof gpu?.requestAdapter !== "function") throw unexpected(op, "gpu", gpu, "a GPU object such as navigator.gpu");
  if (powerPreference !== undefined && !POWER.includes(powerPreference)) {
    throw unexpected(op, "powerPreference", powerPreference, POWER.join(" or "));
  }
  const preferred = powerPreference === undefined ? {} : { powerPreference };
  const adapter = await granted(`${op}: no adapter`, () => gpu.requestAdapter(preferred));
  if (!adapter) throw new Error(`${op}: ${own ? NO_DRIVER : whyNoAdapter()}`);
  const descriptor = withMore(descriptorFor(manifest, adapter), more);
  return madeBy(gpu, await granted(`${op}: the device was refused`, () => adapter.requestDevice(descriptor)));
}

async function granted(refused, ask) {
  try {
    return await ask();
  } catch (error) {
    // Dawn's messages have several lines, and the caller's GPU object may throw anything.
    const said = String(error?.message ?? error).trim().replace(/\s+/g, " ");
    throw new Error(`${refused}: ${said}`, { cause: error });
  }
}

/** Check the types of the app's features and limits; the adapter checks their names. */
function checkMore(op, { requiredFeatures = [], requiredLimits = {} }) {
  if (!isObject(requiredFeatures) || !requiredFeatures[Symbol.iterator]) {
    throw unexpected(op, "requiredFeatures", requiredFeatures, "an array");
  }
  if (!isObject(requiredLimits)) throw unexpected(op, "requiredLimits", requiredLimits, "an object");
  for (const [limit, value = 0] of Object.entries(requiredLimits)) {
    if (!isCount(value)) throw unexpected(op, `requiredLimits.${limit}`, value, COUNT);
  }
}

/** Return the descriptor with the app's features and limits added; the larger of two limits wins. */
function withMore(descriptor, { requiredFeatures = [], requiredLimits = {} }) {
  const limits = { ...descriptor.requiredLimits };
  for (const [limit, value] of Object.entries(requiredLimits)) {
    if (value !== undefined) limits[limit] = Math.max(value, limits[limit] ?? value);
  }
  return {
    requiredFeatures: [...new Set([...descriptor.requiredFeatures, ...requiredFeatures])],
    requiredLimits: limits,
  };
}
