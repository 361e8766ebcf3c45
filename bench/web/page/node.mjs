// The record in node, on Dawn, the WebGPU of Chrome: node node.mjs FOLDER WEBGPU PART
//
// FOLDER holds what the page is served from, WEBGPU is the folder of the npm package. What was found is a line of
// JSON that "result: " opens, since Dawn writes to stdout, too.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";

const [folder, webgpu, part] = process.argv.slice(2);
// A folder's URL ends as the path does, with a slash.
const at = (path) => new URL(path, pathToFileURL(`${resolve(folder)}/`)).href;

// Dawn asks its threads for news by setImmediate, again and again: that takes a core from the threads.
globalThis.setImmediate = (call, ...given) => setTimeout(call, 1, ...given);
const { create, globals } = await import(pathToFileURL(resolve(join(webgpu, "index.js"))).href);
Object.assign(globalThis, globals);
// Timestamps as they are: a page gets them rounded. Without a name it would be collected, and Dawn with it.
const gpu = create(["disable-dawn-features=timestamp_quantization"]);
// What libraries look for in a page.
const navigator = { gpu, userAgent: `node ${process.versions.node}` };
Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });
Object.assign(globalThis, { self: globalThis, require: createRequire(import.meta.url) });

// Dawn's node takes no bytes of shared memory, which a WebAssembly module with threads has.
const { writeBuffer } = GPUQueue.prototype;
GPUQueue.prototype.writeBuffer = function (buffer, offset, data, start = 0, count = undefined) {
  const shared = ArrayBuffer.isView(data) && data.buffer instanceof SharedArrayBuffer;
  if (!shared) return writeBuffer.call(this, buffer, offset, data, start, count);
  const end = count === undefined ? undefined : start + count;
  return writeBuffer.call(this, buffer, offset, data.slice(start, end));
};

const bytes = async (path) => new Uint8Array(readFileSync(join(folder, path)));
const host = {
  gpu,
  name: `Dawn in node ${process.versions.node}`,
  plan: JSON.parse(readFileSync(join(folder, "plan.json"), "utf8")),
  at,
  bytes,
  module: (path) => import(at(path)),
  script: async (path) => runInThisContext(readFileSync(join(folder, path), "utf8"), { filename: path }),
};
const { run } = await import(at("bench/run.js"));
const found = await run(host, Number(part)).catch((error) => ({ error: String(error.stack ?? error) }));
console.log(`\nresult: ${JSON.stringify({ ...found, outside: [] })}`);
// Dawn's threads would keep node alive.
process.exit(0);
