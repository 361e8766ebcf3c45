// Every error of runtime.js: node errors.mjs PACKAGE FOLDER
//
// FOLDER/bundle.json    a forward op of float16, 61 and 64 columns, with weight and bias
// FOLDER/gradient.json  its gradient of 61 columns
// found                 [{ expected, got }]; `expected` in slashes is a pattern

import { altered, finish, gpu, json, limited, messageOf, open, runtime } from "./engine.mjs";

const { manifest, texts } = json("bundle.json");
const gradient = json("gradient.json");
const { createNorm } = runtime;
const found = [];

async function refuses(expected, call) {
  found.push({ expected: String(expected), got: await messageOf(call) });
}

const device = await open({ requiredFeatures: ["subgroups"] });
const bare = await open({});
const with61 = (options) => ({ cols: 61, ...options });
const make = (on, options) => createNorm(on, manifest, texts, with61(options));

// --- creating ----------------------------------------------------------------------------------------

await refuses("layer_norm: device is null; expected a GPUDevice", () => make(null));
await refuses("layer_norm: device is undefined; expected a GPUDevice", () => make());
await refuses("layer_norm: device is [object Object]; expected a GPUDevice", () => make({}));
await refuses("layer_norm: device is [object Promise]; expected a GPUDevice: await the promise", () =>
  make(Promise.resolve(device)),
);
await refuses("layer_norm: cols is undefined; this export has 61, 64", () =>
  createNorm(device, manifest, texts),
);
await refuses("layer_norm: cols is 62; this export has 61, 64", () => make(device, { cols: 62 }));
await refuses('layer_norm: cols is "61"; this export has 61, 64', () => make(device, { cols: "61" }));
const shaders = manifest.shaders.filter(({ cols }) => cols === 61);
const names = shaders.map(({ name }) => name).join(", ");
await refuses(`layer_norm: shader is "fast"; expected one of ${names} for 61 columns`, () =>
  make(device, { shader: "fast" }),
);
await refuses(`layer_norm: shader is "64-portable"; expected one of ${names} for 61 columns`, () =>
  make(device, { shader: "64-portable" }),
);
const { name: withSubgroups } = shaders.find(({ features }) => features.length);
await refuses(
  `layer_norm: ${withSubgroups} needs the feature subgroups, which the device was created without`,
  () => make(bare, { shader: withSubgroups }),
);
const most = "maxComputeInvocationsPerWorkgroup";
const narrow = limited(device, { [most]: 4 });
const tooWide = shaders.map(({ name, limits }) => `${name} needs ${most} ${limits[most]}; the device has 4`);
await refuses(`layer_norm: ${tooWide.at(-1)}`, () => make(narrow, { shader: "61-portable" }));
await refuses(`layer_norm: no shader for 61 columns fits this device: ${tooWide.join("; ")}`, () =>
  make(narrow),
);
const shader = "61-portable";
const broken = { [shader]: texts[shader].replace("\nfn main", "\n\nlet broken;\nfn main") };
if (broken[shader] === texts[shader]) broken[shader] = `\n\nlet broken;\n${texts[shader]}`;
const line = broken[shader].split("\n").indexOf("let broken;") + 1;
await refuses(new RegExp(`^mine does not compile: line ${line}: .*let`), () =>
  createNorm(device, manifest, broken, with61({ shader, label: "mine" })),
);
await refuses(/^webnorm layer_norm 61-portable does not compile: line \d+: /, () =>
  createNorm(device, manifest, broken, with61({ shader })),
);
await refuses(/^webnorm layer_norm 61-portable does not compile: .*entry point/i, () =>
  createNorm(device, manifest, { [shader]: "@compute @workgroup_size(1) fn other() {}" }, with61({ shader })),
);
await refuses(/61-portable/, () => createNorm(device, manifest, {}, with61({ shader })));
await refuses("unknown name cols in an expression of the manifest", () =>
  runtime.evaluate(["+", "rows", "cols"], { rows: 1 }),
);
// Names come from files.
await refuses("unknown name toString in an expression of the manifest", () =>
  runtime.evaluate("toString", {}),
);

// --- run ---------------------------------------------------------------------------------------------

const norm = await make(device);
const x = new Uint16Array(2 * 61);
const weight = new Uint16Array(61);
const bias = weight;
const run = (changes) => norm.run({ x, weight, bias, ...changes });

await refuses('layer_norm: "y" is not a tensor here; expected x, weight, bias', () => run({ y: x }));
await refuses("layer_norm: eps is not a tensor; set it when you create the norm", () => run({ eps: 1 }));
await refuses(
  "layer_norm: arrays is Uint16Array of 122; expected an object { x, weight, bias }",
  () => norm.run(x),
);
await refuses("layer_norm: bias is Int16Array of 61; expected Uint16Array of 61 (cols, float16)", () =>
  run({ bias: new Int16Array(61) }),
);
await refuses("layer_norm: x is 5; expected a multiple of 61 columns", () => run({ x: 5 }));
await refuses("layer_norm: rows is -3; expected an integer of 0 or more", () => norm.byteLength("y", -3));
await refuses(/^layer_norm: epsilon is not an option; expected cols, eps, /, () =>
  make(device, with61({ epsilon: 1 })),
);
const plain = "expected an object { x, weight, bias }";
await refuses(`layer_norm: arrays is undefined; ${plain}`, () => norm.run());
await refuses(`layer_norm: arrays is Array of 1; ${plain}`, () => norm.run([x]));
await refuses(`layer_norm: arrays is [object Promise]; ${plain}: await the promise`, () =>
  norm.run(Promise.resolve({ x })),
);
await refuses("layer_norm: bias is missing; expected x, weight, bias", () => norm.run({ x, weight }));
await refuses("layer_norm: x is missing; expected x, weight, bias", () => run({ x: undefined }));
await refuses("layer_norm: bias is missing; expected x, weight, bias", () => run({ bias: null }));
await refuses("layer_norm: x is Uint16Array of 100; expected a multiple of 61 columns", () =>
  run({ x: new Uint16Array(100) }),
);
await refuses(
  "layer_norm: x is Float32Array of 122; expected Uint16Array of 122 (rows x cols, float16)",
  () => run({ x: new Float32Array(122) }),
);
await refuses("layer_norm: weight is Uint16Array of 60; expected Uint16Array of 61 (cols, float16)", () =>
  run({ weight: new Uint16Array(60) }),
);
await refuses("layer_norm: bias is Uint8Array of 122; expected Uint16Array of 61 (cols, float16)", () =>
  run({ bias: new Uint8Array(122) }),
);
await refuses("layer_norm: bias is Array of 61; expected Uint16Array of 61 (cols, float16)", () =>
  run({ bias: Array(61).fill(0) }),
);
await refuses('layer_norm: "z" is not a tensor; expected x, weight, bias, y', () => norm.byteLength("z", 1));

// `run` also reports an error of Dawn itself.
const blind = altered(device, {
  createBindGroup: ({ layout }) => device.createBindGroup({ layout, entries: [] }),
});
const wrong = await make(blind);
await refuses(/^layer_norm: .*entries/, () => wrong.run({ x, weight, bias }));

// --- encode ------------------------------------------------------------------------------------------

const { STORAGE, COPY_SRC } = GPUBufferUsage;
const bufferOf = (size, usage = STORAGE) => device.createBuffer({ size, usage });
const rows = 3;
const buffers = {};
for (const { name } of norm.tensors) buffers[name] = bufferOf(norm.byteLength(name, rows));
const encoder = device.createCommandEncoder();
const pass = encoder.beginComputePass();
const encode = (changes) => norm.encode(pass, { ...buffers, rows, ...changes });

if ((await messageOf(() => encode())) !== null) throw new Error("a plain call was refused");
const encoders = "expected a GPUCommandEncoder or a GPUComputePassEncoder";
await refuses(`layer_norm: encoder is null; ${encoders}`, () => norm.encode(null, buffers));
await refuses(`layer_norm: encoder is [object Object]; ${encoders}`, () => norm.encode(buffers));
await refuses(`layer_norm: encoder is [object GPUDevice]; ${encoders}`, () => norm.encode(device, buffers));
await refuses("layer_norm: rows is undefined; expected an integer of 0 or more", () =>
  norm.encode(device.createCommandEncoder()),
);
await refuses("layer_norm: rows is undefined; expected an integer of 0 or more", () => norm.encode(pass));
for (const [given, text] of [
  [-1, "-1"],
  [1.5, "1.5"],
  [NaN, "NaN"],
  ["3", '"3"'],
  [undefined, "undefined"],
]) {
  await refuses(`layer_norm: rows is ${text}; expected an integer of 0 or more`, () =>
    encode({ rows: given }),
  );
}
await refuses("layer_norm: rows is undefined; expected an integer of 0 or more", () =>
  norm.encode(pass, null),
);
await refuses("layer_norm: rows is [object GPUBuffer]; expected an integer of 0 or more", () =>
  encode({ rows: bufferOf(4) }),
);
await refuses('layer_norm: "h" is not a tensor here; expected x, weight, bias, y', () =>
  encode({ h: buffers.x }),
);
await refuses("layer_norm: y is missing; expected x, weight, bias, y", () => encode({ y: undefined }));
await refuses("layer_norm: y is missing; expected x, weight, bias, y", () => encode({ y: null }));
const notBuffer = "expected a GPUBuffer or { buffer, offset, size }";
await refuses(`layer_norm: weight is 5; ${notBuffer}`, () => encode({ weight: 5 }));
await refuses(`layer_norm: weight is [object Object]; ${notBuffer}`, () => encode({ weight: {} }));
await refuses(`layer_norm: weight is Uint16Array of 61; ${notBuffer}`, () => encode({ weight }));
await refuses(`layer_norm: weight is [object Object]; ${notBuffer}`, () =>
  encode({ weight: { buffer: { size: 1e6 } } }),
);
await refuses("layer_norm: x has 364 bytes; expected 368 (rows x cols float16 with rows 3)", () =>
  encode({ x: bufferOf(364) }),
);
await refuses("layer_norm: x has 112 bytes; expected 368 (rows x cols float16 with rows 3)", () =>
  encode({ x: { buffer: buffers.x, offset: 256 } }),
);
await refuses("layer_norm: weight has 100 bytes; expected 124 (cols float16 with rows 3)", () =>
  encode({ weight: { buffer: bufferOf(1024), size: 100 } }),
);
await refuses("layer_norm: x has 4096 bytes at offset 0, but its buffer ends at 368", () =>
  encode({ x: { buffer: buffers.x, size: 4096 } }),
);
await refuses("layer_norm: y has 368 bytes at offset 768, but its buffer ends at 1024", () =>
  encode({ y: { buffer: bufferOf(1024), offset: 768, size: 368 } }),
);
await refuses("layer_norm: the size of y is NaN; expected an integer of 0 or more", () =>
  encode({ y: { buffer: bufferOf(1024), size: NaN } }),
);
await refuses("layer_norm: the offset of y is 4; expected a multiple of 256", () =>
  encode({ y: { buffer: bufferOf(1024), offset: 4 } }),
);
await refuses("layer_norm: the offset of y is 2048; expected at most 1024, where its buffer ends", () =>
  encode({ y: { buffer: bufferOf(1024), offset: 2048 } }),
);
await refuses('layer_norm: "" is not a tensor here; expected x, weight, bias, y', () =>
  encode({ "": buffers.x }),
);
for (const [offset, text] of [
  [-256, "-256"],
  [NaN, "NaN"],
  ["256", '"256"'],
  [256n, "256n"],
  [null, "null"],
]) {
  await refuses(`layer_norm: the offset of y is ${text}; expected a multiple of 256`, () =>
    encode({ y: { buffer: bufferOf(1024), offset } }),
  );
}

// Values of every type for every argument: the norm reports its own error in one line.
const own = /^layer_norm: .*$/;
const kinds = [null, true, "", "61", 1.5, NaN, 61n, Symbol("s"), [], {}, Object.create(null), new Date(0)];
const more = [() => 1, new Uint8Array(122), new Float32Array(122), { length: 61n }, { length: "61" }, new Map()];
for (const value of [...kinds, ...more]) {
  await refuses(own, () => norm.byteLength(value, 1));
  await refuses(own, () => norm.byteLength("y", value));
  await refuses(own, () => norm.run(value));
  await refuses(own, () => run({ x: value }));
  await refuses(own, () => norm.encode(value, { ...buffers, rows }));
  await refuses(own, () => norm.encode(pass, value));
  await refuses(own, () => encode({ rows: value }));
  await refuses(own, () => encode({ x: value }));
  await refuses(own, () => encode({ x: { buffer: value } }));
  await refuses(own, () => encode({ x: { buffer: buffers.x, offset: value } }));
  await refuses(own, () => encode({ x: { buffer: buffers.x, size: value } }));
}
for (const value of [...kinds, new Float32Array(61)]) await refuses(own, () => run({ weight: value }));
await refuses("layer_norm: the buffer of y lacks GPUBufferUsage.STORAGE; create it with this usage", () =>
  encode({ y: bufferOf(1024, COPY_SRC) }),
);
await refuses("layer_norm: the buffer of x is mapped; call unmap() first", () =>
  encode({ x: device.createBuffer({ size: 1024, usage: STORAGE, mappedAtCreation: true }) }),
);
const one = "share one GPUBuffer; an output needs a buffer of its own";
await refuses(`layer_norm: x and y ${one}`, () => encode({ y: buffers.x }));
await refuses(`layer_norm: bias and y ${one}`, () => {
  const shared = bufferOf(2048);
  return encode({ bias: { buffer: shared, offset: 1024 }, y: { buffer: shared, size: 1024 } });
});
pass.end();
encoder.finish();

// --- errors that only the device detects -----------------------------------------------------------------------

const watched = await (await gpu.requestAdapter()).requestDevice();
const lines = [];
watched.addEventListener("uncapturederror", (event) => {
  // Node's Dawn prints those that are not cancelled.
  event.preventDefault();
  lines.push(event.error.message.split("\n", 1)[0]);
});
const watching = await make(watched);
const on = (device, name) => device.createBuffer({ size: 1024, usage: STORAGE, label: `the app's ${name}` });
const its = Object.fromEntries(watching.tensors.map(({ name }) => [name, on(watched, name)]));
/** Return the device's errors of a call on its buffers with `changes`, submitted after `between`. */
async function heard(changes, between = () => {}) {
  lines.length = 0;
  const encoder = watched.createCommandEncoder();
  watching.encode(encoder, { ...its, ...changes, rows });
  between();
  watched.queue.submit([encoder.finish()]);
  await watched.queue.onSubmittedWorkDone();
  // A device answers in order: after these turns it has answered the norm's question about each tensor.
  for (let turn = 0; turn < 4 * watching.tensors.length; turn++) {
    watched.pushErrorScope("validation");
    await watched.popErrorScope();
  }
  return [...lines];
}
const whose = (name) =>
  `layer_norm: ${name} belongs to another GPUDevice, or is invalid; ` +
  "create the norm on the device that made it";

found.push({ expected: "", got: (await heard({})).join() });
for (const name of ["weight", "y"]) {
  const strange = on(device, name);
  const messages = await heard({ [name]: strange });
  found.push({ expected: whose(name), got: messages.at(-1) });
  found.push({ expected: "1", got: String(messages.filter((line) => line.startsWith("layer_norm")).length) });
  await refuses(whose(name), () =>
    watching.encode(watched.createCommandEncoder(), { ...its, [name]: strange, rows }),
  );
  // Also as another tensor and with other rows.
  await refuses(whose("x"), () =>
    watching.encode(watched.createCommandEncoder(), { ...its, x: strange, rows: 1 }),
  );
}
found.push({ expected: "", got: (await heard({})).join() });
// The app's own error scopes receive only the app's errors.
watched.pushErrorScope("validation");
watching.encode(watched.createCommandEncoder(), { ...its, bias: on(device, "bias"), rows });
found.push({ expected: "null", got: String(await watched.popErrorScope()) });
const stale = on(watched, "y");
found.push({
  expected: '/^\\[Buffer "the app\'s y"\\] used in submit while destroyed/',
  got: (await heard({ y: stale }, () => stale.destroy())).join(),
});
found.push({ expected: "", got: (await heard({ y: on(watched, "y") })).join() });

// --- limits ------------------------------------------------------------------------------------------

const cramped = await make(limited(device, { maxStorageBufferBindingSize: 256 }));
await refuses("layer_norm: a row of x needs 122 bytes, but this device binds at most 256", () =>
  cramped.run({ x: new Uint16Array(61 * 9), weight, bias }),
);
const zeros = ({ shape }) => new Uint16Array(shape[0] === "rows" ? 61 * 400 : 61);
const given = gradient.manifest.tensors.filter(({ access }) => access === "read");
const inputs = Object.fromEntries(given.map((tensor) => [tensor.name, zeros(tensor)]));
const short = await createNorm(
  limited(device, { maxStorageBufferBindingSize: 1024 }),
  gradient.manifest,
  gradient.texts,
);
await refuses(/^layer_norm_backward: partials needs \d+ bytes, more than this device allows; use fewer rows$/, () =>
  short.run(inputs),
);

// --- the end of a norm, and of a device ----------------------------------------------------------------

norm.destroy();
norm.destroy();
await refuses("layer_norm: was destroyed; create it again", () => run());
await refuses("layer_norm: was destroyed; create it again", () => encode());

const dying = await open({});
const last = await make(dying);
const running = last.run({ x: new Uint16Array(61 * 500), weight, bias });
dying.destroy();
const lost = /^layer_norm: the device was lost \(.+\); create it again on a new device$/;
await refuses(lost, () => running);
await refuses(lost, () => last.run({ x, weight, bias }));
await refuses(lost, () => last.encode(pass, { ...buffers, rows }));
await refuses(lost, () => make(dying));

// At once, before anyone could hear of the loss.
const sudden = await open({});
const unaware = await make(sudden);
sudden.destroy();
await refuses(lost, () => unaware.run({ x, weight, bias }));
const early = await open({});
const compiling = make(early);
early.destroy();
await refuses(lost, () => compiling);

await finish(found);
