// Reads requests from stdin, one line of JSON each: compiles the shaders with Tint and builds their pipelines on Dawn's
// null backend. Each answer is a line of JSON with the messages. It begins with "result: ", since Dawn also writes to
// stdout. The exit status is 0 even if a shader is wrong. The argument is the folder where npm installed webgpu.
//
// in:  [{ code, features: ["subgroups"], limits: { maxBufferSize: 1 },
//         passes: [{ entry_point, bindings: [{ binding, type }], constants, immediate_size }] }]
// out: [[{ severity, text, line?, column?, length? }]]; columns and lengths are UTF-16 units

import { writeSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const webgpu = pathToFileURL(join(process.argv[2], "node_modules/webgpu/index.js"));
const { create, globals } = await import(webgpu);
Object.assign(globalThis, globals);

const gpu = create(["backend=null"]);
const GRANTED = (await gpu.requestAdapter()).limits;
const devices = new Map();

// The null adapter grants only the default limits, which a page gets without a request.
async function deviceWith(features, limits) {
  const unknown = Object.keys(limits).find((name) => !(name in GRANTED));
  if (unknown) throw new Error(`${unknown} is not a limit of WebGPU`);
  const key = [...features].sort().join(" ");
  if (!devices.has(key)) {
    const adapter = await gpu.requestAdapter();
    devices.set(key, await adapter.requestDevice({ requiredFeatures: features }));
  }
  return devices.get(key);
}

// A shader with larger limits is compiled with narrower workgroups, so that its pipelines can still be created; nothing
// else in the creation of a pipeline depends on that. The larger limits are compared here.
function narrowed(code, limits) {
  const granted = GRANTED.maxComputeInvocationsPerWorkgroup;
  const { maxComputeInvocationsPerWorkgroup = 0, maxComputeWorkgroupSizeX = 0 } = limits;
  const most = Math.min(maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX);
  return code.replace(/@workgroup_size\(\s*(\d+)u?\s*\)/g, (text, width) =>
    width > granted && width <= most ? `@workgroup_size(${granted})` : text,
  );
}

function allowed(message, { maxComputeWorkgroupStorageSize = 0 }) {
  const bytes = /total use of workgroup storage \((\d+) bytes\) is larger than/.exec(message)?.[1];
  return bytes !== undefined && bytes <= maxComputeWorkgroupStorageSize;
}

async function validated(device, messages, step, create, limits = {}) {
  device.pushErrorScope("validation");
  const made = create();
  const error = await device.popErrorScope();
  if (error && !allowed(error.message, limits)) {
    messages.push({ severity: "error", text: `${step}: ${error.message}` });
  }
  return made;
}

async function checkPass(device, module, pass, limits, messages) {
  const name = pass.entry_point;
  const entries = pass.bindings.map(({ binding, type }) => ({
    binding,
    visibility: GPUShaderStage.COMPUTE,
    buffer: { type },
  }));
  const layout = await validated(device, messages, `layout of ${name}`, () =>
    device.createPipelineLayout({
      bindGroupLayouts: [device.createBindGroupLayout({ entries })],
      immediateSize: pass.immediate_size,
    }),
  );
  const compute = { module, entryPoint: name, constants: pass.constants };
  const pipeline = () => device.createComputePipeline({ layout, compute });
  await validated(device, messages, `pipeline of ${name}`, pipeline, limits);
}

async function check(shader) {
  const messages = [];
  try {
    const device = await deviceWith(shader.features, shader.limits);
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code: shader.code });
    const moduleError = await device.popErrorScope();
    for (const message of (await module.getCompilationInfo()).messages) {
      messages.push({
        severity: message.type,
        text: message.message,
        line: message.lineNum,
        column: message.linePos,
        length: message.length,
      });
    }
    const hasError = () => messages.some(({ severity }) => severity === "error");
    if (moduleError && !hasError()) {
      messages.push({ severity: "error", text: `module: ${moduleError.message}` });
    }
    // For a broken module every pipeline fails with a message that adds nothing.
    if (!hasError()) {
      const code = narrowed(shader.code, shader.limits);
      const narrow = code === shader.code ? module : device.createShaderModule({ code });
      for (const pass of shader.passes) await checkPass(device, narrow, pass, shader.limits, messages);
    }
  } catch (error) {
    messages.push({ severity: "error", text: String(error?.message ?? error) });
  }
  return messages;
}

async function answer(line) {
  const messages = [];
  for (const shader of JSON.parse(line)) messages.push(await check(shader));
  const bytes = Buffer.from(`\nresult: ${JSON.stringify(messages)}\n`);
  for (let written = 0; written < bytes.length; ) written += writeSync(1, bytes, written);
}

// The parent decides what Ctrl-C means.
process.on("SIGINT", () => {});
for await (const line of createInterface({ input: process.stdin })) await answer(line);
// Dawn's native threads would otherwise keep the process alive.
process.exit(0);
