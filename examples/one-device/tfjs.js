import * as tf from "@tensorflow/tfjs-core";
import { WebGPUBackend } from "@tensorflow/tfjs-backend-webgpu";

/** TensorFlow.js on a device of the app's, in place of one that it would ask for. */
export async function start(device) {
  tf.removeBackend("webgpu");
  tf.registerBackend("webgpu", () => new WebGPUBackend(device, device.adapterInfo));
  if (!(await tf.setBackend("webgpu"))) throw new Error("TensorFlow.js does not take the device");
}

/** A tensor that reads a buffer in place; it takes float32 and int32. */
export function tensorOf(buffer, shape) {
  return tf.tensor({ buffer, zeroCopy: true }, shape, "float32");
}

/** The norm of a tensor of TensorFlow.js, as another one in the buffer `y`. */
export function normed(norm, tensor, { weight, bias, y }) {
  const { device } = tf.backend();
  // A copy on the GPU, behind all that TensorFlow.js has still held back.
  const { buffer: x, tensorRef } = tensor.dataToGPU();
  const encoder = device.createCommandEncoder();
  norm.encode(encoder, { x, weight, bias, y, rows: tensor.size / norm.cols });
  device.queue.submit([encoder.finish()]);
  tensorRef.dispose();
  return tensorOf(y, tensor.shape);
}
