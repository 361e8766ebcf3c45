// Run one part of the record on any host: a page, or node with Dawn.

// This import must precede all libraries, which are imported when they are opened.
import "./recorder.js";
import { accuracy } from "./accuracy.js";
import { abilities } from "./abilities.js";
import { reasonOf } from "./calls.js";
import { openMachine } from "./machine.js";
import { times } from "./times.js";
import { adapterFacts } from "../page/gpu.js";

const KINDS = { accuracy, times, abilities };

/**
 * @param {object} host  `gpu`; `name`; `plan`; `module`, `script` and `bytes` load the page's files
 * @param {number} index  the index of the plan's part
 */
export async function run(host, index) {
  const { plan } = host;
  const machine = await openMachine(host.gpu);
  const libraries = [];
  for (const { name, module, settings } of plan.libraries) {
    libraries.push(await opened(host, machine, name, module, settings));
  }
  const { kind, ...part } = plan.parts[index];
  const found = await KINDS[kind](machine, libraries, { ...part, eps: plan.eps }, host);
  const { software } = machine.traits;
  return {
    host: host.name,
    adapter: adapterFacts({ info: machine.adapterInfo, features: machine.device.features }, software),
    features: machine.features,
    software,
    libraries: libraries.map(({ name, why }) => ({ name, why })),
    found,
  };
}

/** Open a library, or return the reason why it is not available. */
async function opened(host, machine, name, module, settings) {
  if (settings.why) return { name, why: settings.why };
  try {
    const { open } = await import(`./libraries/${module}.js`);
    return { name, module: settings.standardize ? null : module, ...(await open(host, machine, settings)) };
  } catch (error) {
    return { name, why: reasonOf(error) };
  }
}
