// The adapter and the device: opening, describing, and waiting for them with a time limit.

import { LINUX_FLAGS, whyNoAdapter, whyNoGpu } from "../runtime.js";

const LIMIT_MS = 30000;
// More flags, from "Implementation Status" of gpuweb's wiki, November 2025.
const ON_LINUX =
  "If that is not enough, try --enable-unsafe-webgpu --ozone-platform=x11 --use-angle=vulkan " +
  "--enable-features=Vulkan,VulkanFromANGLE; these need a Vulkan driver.";

// node and Deno run these modules without a page, and have no isSecureContext.
const HOST =
  globalThis.isSecureContext === undefined
    ? { name: globalThis.Deno ? "Deno" : "node", again: "Run the command again", restart: "" }
    : { name: "The browser", again: "Reload the page", restart: ", or restart the browser" };

/** An error that the user can fix; its message is a sentence for the user. */
export class Complaint extends Error {}

/**
 * Wait for a promise. Throws a Complaint if the device is lost first, or after a time limit.
 * @template T
 * @param {Promise<T>} promise
 * @param {string} what  the current action, for "did not answer while WHAT"
 * @param {GPUDevice} [device]
 * @returns {Promise<T>}
 */
export async function within(promise, what, device) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      const silence = `The GPU did not answer for ${LIMIT_MS / 1000} s while ${what}`;
      reject(new Complaint(`${silence}. ${HOST.again}${HOST.restart}.`));
    }, LIMIT_MS);
  });
  const lost = device?.lost.then((info) => {
    throw new Complaint(
      `${HOST.name} lost the GPU while ${what} (${info.message || info.reason}). ${HOST.again}. If this ` +
        "happens again, the driver or the shader has a bug.",
    );
  });
  try {
    return await Promise.race(lost ? [promise, late, lost] : [promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Wait for `work`. Throws an Error with the browser's message if it refuses a command of `work`.
 * `work` limits its own waits.
 * @template T
 * @param {GPUDevice} device
 * @param {string} what
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function guarded(device, what, work) {
  const filters = ["internal", "out-of-memory", "validation"];
  filters.forEach((filter) => device.pushErrorScope(filter));
  const outcome = await work().then(
    (value) => ({ value }),
    (error) => ({ error }),
  );
  if (outcome.error instanceof Complaint) throw outcome.error;
  const caught = await within(Promise.all(filters.map(() => device.popErrorScope())), what, device);
  const refused = caught.find(Boolean);
  if (refused) throw new Error(refused.message);
  if ("error" in outcome) throw outcome.error;
  return outcome.value;
}

/**
 * Request the browser's default adapter. Throws a Complaint if there is none.
 * @returns {Promise<GPUAdapter>}
 */
export async function findAdapter() {
  if (!globalThis.isSecureContext || !navigator.gpu) throw new Complaint(sentence(whyNoGpu()));
  const adapter = await within(navigator.gpu.requestAdapter(), "requesting an adapter");
  if (!adapter) throw new Complaint(sentence(whyNoAdapter()));
  return adapter;
}

/** Return the runtime's reason as a sentence, with more advice for Linux. */
function sentence(why) {
  const said = `${why[0].toUpperCase()}${why.slice(1)}.`;
  return why.includes(LINUX_FLAGS) ? `${said} ${ON_LINUX}` : said;
}

/**
 * Open a device, without the features in `without`, and with timestamps if the adapter supports them.
 * @param {GPUAdapter} adapter
 * @param {GPUDeviceDescriptor} descriptor
 * @param {string[]} without
 * @returns {Promise<GPUDevice>}
 */
export async function openDevice(adapter, descriptor, without) {
  const wanted = new Set([...(descriptor.requiredFeatures ?? []), "timestamp-query"]);
  // Without subgroups their size cannot be controlled.
  const depends = (name) => name === "subgroup-size-control" && without.includes("subgroups");
  const requiredFeatures = [...wanted].filter(
    (name) => adapter.features.has(name) && !without.includes(name) && !depends(name),
  );
  const opening = adapter.requestDevice({ ...descriptor, requiredFeatures });
  try {
    return await within(opening, "opening the device");
  } catch (error) {
    if (error instanceof Complaint) throw error;
    throw new Complaint(`${HOST.name} refused the device: ${error.message}`);
  }
}

/**
 * Return the browser's description of an adapter.
 * @param {GPUAdapter} adapter
 * @param {boolean} software
 * @returns {Record<string, string | number | boolean | null>}
 */
export function adapterFacts({ info, features }, software) {
  // Without subgroups, WebGPU gives the bounds of all devices.
  const [least, most] = features.has("subgroups") ? [info.subgroupMinSize, info.subgroupMaxSize] : [];
  return {
    vendor: info.vendor,
    architecture: info.architecture,
    device: info.device,
    description: info.description,
    software,
    subgroup_min_size: least ?? null,
    subgroup_max_size: most ?? null,
  };
}

/**
 * Return the browser's name and version, such as "Chrome 140".
 * @returns {string}
 */
export function browserName() {
  const agent = navigator.userAgent;
  const known = [
    ["Edge", /Edg\w*\/(\d+)/],
    ["Opera", /OPR\/(\d+)/],
    ["Firefox", /(?:Firefox|FxiOS)\/(\d+)/],
    ["Chrome", /(?:Chrome|CriOS)\/(\d+)/],
    ["Safari", /Version\/(\d+[.\d]*) .*Safari/],
  ];
  for (const [name, pattern] of known) {
    const found = agent.match(pattern);
    if (found) return `${name} ${found[1]}`;
  }
  return agent;
}

/**
 * Return true on a phone or a tablet, whose memory is small and shared with everything else.
 * @returns {boolean}
 */
export function handheld() {
  // Node has a navigator since version 21.
  const { navigator = {} } = globalThis;
  return navigator.userAgentData?.mobile ?? /Mobi|Android|iPad|iPhone/.test(navigator.userAgent);
}

/**
 * Return the most specific name that the browser gives.
 * @param {{ vendor: string, architecture: string, device: string, description: string } | null} adapter
 * @returns {string}
 */
export function adapterName(adapter) {
  if (!adapter) return "unknown adapter";
  const parts = [adapter.vendor, adapter.architecture].filter(Boolean).join(" ");
  return adapter.description || adapter.device || parts || "an adapter without a name";
}
