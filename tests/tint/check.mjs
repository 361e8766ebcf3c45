// Reads shaders as JSON from stdin, compiles each with Tint and builds its pipelines on Dawn's null backend,
// and writes the verdicts as JSON to stdout. The exit status is 0 whenever it ran: verdicts are data.
//
// in:  [{name, code, features: ["subgroups"], passes: [{entry_point, bindings: [{binding, type}], constants}]}]
// out: [{name, ok, messages: [{severity, text, line?, column?}]}]

import { readFileSync, writeSync } from "node:fs";
import { create, globals } from "webgpu";

Object.assign(globalThis, globals);

const gpu = create(["backend=null"]);
const devices = new Map();

// Limits are left at their defaults: they are what a page gets without asking, and the null adapter's are larger.
async function deviceWith(features) {
  const key = [...features].sort().join(" ");
  if (!devices.has(key)) {
    const adapter = await gpu.requestAdapter();
    devices.set(key, await adapter.requestDevice({ requiredFeatures: features }));
  }
  return devices.get(key);
}

async function validated(device, messages, step, create) {
  device.pushErrorScope("validation");
  const made = create();
  const error = await device.popErrorScope();
  if (error) messages.push({ severity: "error", text: `${step}: ${error.message}` });
  return made;
}

async function checkPass(device, module, pass, messages) {
  const name = pass.entry_point;
  const entries = pass.bindings.map(({ binding, type }) => ({
    binding,
    visibility: GPUShaderStage.COMPUTE,
    buffer: { type },
  }));
  const layout = await validated(device, messages, `layout of ${name}`, () =>
    device.createPipelineLayout({ bindGroupLayouts: [device.createBindGroupLayout({ entries })] }),
  );
  await validated(device, messages, `pipeline of ${name}`, () =>
    device.createComputePipeline({
      layout,
      compute: { module, entryPoint: name, constants: pass.constants ?? {} },
    }),
  );
}

async function check(shader) {
  const messages = [];
  try {
    const device = await deviceWith(shader.features ?? []);
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code: shader.code });
    const moduleError = await device.popErrorScope();
    for (const message of (await module.getCompilationInfo()).messages) {
      messages.push({
        severity: message.type,
        text: message.message,
        line: message.lineNum,
        column: message.linePos,
      });
    }
    const hasError = () => messages.some(({ severity }) => severity === "error");
    if (moduleError && !hasError()) messages.push({ severity: "error", text: `module: ${moduleError.message}` });
    // A broken module makes every pipeline fail with a message that only repeats that it is broken.
    if (!hasError()) {
      for (const pass of shader.passes) await checkPass(device, module, pass, messages);
    }
  } catch (error) {
    messages.push({ severity: "error", text: String(error?.message ?? error) });
  }
  return {
    name: shader.name,
    ok: messages.every(({ severity }) => severity !== "error"),
    messages,
  };
}

const shaders = JSON.parse(readFileSync(0, "utf8"));
const verdicts = [];
for (const shader of shaders) verdicts.push(await check(shader));
const bytes = Buffer.from(JSON.stringify(verdicts));
for (let written = 0; written < bytes.length; ) written += writeSync(1, bytes, written);
// Dawn's native threads would keep the process alive.
process.exit(0);
