// Run a part of the record in node on Dawn, Chrome's WebGPU: node node.mjs FOLDER WEBGPU PART
//
// FOLDER contains the page's files, and WEBGPU is the folder of the npm package. The result is a line of JSON after
// "result: ", because Dawn also writes to stdout.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";

const [folder, webgpu, part] = process.argv.slice(2);
// The URL of a folder must end with a slash.
const at = (path) => new URL(path, pathToFileURL(`${resolve(folder)}/`)).href;

// Dawn polls its threads by setImmediate in a loop, which would take a core from these threads.
globalThis.setImmediate = (call, ...given) => setTimeout(call, 1, ...given);
const { create, globals } = await import(pathToFileURL(resolve(join(webgpu, "index.js"))).href);
Object.assign(globalThis, globals);
// Without this option timestamps are rounded, as in a page. The variable `gpu` keeps Dawn from being collected.
const gpu = create(["disable-dawn-features=timestamp_quantization"]);
// Globals that libraries expect in a page.
const navigator = { gpu, userAgent: `node ${process.versions.node}` };
Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });
Object.assign(globalThis, { self: globalThis, require: createRequire(import.meta.url) });

// Dawn's node package rejects shared memory, which a WebAssembly module with threads uses.
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
