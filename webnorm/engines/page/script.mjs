// Connects node's or Deno's GPU with Python.
//
// script.mjs ADDRESS                      Deno, which has WebGPU itself
// script.mjs ADDRESS PACKAGE              node; PACKAGE is the folder of the npm package webgpu (Dawn)

import process from "node:process";

import { serve } from "./client.js";

const [address, folder] = process.argv.slice(2);

async function dawn() {
  const { pathToFileURL } = await import("node:url");
  const { create, globals } = await import(pathToFileURL(`${folder}/index.js`));
  Object.assign(globalThis, globals);
  // Dawn polls its threads by setImmediate without a pause, which takes a core from the threads.
  globalThis.setImmediate = (call, ...given) => setTimeout(call, 1, ...given);
  return create([]);
}

const { Deno } = globalThis;
const engine = Deno ? `Deno ${Deno.version.deno}` : `node ${process.versions.node}`;
await serve(folder ? await dawn() : navigator.gpu, address, engine);
// Dawn's threads would keep the process alive.
process.exit(0);
