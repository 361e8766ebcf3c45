// Holds the text that a page would choose against float64 and times it on Dawn, the WebGPU of Chrome, as the
// lab's page does:
//
//     node bench/dawn.mjs FOLDER WEBGPU
//
// WEBGPU is the folder of the npm package. FOLDER holds the page's modules and problem.json: two bundles, `norm`
// and `copy`, and how many `rows`. What was found is a line of JSON that "result: " opens, since Dawn writes to
// stdout, too.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, webgpu] = process.argv.slice(2);
const load = (...names) => import(pathToFileURL(resolve(join(...names))).href);

// Dawn asks its threads for news by setImmediate, again and again: that takes a core from the threads.
globalThis.setImmediate = (call, ...given) => setTimeout(call, 1, ...given);
// The page's modules ask what kind of machine they are on; Node.js 20 has nothing to say.
globalThis.navigator ??= { userAgent: "node" };
const { create, globals } = await load(webgpu, "index.js");
Object.assign(globalThis, globals);
const { choose, descriptorFor, traitsOf } = await load(folder, "runtime.js");
const { Bench, bestCopy } = await load(folder, "page", "trials.js");
const { norm, copy, rows } = JSON.parse(readFileSync(join(folder, "problem.json"), "utf8"));

const fail = (message) => {
  console.error(message);
  process.exit(1);
};
// Timestamps as they are: a page gets them rounded. Without a name it would be collected, and Dawn with it.
const gpu = create(["disable-dawn-features=timestamp_quantization"]);
const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
if (!adapter) fail("Dawn finds no adapter: it takes a GPU, or SwiftShader");
const { requiredFeatures, ...descriptor } = descriptorFor(norm.manifest, adapter);
const device = await adapter.requestDevice({
  ...descriptor,
  requiredFeatures: [...requiredFeatures, "timestamp-query"],
});
device.addEventListener("uncapturederror", ({ error }) => fail(error.message));

const machine = { device, adapterInfo: adapter.info, traits: traitsOf(device, adapter.info) };
const { shader } = choose(norm.manifest, machine.traits, norm.manifest.cols[0]);
const chosen = { ...norm, manifest: { ...norm.manifest, shaders: [shader] } };
const watcher = { say: () => {}, signal: new AbortController().signal };
const bench = new Bench(machine, chosen, copy, { rows, distribution: "normal", seed: 0 }, watcher);
await bench.run();
// What a page holds others against is the fastest copy.
const fastest = bestCopy(bench.results());
const told = bench.entries.filter(({ result }) => result.op !== "copy" || !fastest || result === fastest);
const found = told.map(({ shader, result }) => ({ ...result, shader: shader.name }));
console.log(`\nresult: ${JSON.stringify({ adapter: adapter.info.description, found })}`);
// Dawn's threads would keep node alive.
process.exit(0);
