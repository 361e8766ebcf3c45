import { AutoModel, Tensor, env } from "@huggingface/transformers";
import * as ort from "onnxruntime-web/webgpu";

const here = (path) => new URL(path, import.meta.url);

// Load models and wasm only from this site.
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = here("models/").pathname;
env.backends.onnx.wasm.wasmPaths = here("../node_modules/onnxruntime-web/dist/").href;
env.backends.onnx.wasm.numThreads = 1;

/** Load a model whose outputs stay in buffers of the app's device. */
export function load(name, device) {
  const executionProviders = [{ name: "webgpu", device }];
  const session_options = { executionProviders, preferredOutputLocation: "gpu-buffer" };
  return AutoModel.from_pretrained(name, { device: "webgpu", dtype: "fp32", session_options });
}

/** Normalize a model's output into a tensor for the next model, and free the output. */
export function normed(norm, device, output, { weight, bias }) {
  const { dims, ort_tensor: given } = output;
  const rows = given.size / norm.cols;
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const y = device.createBuffer({ size: norm.byteLength("y", rows), usage });
  const encoder = device.createCommandEncoder();
  norm.encode(encoder, { x: given.gpuBuffer, weight, bias, y, rows });
  device.queue.submit([encoder.finish()]);
  output.dispose();
  return new Tensor(ort.Tensor.fromGpuBuffer(y, { dataType: "float32", dims, dispose: () => y.destroy() }));
}
