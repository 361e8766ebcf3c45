// Adapter and device, what a browser says of them, and waiting for them with a limit.

import { LINUX_FLAGS, whyNoAdapter, whyNoGpu } from "../runtime.js";

const LIMIT_MS = 30000;
// Where the flags that the runtime names do not do, from "Implementation Status" of gpuweb's wiki, November 2025.
const ON_LINUX =
  "Where these do not do, --enable-unsafe-webgpu --ozone-platform=x11 --use-angle=vulkan " +
  "--enable-features=Vulkan,VulkanFromANGLE may; it wants a Vulkan driver.";

/** What a person can mend: the message is a sentence for them. */
export class Complaint extends Error {}

/**
 * What `promise` gives; a Complaint when the device is lost first, or nothing comes in time.
 * @template T
 * @param {Promise<T>} promise
 * @param {string} what  what was waited for, as in "no answer while WHAT"
 * @param {GPUDevice} [device]
 * @returns {Promise<T>}
 */
export async function within(promise, what, device) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      const silence = `The GPU gave no answer for ${LIMIT_MS / 1000} s while ${what}`;
      reject(new Complaint(`${silence}: reload the page, or restart the browser.`));
    }, LIMIT_MS);
  });
  const lost = device?.lost.then((info) => {
    throw new Complaint(
      `The browser lost the GPU while ${what} (${info.message || info.reason}): reload the page; if it ` +
        "happens again, the driver or the shader is at fault.",
    );
  });
  try {
    return await Promise.race(lost ? [promise, late, lost] : [promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * What `work` gives; where the browser refuses one of its commands, its complaint is thrown as an Error.
 * The waits inside `work` have limits of their own.
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
 * The adapter that an application gets which asks for nothing special; a Complaint where there is none.
 * @returns {Promise<GPUAdapter>}
 */
export async function findAdapter() {
  if (!globalThis.isSecureContext || !navigator.gpu) throw new Complaint(sentence(whyNoGpu()));
  const adapter = await within(navigator.gpu.requestAdapter(), "the browser looked for an adapter");
  if (!adapter) throw new Complaint(sentence(whyNoAdapter()));
  return adapter;
}

/** What the runtime says is missing, as a sentence, with what else may help. */
function sentence(why) {
  const said = `${why[0].toUpperCase()}${why.slice(1)}.`;
  return why.includes(LINUX_FLAGS) ? `${said} ${ON_LINUX}` : said;
}

/**
 * Open a device; features named in `without` are not asked for, timestamps are where there are any.
 * @param {GPUAdapter} adapter
 * @param {GPUDeviceDescriptor} descriptor
 * @param {string[]} without
 * @returns {Promise<GPUDevice>}
 */
export async function openDevice(adapter, descriptor, without) {
  const wanted = new Set([...(descriptor.requiredFeatures ?? []), "timestamp-query"]);
  const requiredFeatures = [...wanted].filter(
    (name) => adapter.features.has(name) && !without.includes(name),
  );
  const opening = adapter.requestDevice({ ...descriptor, requiredFeatures });
  try {
    return await within(opening, "the browser opened the device");
  } catch (error) {
    if (error instanceof Complaint) throw error;
    throw new Complaint(`The browser refused the device: ${error.message}`);
  }
}

/**
 * What the browser tells of an adapter.
 * @param {GPUAdapterInfo} info
 * @param {boolean} software
 * @returns {Record<string, string | number | boolean | null>}
 */
export function adapterFacts(info, software) {
  return {
    vendor: info.vendor,
    architecture: info.architecture,
    device: info.device,
    description: info.description,
    software,
    subgroup_min_size: info.subgroupMinSize ?? null,
    subgroup_max_size: info.subgroupMaxSize ?? null,
  };
}

/**
 * The browser's name and version: "Chrome 140".
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
 * Whether this is a phone or a tablet, whose memory is small and shared with everything else.
 * @returns {boolean}
 */
export function handheld() {
  return navigator.userAgentData?.mobile ?? /Mobi|Android|iPad|iPhone/.test(navigator.userAgent);
}

/**
 * The most telling name that the browser gives.
 * @param {{ vendor: string, architecture: string, device: string, description: string } | null} adapter
 * @returns {string}
 */
export function adapterName(adapter) {
  if (!adapter) return "unknown adapter";
  const parts = [adapter.vendor, adapter.architecture].filter(Boolean).join(" ");
  return adapter.description || adapter.device || parts || "an adapter without a name";
}
