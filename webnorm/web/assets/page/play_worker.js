// Checks a kernel in this browser against float64, and times it in turn with copies. It runs in a worker, which the page
// can terminate.

import { descriptorFor, traitsOf } from "../runtime.js";
import { adapterFacts, adapterName, findAdapter, openDevice } from "./gpu.js";
import { Bench } from "./trials.js";

const DISTRIBUTION = "normal";
const SEED = 0;

self.onmessage = async ({ data: { bundle, copies, rows } }) => {
  try {
    const adapter = await findAdapter();
    const shaders = [...copies.manifest.shaders, ...bundle.manifest.shaders];
    const device = await openDevice(adapter, descriptorFor({ ...bundle.manifest, shaders }, adapter), []);
    const traits = { ...traitsOf(device, adapter.info), offered: adapter.features };
    const machine = { device, adapterInfo: adapter.info, traits };
    const drawn = {
      rows: traits.software ? rows.software : rows.gpu,
      distribution: DISTRIBUTION,
      seed: SEED,
    };
    const say = (text) => self.postMessage({ said: text });
    const bench = new Bench(machine, bundle, copies, drawn, { say, signal: new AbortController().signal });
    await bench.run();
    const results = bench.results();
    device.destroy();
    self.postMessage({ results, adapter: adapterName(adapterFacts(adapter, traits.software)) });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
