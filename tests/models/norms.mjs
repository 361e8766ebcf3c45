// Creates the norms of a model's package in Dawn, and runs two of them:
// node norms.mjs WEBGPU FOLDER
//
// WEBGPU is the npm package webgpu, and FOLDER the model's package. The last line of the output is JSON.

import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [packaged, folder] = process.argv.slice(2);
const imported = (path) => import(pathToFileURL(resolve(path)).href);
// Dawn polls its threads by setImmediate without a pause, which takes a core from the threads.
globalThis.setImmediate = (call, ...given) => setTimeout(call, 1, ...given);
const { create, globals } = await imported(join(packaged, "index.js"));
Object.assign(globalThis, globals);
const gpu = create([]);
const { createNorms, names, requestDevice } = await imported(join(folder, "index.js"));

const message = async (call) => {
  try {
    await call();
    return null;
  } catch (error) {
    return error.message;
  }
};

const device = await requestDevice({ gpu });
const made = await createNorms({ device });
const { rms_norm_32: norm, rms_norm_32_residual: added } = made.norms;
const x = Float32Array.from({ length: 3 * 32 }, (_, at) => at - 40);
const weight = Float32Array.from({ length: 32 }, (_, at) => 1 + at / 32);
const residual = new Float32Array(x.length).fill(0.5);
const found = {
  names,
  created: Object.keys(made.norms),
  sameDevice: made.device === device,
  y: [...(await norm.run({ x, weight })).y],
  h: [...(await added.run({ x, residual, weight })).h],
  unknown: await message(() => createNorms({ devise: device })),
  wrong: await message(() => createNorms({ device: 3 })),
};
console.log(JSON.stringify(found));
process.exit(0);
