// Checks a model's package as an app uses it: createNorms creates every norm, and each norm computes its test vectors.
// It needs no page: model.js shows its report in a browser, and assets/engine_verify.mjs runs it in node and Deno.

import { traitsOf } from "../runtime.js";
import { breathe } from "./breathe.js";
import { adapterFacts, Complaint, openDevice } from "./gpu.js";
import { checkVector, filled, importCode, loadVectors, readJson, together } from "./verify_vectors.js";

/**
 * Check the norms that createNorms creates, and return the report.
 *
 * A reason why nothing could be checked is its `error`, and a reason why createNorms fails its `failure`. The host is
 * one of verify_package.js.
 * @param {object} host
 * @param {{ say: (text: string, share?: number) => void, showModel: (listing: object) => void,
 *   show: (report: object) => void }} watcher
 * @returns {Promise<object>}
 */
export async function checkModel(host, watcher) {
  const report = { error: null, failure: null, engine: host.engine, adapter: null, features: [], norms: [], seconds: 0 };
  return filled(report, (opened) => check(report, opened, host, watcher));
}

async function check(report, opened, host, watcher) {
  watcher.say("Loading the package.");
  const listing = await readJson(host, "norms.json");
  watcher.showModel(listing);
  const code = await importCode(host);
  const adapter = await host.findAdapter();
  watcher.say("Creating all norms.");
  let made;
  try {
    made = await created(code, adapter, host.without);
  } catch (error) {
    if (error instanceof Complaint) throw error;
    report.failure = error.message;
    return;
  }
  opened.device = made.device;
  report.adapter = adapterFacts(adapter, traitsOf(made.device, adapter.info).software);
  report.features = [...made.device.features].sort();
  const names = listing.norms.map((one) => one.name);
  for (const [at, name] of names.entries()) {
    watcher.say(`Checking ${name}.`, at / names.length);
    report.norms.push(await checked(name, made, host));
    watcher.show(report);
    await breathe();
  }
}

/** Create the norms as an app does; without some features, on a device that lacks them. */
async function created({ createNorms, deviceDescriptor }, adapter, without) {
  if (!without.length) return createNorms();
  const device = await openDevice(adapter, deviceDescriptor(adapter), without);
  return createNorms({ device, adapterInfo: adapter.info });
}

/** Compare one of the created norms with the vectors of its folder. */
async function checked(name, { device, norms }, host) {
  const load = (file) => host.load(`norms/${name}/${file}`);
  const norm = norms[name];
  if (!norm) return { name, shader: null, ...together([]), reason: "createNorms does not create it", vectors: [] };
  const manifest = await readJson({ load }, "manifest.json");
  const shader = manifest.shaders.find((one) => one.name === norm.shader.name);
  const others = `createNorms creates a norm with the shader ${norm.shader.name}, which is not one of its shaders`;
  if (!shader) return { name, shader: norm.shader.name, ...together([]), reason: others, vectors: [] };
  const vectors = [];
  for (const vector of await loadVectors({ manifest, load })) {
    vectors.push(await checkVector(norm, null, vector, shader, manifest, device));
  }
  const reason = vectors.find((one) => one.verdict === "fail")?.reason ?? null;
  return { name, shader: shader.name, ...together(vectors), reason, vectors };
}
