// The choice of a shader for a device, and the features and limits to request from an adapter.
// cols is a name of the manifest's format.

import { shown, unexpected } from "./options.js";

// The language feature of every host with subgroups, also of one that lists none.
const IMPLIED = "subgroup_id";

// SwiftShader comes with Chrome, llvmpipe with Mesa, Basic Render with Windows.
const SOFTWARE = /swiftshader|llvmpipe|basic render/i;

// The language features of the GPU objects that made devices: Node has no `navigator.gpu` to ask.
const languages = new WeakMap();

/** Return a device, and remember which GPU object made it. */
export function madeBy(gpu, device) {
  languages.set(device, gpu.wgslLanguageFeatures);
  return device;
}

/** Return the traits of a device that decide its shader. `info` is its GPUAdapterInfo, if known. */
export function traitsOf(device, info = device.adapterInfo) {
  const words = ["vendor", "architecture", "device", "description"].map((key) => info?.[key]);
  const name = words.filter(Boolean).join(" ");
  return {
    features: device.features,
    limits: device.limits,
    languageFeatures: languages.get(device) ?? globalThis.navigator?.gpu?.wgslLanguageFeatures,
    subgroupSizes: [info?.subgroupMinSize, info?.subgroupMaxSize],
    software: Boolean(info?.isFallbackAdapter) || SOFTWARE.test(name),
    name,
  };
}

/** Return the reason why a shader cannot run on a device, or null. `traits.offered`: the adapter's features, if known. */
export function refusal(shader, traits) {
  const missing = shader.features.find((feature) => !traits.features.has(feature));
  if (missing) {
    const lacks = traits.offered?.has(missing) === false ? "the adapter lacks" : "the device was created without";
    return `needs the feature ${missing}, which ${lacks}`;
  }
  const known = traits.languageFeatures;
  const unknown = shader.language_features.find((name) => (known ? !known.has(name) : name !== IMPLIED));
  if (unknown) return `needs WGSL's ${unknown}, which this browser ${known ? "lacks" : "does not list"}`;
  const [least, most] = traits.subgroupSizes;
  const size = shader.subgroup_sizes?.find((one) => !(least <= one && one <= most));
  if (size) return `needs subgroups of ${size}; the device has ${most ? `${least} to ${most}` : "unknown sizes"}`;
  const small = Object.keys(shader.limits).find((limit) => shader.limits[limit] > traits.limits[limit]);
  if (small) return `needs ${small} ${shader.limits[small]}; the device has ${traits.limits[small]}`;
  return null;
}

/** Return the manifest's first shader for `cols` that fits, the reason, and the refused shaders before it. */
export function choose(manifest, traits, cols) {
  const candidates = manifest.shaders.filter((shader) => shader.cols === cols);
  const because = ({ shader, why }) => `${shader.name} ${why}`;
  const refused = [];
  for (const shader of candidates) {
    const why = shader.software && !traits.software ? "is for software adapters" : refusal(shader, traits);
    if (why === null) {
      const language = shader.language_features.filter((name) => name !== IMPLIED);
      const needs = [...shader.features, ...language, ...(shader.software ? ["a software adapter"] : [])];
      const fits = `${shader.name} is the first that fits` + (needs.length ? ` (${needs.join(", ")})` : "");
      return { shader, refused, reason: [fits, ...refused.map(because)].join("; ") };
    }
    refused.push({ shader, why });
  }
  const reasons = refused.map(because).join("; ");
  throw new Error(`${manifest.op}: no shader for ${cols} columns fits this device: ${reasons}`);
}

// The default limits of every device (WebGPU, "Limits"), for the limits that shaders name.
const DEFAULT_LIMITS = {
  maxComputeInvocationsPerWorkgroup: 256,
  maxComputeWorkgroupSizeX: 256,
  maxComputeWorkgroupStorageSize: 16384,
  maxStorageBuffersPerShaderStage: 8,
};

/**
 * Return a descriptor with the features and limits that the shaders can use and the adapter supports. It requests
 * the adapter's largest buffers, which avoids splitting rows.
 */
export function descriptorFor(manifest, adapter) {
  if (typeof adapter?.features?.has !== "function" || !adapter.limits) {
    throw unexpected(manifest.op, "adapter", adapter, "a GPUAdapter; requestAdapter() returns null if there is none");
  }
  const traits = traitsOf(adapter, adapter.info);
  // A feature that no shader uses in the end does no harm.
  traits.languageFeatures ??= { has: () => true };
  const fitting = manifest.shaders.filter((shader) => refusal(shader, traits) === null);
  const requiredLimits = {
    maxBufferSize: adapter.limits.maxBufferSize,
    maxStorageBufferBindingSize: adapter.limits.maxStorageBufferBindingSize,
  };
  for (const { limits } of fitting) {
    for (const [limit, value] of Object.entries(limits)) {
      if (value > DEFAULT_LIMITS[limit]) requiredLimits[limit] = Math.max(value, requiredLimits[limit] ?? 0);
    }
  }
  return { requiredFeatures: [...new Set(fitting.flatMap((shader) => shader.features))], requiredLimits };
}

/** Return the shader of a name, which the caller selected. */
export function named(manifest, traits, cols, name) {
  const shader = manifest.shaders.find((one) => one.name === name && one.cols === cols);
  if (!shader) {
    const names = manifest.shaders.filter((one) => one.cols === cols).map((one) => one.name);
    throw new Error(`${manifest.op}: shader is ${shown(name)}; expected one of ${names.join(", ")} for ${cols} columns`);
  }
  const why = refusal(shader, traits);
  if (why !== null) throw new Error(`${manifest.op}: ${name} ${why}`);
  return { shader, reason: `${name} was selected by name` };
}
