// Checks an exported package in node or Deno, and posts the report of its page to webnorm's server.
//
// node engine_verify.mjs FOLDER PART ADDRESS QUERY WEBGPU
// deno run --unstable-webgpu engine_verify.mjs FOLDER PART ADDRESS QUERY
//
// FOLDER has the runtime and the page's modules, PART is the folder in it whose package is checked, ADDRESS takes the
// report, QUERY is the query of the package's page, and WEBGPU is the npm package webgpu. assets/reporter.js posts the
// same data from a page.

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";

const [folder, part, address, search, webgpu] = process.argv.slice(2);
const imported = (path) => import(pathToFileURL(resolve(path)).href);

const errors = [];
const say = console.error;
console.error = (...parts) => {
  errors.push(parts.map(String).join(" "));
  say(...parts);
};
for (const event of ["uncaughtException", "unhandledRejection"]) {
  process.on(event, (error) => finish({ failure: String(error?.stack ?? error) }));
}

/** Post the result and exit, since Dawn's threads would keep node alive. */
async function finish({ report = null, failure = null }) {
  // JSON has no infinity.
  const asText = (_, value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);
  const body = JSON.stringify({ report, failure, errors }, asText);
  const answer = await fetch(address, { method: "POST", body });
  process.exit(answer.ok ? 0 : 1);
}

// Dawn's adapters and devices need its GPU object, which would be collected if nothing referred to it.
const kept = [];

/** Return the GPU of this engine, and the advice for an engine without an adapter. */
async function openGpu() {
  if (!webgpu) return { gpu: navigator.gpu, advice: "Install a Vulkan driver, such as Mesa's lavapipe." };
  // Dawn polls its threads by setImmediate without a pause, which takes a core from the threads.
  globalThis.setImmediate = (call, ...given) => setTimeout(call, 1, ...given);
  const { create, globals } = await imported(join(webgpu, "index.js"));
  Object.assign(globalThis, globals);
  const { DAWN_DRIVERS } = await imported(join(folder, "runtime.js"));
  const gpu = create([]);
  kept.push(gpu);
  // A package reads its language features there, as in a browser. Node's own navigator has no setter.
  Object.defineProperty(globalThis, "navigator", { value: { gpu } });
  return { gpu, advice: `${DAWN_DRIVERS}.` };
}

async function findAdapter() {
  const { Complaint, within } = await imported(join(folder, "page/gpu.js"));
  const { gpu, advice } = await openGpu();
  const adapter = gpu && (await within(gpu.requestAdapter(), "requesting an adapter"));
  if (!adapter) throw new Complaint(`WebGPU gives no adapter here. ${advice}`);
  return adapter;
}

async function load(file) {
  const bytes = await readFile(join(folder, part, file));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
}

const query = new URLSearchParams(search);
// A model's package has no manifest of its own.
const isModel = !existsSync(join(folder, part, "manifest.json"));
const { checkPackage, checkModel } = await imported(join(folder, isModel ? "page/model_norms.js" : "page/verify_package.js"));
const { deno } = process.versions;
const host = {
  engine: deno ? `Deno ${deno}` : `node ${process.versions.node}`,
  load,
  importCode: () => imported(join(folder, part, "index.js")),
  findAdapter,
  without: query.get("without")?.split(",") ?? [],
  quick: query.has("quick"),
};
const silent = { say() {}, remark() {}, showPackage() {}, showModel() {}, show() {} };
await finish({ report: await (isModel ? checkModel : checkPackage)(host, silent) });
