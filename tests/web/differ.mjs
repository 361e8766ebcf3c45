// The errors of libraries when devices differ, and webnorm on the libraries' own devices.

import { createLayerNorm, requestDevice } from "/layer-norm/index.js";
import { drawn, errorOf, layerNorm } from "/shared.js";

const ROWS = 4;
const USAGE = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
// The adapter's name is not a software adapter's, so that the shaders of GPUs are chosen.
const AS_ON_A_GPU = { adapterInfo: { vendor: "none" } };

async function said(work) {
  try {
    return await work();
  } catch (error) {
    return error.message;
  }
}

/** Return weight and bias, as buffers and as arrays. */
function parameters(norm, device) {
  const [scale, shift] = [drawn(norm.cols, 1), drawn(norm.cols, 0)];
  const [weight, bias] = [scale, shift].map((array) => {
    const made = device.createBuffer({ size: array.byteLength, usage: USAGE });
    device.queue.writeBuffer(made, 0, array);
    return made;
  });
  return { weight, bias, expected: (x) => layerNorm(x, scale, shift, 1e-5) };
}

function buffers(norm, device) {
  const made = norm.tensors.map(({ name }) => {
    const size = norm.byteLength(name, ROWS);
    return [name, device.createBuffer({ label: name, size, usage: USAGE })];
  });
  return Object.fromEntries(made);
}

/** Return the norm's error on a call with x of another device, and on the same call again. */
async function mixed(norm, device, other) {
  const mixture = { ...buffers(norm, device), x: buffers(norm, other).x, rows: ROWS };
  const encode = () => norm.encode(device.createCommandEncoder(), mixture);
  const event = new Promise((resolve) => {
    device.onuncapturederror = (event) => {
      event.preventDefault();
      resolve(event.error.message);
    };
  });
  encode();
  return { first: await event, later: await said(encode) };
}

/** onnxruntime-web with its own device, and webnorm with another. */
export async function onnxruntime() {
  const ort = await import("/node_modules/onnxruntime-web/dist/ort.webgpu.min.mjs");
  ort.env.wasm.wasmPaths = "/node_modules/onnxruntime-web/dist/";
  ort.env.wasm.numThreads = 1;
  const open = (...executionProviders) =>
    ort.InferenceSession.create("/onnxruntime/models/behind.onnx", {
      executionProviders,
      preferredOutputLocation: "gpu-buffer",
    });
  const run = (session, device) => {
    const y = device.createBuffer({ label: "y", size: ROWS * 768 * 4, usage: USAGE });
    const dims = [ROWS, 768];
    return session.run({ y: ort.Tensor.fromGpuBuffer(y, { dataType: "float32", dims }) });
  };
  const device = await requestDevice();
  ort.env.webgpu.device = device;
  const session = await open("webgpu");
  const own = await ort.env.webgpu.device;
  const { out } = await run(session, own);
  const norm = await createLayerNorm(device);
  return {
    ignoresTheSetter: own !== device,
    outBytes: out.gpuBuffer.size,
    ownFeatures: [...own.features],
    shader: (await createLayerNorm(own, AS_ON_A_GPU)).shader.name,
    notADevice: await said(() => open({ name: "webgpu", device: {} })),
    atOnce: await said(async () => (await Promise.all([open("webgpu"), open("webgpu")])).length),
    foreign: await said(async () => (await run(session, device)).out.location),
    afterwards: await said(async () => (await run(session, own)).out.location),
    onOurs: await said(async () => (await run(await open({ name: "webgpu", device }), device)).out.location),
    encoded: await mixed(norm, device, own),
  };
}

/** transformers.js with its own device, which webnorm also uses. */
export async function transformers() {
  const { AutoModel, AutoTokenizer, env } = await import("@huggingface/transformers");
  const { normed } = await import("/one-device/transformers.js");
  const session_options = { preferredOutputLocation: "gpu-buffer" };
  const options = { device: "webgpu", dtype: "fp32", session_options };
  const [embedding, head] = [
    await AutoModel.from_pretrained("embedding", options),
    await AutoModel.from_pretrained("head", options),
  ];
  const tokens = await (await AutoTokenizer.from_pretrained("embedding"))("not to be");
  const device = await env.backends.onnx.webgpu.device;
  const norm = await createLayerNorm(device);
  const { weight, bias, expected } = parameters(norm, device);
  const { last_hidden_state: hidden } = await embedding(tokens);
  const x = await hidden.ort_tensor.getData();
  const { last_hidden_state: again } = await embedding(tokens);
  const mean = await said(async () => again.mean(1));
  const inputs_embeds = normed(norm, device, again, { weight, bias });
  const { last_hidden_state: doubled } = await head({ inputs_embeds });
  const found = await doubled.ort_tensor.getData();
  return { error: errorOf(found, expected(x).map((value) => 2 * value)), mean };
}

/** TensorFlow.js with its own device, and webnorm with another. */
export async function tensorflow() {
  const tf = await import("@tensorflow/tfjs-core");
  await import("@tensorflow/tfjs-backend-webgpu");
  const { normed, tensorOf } = await import("/one-device/tfjs.js");
  await tf.setBackend("webgpu");
  const { device: own } = tf.backend();
  const norm = await createLayerNorm(own);
  const { weight, bias, expected } = parameters(norm, own);
  const numbers = drawn(ROWS * norm.cols, 8);
  const { y } = buffers(norm, own);
  // The sum is computed on the GPU, but not yet submitted.
  const x = tf.add(tf.tensor(numbers, [ROWS, norm.cols]), 8);
  const found = await normed(norm, x, { weight, bias, y }).data();
  const device = await requestDevice();
  const created = (size, usage = USAGE) => own.createBuffer({ size, usage });
  own.pushErrorScope("validation");
  const foreign = buffers(await createLayerNorm(device), device).x;
  const read = await said(async () => (await tf.add(tensorOf(foreign, [ROWS, 768]), 1).data()).length);
  const scope = await own.popErrorScope();
  return {
    error: errorOf(found, expected(numbers.map((value) => value + 8))),
    ownFeatures: [...own.features],
    shader: (await createLayerNorm(own, AS_ON_A_GPU)).shader.name,
    onTheCpu: await said(() => tf.tensor([1, 2]).dataToGPU()),
    short: await said(() => tensorOf(created(8), [ROWS, 768])),
    usage: await said(() => tensorOf(created(8, GPUBufferUsage.STORAGE), [2])),
    foreign: { read, scope: scope?.message },
  };
}
