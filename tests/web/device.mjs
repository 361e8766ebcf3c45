// The results and errors of a package's requestDevice(): node device.mjs PACKAGE FOLDER
//
// FOLDER/package  a package from `webnorm export layer_norm`
// found           { refused: [{ expected, got }]; `expected` in slashes is a pattern
//                   asked: the requests to a GPU and its adapter
//                   given: { features, widest, binding, right }: of Dawn's device, of the adapter, of a run }

import { finish, gpu, messageOf, packageAt, runtime } from "./engine.mjs";

const { create, requestDevice } = await packageAt("package");
const refused = [];

async function refuses(expected, options, surroundings = {}) {
  const kept = {};
  for (const [name, value] of Object.entries(surroundings)) {
    kept[name] = Object.getOwnPropertyDescriptor(globalThis, name);
    Object.defineProperty(globalThis, name, { value, configurable: true });
  }
  refused.push({ expected: String(expected), got: await messageOf(() => requestDevice(options)) });
  for (const [name, before] of Object.entries(kept)) {
    delete globalThis[name];
    if (before) Object.defineProperty(globalThis, name, before);
  }
}

// --- missing parts -------------------------------------------------------------------------------------

const LINUX = { userAgent: "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0.0.0" };
const FIREFOX = { userAgent: "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0" };
const ANDROID = { userAgent: "Mozilla/5.0 (Linux; Android 10; K) Chrome/140.0.0.0 Mobile" };
const none = { requestAdapter: async () => null };

await refuses("layer_norm: navigator.gpu is missing; pass a GPU object as the option gpu");
await refuses(
  "layer_norm: WebGPU needs a secure context: open this page over https:// or from localhost",
  {},
  { isSecureContext: false, navigator: LINUX },
);
await refuses(
  `layer_norm: this browser has no WebGPU (navigator.gpu is missing): ${runtime.WEBGPU_SINCE}; ${runtime.LINUX_FLAGS}`,
  {},
  { isSecureContext: true, navigator: LINUX },
);
await refuses(
  /^layer_norm: WebGPU gives no adapter: .*chrome:\/\/gpu.*--enable-unsafe-webgpu --enable-features=Vulkan/,
  undefined,
  { isSecureContext: true, navigator: { ...LINUX, gpu: none } },
);
await refuses(/^layer_norm: WebGPU gives no adapter: [^;]*; see chrome:\/\/gpu$/, undefined, {
  isSecureContext: true,
  navigator: { ...ANDROID, gpu: none },
});
await refuses(
  `layer_norm: this browser has no WebGPU (navigator.gpu is missing): ${runtime.WEBGPU_SINCE}; ${runtime.FIREFOX_SETTINGS}`,
  {},
  { isSecureContext: true, navigator: FIREFOX },
);
await refuses(/^layer_norm: WebGPU gives no adapter: [^;]*; see about:support; on Linux, set .*about:config/, undefined, {
  isSecureContext: true,
  navigator: { ...FIREFOX, gpu: none },
});
await refuses(/^layer_norm: the option gpu gives no adapter: .*llvmpipe\. .*VK_DRIVER_FILES/, { gpu: none });
await refuses('layer_norm: powerPreference is "fast"; expected low-power or high-performance', {
  gpu,
  powerPreference: "fast",
});
await refuses(/^layer_norm: the device was refused: .*texture-compression-none/, {
  gpu,
  requiredFeatures: ["texture-compression-none"],
});
for (const [thrown, said] of [
  [new Error(" not\n  here "), "not here"],
  ["not\nhere", "not here"],
  [null, "null"],
  [{}, "[object Object]"],
]) {
  await refuses(`layer_norm: no adapter: ${said}`, { gpu: { requestAdapter: () => Promise.reject(thrown) } });
}
await refuses(/^layer_norm: the device was refused: .*maxBufferSize/, {
  gpu,
  requiredLimits: { maxBufferSize: 2 ** 50 },
});
await refuses(
  "layer_norm: power is not an option; expected gpu, powerPreference, requiredFeatures, requiredLimits",
  { power: "high" },
);

// --- requests ------------------------------------------------------------------------------------------

const asked = {};
const own = {
  requestAdapter: async (options) => {
    const adapter = await gpu.requestAdapter();
    const wide = {};
    for (const name in adapter.limits) wide[name] = adapter.limits[name];
    Object.assign(wide, { maxBufferSize: 2 ** 31, maxStorageBufferBindingSize: 2 ** 30 });
    asked.adapter = options;
    return {
      features: new Set(["subgroups", "timestamp-query", "shader-f16"]),
      limits: wide,
      requestDevice: async (descriptor) => Object.assign(asked, { device: descriptor }),
    };
  },
};
await requestDevice({
  gpu: own,
  powerPreference: "low-power",
  requiredFeatures: new Set(["timestamp-query", "subgroups"]),
  requiredLimits: { maxBufferSize: 1024, maxBindGroups: 3, maxStorageBufferBindingSize: undefined },
});

// --- a device ------------------------------------------------------------------------------------------

const device = await requestDevice({ gpu, requiredFeatures: ["timestamp-query"] });
const norm = await create(device);
const x = new Float32Array(2 * norm.cols).fill(3);
const weight = new Float32Array(norm.cols).fill(1);
const { y } = await norm.run({ x, weight, bias: weight });
const given = {
  features: ["subgroups", "timestamp-query"].filter((name) => device.features.has(name)),
  widest: (await gpu.requestAdapter()).limits.maxStorageBufferBindingSize,
  binding: device.limits.maxStorageBufferBindingSize,
  right: y.every((value) => value === 1),
};
await finish({ refused, asked, given });
