// Connects this engine's GPU with Python: takes batches of commands from the server, and posts the answers.

import { Commands, message } from "./commands.js";

/**
 * Report the adapter, and then run batches until the server ends.
 * @param {GPU | undefined} gpu
 * @param {string} address  the server's address for messages
 * @param {string} engine  the engine's name and version, as the engine says them
 */
export async function serve(gpu, address, engine) {
  let answer = message(await facts(gpu, engine));
  const commands = new Commands(gpu);
  for (;;) {
    const response = await fetch(address, { method: "POST", body: answer });
    // The server has no batch yet.
    if (response.status === 204) {
      answer = new Uint8Array();
      continue;
    }
    if (!response.ok) return;
    answer = await commands.run(await response.arrayBuffer());
  }
}

async function facts(gpu, engine) {
  if (!gpu) return { engine, error: "it offers no WebGPU" };
  let adapter;
  try {
    adapter = await gpu.requestAdapter();
  } catch (error) {
    return { engine, error: `it refuses an adapter: ${error.message}` };
  }
  if (!adapter) return { engine, error: "it has WebGPU, but finds no adapter" };
  const { vendor, architecture, device, description, isFallbackAdapter, subgroupMinSize, subgroupMaxSize } =
    adapter.info ?? {};
  const limits = {};
  for (const name in adapter.limits) {
    if (typeof adapter.limits[name] === "number") limits[name] = adapter.limits[name];
  }
  return {
    engine,
    error: null,
    adapter: { vendor, architecture, device, description, isFallbackAdapter },
    // Without subgroups an engine may report 0.
    subgroup_sizes: [subgroupMinSize || 4, subgroupMaxSize || 128],
    features: [...adapter.features].sort(),
    language_features: [...(gpu.wgslLanguageFeatures ?? [])].sort(),
    limits,
  };
}
