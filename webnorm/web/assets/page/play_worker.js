// A kernel in this browser: checked against float64 and timed in turn with copies. In a thread of its own, which
// the page may end.

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
    const traits = traitsOf(device, adapter.info);
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
    self.postMessage({ results, adapter: adapterName(adapterFacts(adapter.info, traits.software)) });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
