// The errors of createNorm, requestDevice and deviceDescriptor for values of every type: node values.mjs FOLDER
//
// FOLDER/bundle.json  { manifest, texts }
// FOLDER/asked.json   { values: [JavaScript], names: [NAME] }: the options of createNorm that get each value
// found.json          { NAME: [message] } of createNorm, "options" and "device" among them, of requestDevice as
//                     "requestDevice.NAME", of descriptorFor as "adapter"; null if a value is accepted

import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder] = process.argv.slice(2);
const { createNorm, descriptorFor, deviceFor } = await import(
  pathToFileURL(resolve(folder, "runtime.js")).href
);
const json = (name) => JSON.parse(readFileSync(join(folder, name)).toString());
const { manifest, texts } = json("bundle.json");
const { values, names } = json("asked.json");
const made = values.map((text) => Function(`return ${text};`)());

// createNorm checks its options before it uses the device; this name of a shader does not exist.
const NONE = "no such shader";
const TAKEN = `${manifest.op}: shader is ${JSON.stringify(NONE)}; `;
const device = { createShaderModule() {}, features: new Set(), limits: {} };
// requestDevice checks its options before it uses the adapter.
const gpu = { requestAdapter: async () => Promise.reject(new Error(NONE)) };

async function messageOf(call) {
  try {
    await call();
  } catch (error) {
    const { message } = error;
    return message.startsWith(TAKEN) || message.endsWith(NONE) ? null : message;
  }
  throw new Error("neither taken nor refused");
}

const found = {};
async function each(name, call) {
  found[name] = [];
  for (const value of made) found[name].push(await messageOf(() => call(value)));
}

for (const name of names) {
  const others = name === "shader" ? {} : { shader: NONE };
  await each(name, (value) => createNorm(device, manifest, texts, { ...others, [name]: value }));
}
await each("options", (value) => createNorm(device, manifest, texts, value));
await each("device", (value) => createNorm(value, manifest, texts, { shader: NONE }));
await each("adapter", async (value) => descriptorFor(manifest, value));
for (const name of ["gpu", "powerPreference", "requiredFeatures", "requiredLimits"]) {
  await each(`requestDevice.${name}`, (value) => deviceFor(manifest, { gpu, [name]: value }));
}
await each("requestDevice.requiredLimits.maxBufferSize", (value) =>
  deviceFor(manifest, { gpu, requiredLimits: { maxBufferSize: value } }),
);
await each("requestDevice.options", (value) => deviceFor(manifest, value));
writeFileSync(join(folder, "found.json"), JSON.stringify(found));
