import * as tf from "@tensorflow/tfjs-core";
import { WebGPUBackend } from "@tensorflow/tfjs-backend-webgpu";

/** Start TensorFlow.js on the app's device, instead of a device of its own. */
export async function start(device) {
  tf.removeBackend("webgpu");
  tf.registerBackend("webgpu", () => new WebGPUBackend(device, device.adapterInfo));
  if (!(await tf.setBackend("webgpu"))) throw new Error("TensorFlow.js does not accept the device");
}

/** Return a tensor that uses a buffer in place; TensorFlow.js supports float32 and int32. */
export function tensorOf(buffer, shape) {
  return tf.tensor({ buffer, zeroCopy: true }, shape, "float32");
}

/** Normalize a tensor of TensorFlow.js; the result is a tensor in the buffer `y`. */
export function normed(norm, tensor, { weight, bias, y }) {
  const { device } = tf.backend();
  // A copy on the GPU, ordered after all commands that TensorFlow.js has queued.
  const { buffer: x, tensorRef } = tensor.dataToGPU();
  const encoder = device.createCommandEncoder();
  norm.encode(encoder, { x, weight, bias, y, rows: tensor.size / norm.cols });
  device.queue.submit([encoder.finish()]);
  tensorRef.dispose();
  return tensorOf(y, tensor.shape);
}
