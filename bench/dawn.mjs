// Check the shader that a page would choose against float64, and time it, on Dawn (Chrome's WebGPU), as the
// lab's page does:
//
//     node bench/dawn.mjs FOLDER WEBGPU
//
// WEBGPU is the folder of the npm package. FOLDER contains the page's modules and problem.json: two bundles,
// `norm` and `copy`, and the number of `rows`. The result is a line of JSON after "result: ", because Dawn also
// writes to stdout.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, webgpu] = process.argv.slice(2);
const load = (...names) => import(pathToFileURL(resolve(join(...names))).href);

// Dawn polls its threads by setImmediate in a loop, which would take a core from these threads.
globalThis.setImmediate = (call, ...given) => setTimeout(call, 1, ...given);
// The page's modules read navigator, which Node.js 20 does not have.
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
// Without this option timestamps are rounded, as in a page. The variable `gpu` keeps Dawn from being collected.
const gpu = create(["disable-dawn-features=timestamp_quantization"]);
const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
if (!adapter) fail("Dawn finds no adapter; it needs a GPU or SwiftShader");
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
// A page compares the others with the fastest copy.
const fastest = bestCopy(bench.results());
const shown = bench.entries.filter(({ result }) => result.op !== "copy" || !fastest || result === fastest);
const found = shown.map(({ shader, result }) => ({ ...result, shader: shader.name }));
console.log(`\nresult: ${JSON.stringify({ adapter: adapter.info.description, found })}`);
// Dawn's threads would keep node alive.
process.exit(0);
