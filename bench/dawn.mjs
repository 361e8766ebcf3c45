// Times the lab's kernels on Dawn, the WebGPU of Chrome, without a browser:
//
//     node bench/dawn.mjs LAB PATH/TO/node_modules/webgpu/index.js OP COLS DTYPE ROWS [ROUNDS]
//
// LAB is what `webnorm export --lab` wrote. The copy and every kernel's shader that fits are checked on the
// first rows against float64 and then timed in turn by timestamps, over two sets of buffers.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [lab, webgpu, op, cols, dtype, rows, rounds = "30"] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(resolve(path)));
const { create, globals } = await load(webgpu);
Object.assign(globalThis, globals);
const { choose, createNorm, descriptorFor, traitsOf } = await load(`${lab}/runtime.js`);
const { Stopwatch, measure, statistics } = await load(`${lab}/page/measure.js`);
const bundle = (name) => JSON.parse(readFileSync(`${lab}/bundles/${name}-${cols}-${dtype}.json`, "utf8"));

const gpu = create([]);
const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
const bundles = [bundle("copy"), bundle(op)];
const descriptor = descriptorFor(bundles[1].manifest, adapter);
const device = await adapter.requestDevice({
  ...descriptor,
  requiredFeatures: [...descriptor.requiredFeatures, "timestamp-query"],
});
device.onuncapturederror = ({ error }) => {
  console.error(error.message);
  process.exit(1);
};
const traits = traitsOf(device);
console.log(`${traits.name}: ${op} ${rows}x${cols} ${dtype}`);

const buffers = new Map();
function bufferOf(norm, tensor, set) {
  const key = `${tensor.name} ${set}`;
  if (!buffers.has(key)) {
    const { STORAGE, COPY_DST } = GPUBufferUsage;
    const size = norm.byteLength(tensor.name, Number(rows));
    const buffer = device.createBuffer({ size, usage: STORAGE | COPY_DST });
    const words = new Float32Array(Math.min(size, 1 << 26) / 4).map(() => Math.random() - 0.5);
    for (let at = 0; at < size; at += words.byteLength) {
      device.queue.writeBuffer(buffer, at, words, 0, Math.min(words.length, (size - at) / 4));
    }
    buffers.set(key, buffer);
  }
  return buffers.get(key);
}

const candidates = [];
for (const { manifest, texts } of bundles) {
  for (const kernel of new Set(manifest.shaders.map((shader) => shader.kernel))) {
    const own = { ...manifest, shaders: manifest.shaders.filter((shader) => shader.kernel === kernel) };
    const { shader } = choose(own, traits, Number(cols));
    const norm = await createNorm(device, own, texts, { shader: shader.name });
    const sets = [0, 1].map((set) => ({
      ...Object.fromEntries(norm.tensors.map((tensor) => [tensor.name, bufferOf(norm, tensor, set)])),
      rows: Number(rows),
    }));
    const size = (tensor) => (tensor.shape[0] === "rows" ? norm.byteLength(tensor.name, Number(rows)) : 0);
    const bytes = norm.tensors.reduce((sum, tensor) => sum + size(tensor), 0);
    candidates.push({ shader, bytes, encode: (pass, index) => norm.encode(pass, sets[index % 2]) });
  }
}
const stopwatch = new Stopwatch(device, traits.software);
const rule = { least: Number(rounds), most: Number(rounds), spread: 0, budgetMs: 60000 };
const found = await measure(stopwatch, candidates, rule, { sets: 2 });
const results = candidates.map(({ shader, bytes }, at) => {
  const { median } = statistics(found[at].samples);
  return { shader, median, gbps: bytes / median };
});
console.log("| kernel | shader | median us | GB/s | % of copy |\n|---|---|---:|---:|---:|");
for (const { shader, median, gbps } of results) {
  const share = ((100 * gbps) / results[0].gbps).toFixed(1);
  const cells = [shader.kernel, shader.name, (median / 1000).toFixed(1), gbps.toFixed(0), share];
  console.log(`| ${cells.join(" | ")} |`);
}
console.log(`timed by ${stopwatch.method}\n`);
process.exit(0);
