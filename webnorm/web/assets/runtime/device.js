// A device for a package's shaders, or one line that says why there is none.

import { descriptorFor } from "./choice.js";
import { checkedOptions, COUNT, isCount, isObject, unexpected } from "./options.js";

/** Where there is WebGPU without a flag. */
export const WEBGPU_SINCE = "Chrome or Edge 113, Safari 26 and Firefox 141 or later have it";

/** What Chromium wants on Linux, where late ones have `navigator.gpu` without them, which gives no adapter. */
export const LINUX_FLAGS =
  "on Linux, Chrome and Chromium want --enable-unsafe-webgpu --enable-features=Vulkan, or the same in " +
  "chrome://flags/#enable-unsafe-webgpu and chrome://flags/#enable-vulkan";

const DEVICE_OPTIONS = ["gpu", "powerPreference", "requiredFeatures", "requiredLimits"];
const POWER = ["low-power", "high-performance"];

/** Why there is no `navigator.gpu`. A host that is no page, such as node, knows of no secure contexts. */
export function whyNoGpu({ isSecureContext, navigator } = globalThis) {
  if (isSecureContext === undefined) return "there is no navigator.gpu here; give a GPU as the option gpu";
  return isSecureContext
    ? `this browser has no WebGPU (navigator.gpu is missing): ${WEBGPU_SINCE}${onLinux(navigator)}`
    : "WebGPU needs a secure context: open this page over https:// or from localhost";
}

/** Why `navigator.gpu` gives no adapter. */
export function whyNoAdapter({ navigator } = globalThis) {
  return (
    "WebGPU gives no adapter: hardware acceleration is off, or the GPU or its driver is on the browser's " +
    `blocklist (chrome://gpu says which)${onLinux(navigator)}`
  );
}

/** Why a GPU of the caller's gives none. Dawn in node prints what each driver lacks. */
const NO_DRIVER =
  "the option gpu has no adapter: of the drivers here it takes none, and Dawn takes a GPU's or SwiftShader's, not " +
  "llvmpipe. Install the GPU's, or set VK_DRIVER_FILES to Chromium's vk_swiftshader_icd.json";

function onLinux(navigator) {
  return /Linux(?!.*Android)/.test(navigator?.userAgent) ? `; ${LINUX_FLAGS}` : "";
}

/**
 * A device with the features and limits that the shaders of a manifest can use and the adapter has.
 *
 * Options: `powerPreference`; `gpu` in place of navigator.gpu; `requiredFeatures` and `requiredLimits` that the
 * app wants besides. Rejects with an Error that says what is missing: WebGPU, an adapter, or what of it.
 */
export async function deviceFor(manifest, options) {
  const { op } = manifest;
  const { gpu: own, powerPreference, ...more } = checkedOptions(op, options, DEVICE_OPTIONS);
  checkMore(op, more);
  const gpu = own === undefined ? globalThis.navigator?.gpu : own;
  if (own === undefined && !gpu) throw new Error(`${op}: ${whyNoGpu()}`);
  if (typeof gpu?.requestAdapter !== "function") throw unexpected(op, "gpu", gpu, "a GPU, as navigator.gpu is");
  if (powerPreference !== undefined && !POWER.includes(powerPreference)) {
    throw unexpected(op, "powerPreference", powerPreference, POWER.join(" or "));
  }
  const preferred = powerPreference === undefined ? {} : { powerPreference };
  const adapter = await granted(`${op}: no adapter`, () => gpu.requestAdapter(preferred));
  if (!adapter) throw new Error(`${op}: ${own ? NO_DRIVER : whyNoAdapter()}`);
  const descriptor = withMore(descriptorFor(manifest, adapter), more);
  return granted(`${op}: the device was refused`, () => adapter.requestDevice(descriptor));
}

async function granted(refused, ask) {
  try {
    return await ask();
  } catch (error) {
    // Dawn's words are of several lines, and a GPU of the caller's may throw anything.
    const said = String(error?.message ?? error).trim().replace(/\s+/g, " ");
    throw new Error(`${refused}: ${said}`, { cause: error });
  }
}

/** Which features and limits there are, the adapter knows; what they are given as is checked here. */
function checkMore(op, { requiredFeatures = [], requiredLimits = {} }) {
  if (!isObject(requiredFeatures) || !requiredFeatures[Symbol.iterator]) {
    throw unexpected(op, "requiredFeatures", requiredFeatures, "an array");
  }
  if (!isObject(requiredLimits)) throw unexpected(op, "requiredLimits", requiredLimits, "an object");
  for (const [limit, value = 0] of Object.entries(requiredLimits)) {
    if (!isCount(value)) throw unexpected(op, `requiredLimits.${limit}`, value, COUNT);
  }
}

/** A descriptor that asks for an app's own features and limits, too; of two limits for the larger. */
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
