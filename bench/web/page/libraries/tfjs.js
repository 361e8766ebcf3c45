// TensorFlow.js on WebGPU: norms composed of operations, LayerNorm with tf.moments.

const FILES = [
  "tfjs-core/dist/tf-core.min.js",
  "tfjs-backend-cpu/dist/tf-backend-cpu.min.js",
  "tfjs-backend-webgpu/dist/tf-backend-webgpu.min.js",
];

/** Return a norm as a function of tensors. */
export function normOf(tf, op, eps) {
  if (op === "rms_norm") {
    return ({ x, weight }) => tf.mul(tf.mul(x, tf.rsqrt(tf.add(tf.mean(tf.square(x), -1, true), eps))), weight);
  }
  return ({ x, weight, bias }) => {
    const { mean, variance } = tf.moments(x, -1, true);
    return tf.add(tf.mul(tf.mul(tf.sub(x, mean), tf.rsqrt(tf.add(variance, eps))), weight), bias);
  };
}

/** Submit the commands that the library would keep until the next read. */
export function submit(tf) {
  const backend = tf.backend();
  backend.endComputePassEncoder();
  backend.submitQueue();
}

export async function open(host, { device }) {
  for (const file of FILES) await host.script(`node_modules/@tensorflow/${file}`);
  const { tf } = globalThis;
  if (!(await tf.setBackend("webgpu"))) throw new Error("its backend webgpu does not start");
  await tf.ready();
  if (tf.backend().device !== device) throw new Error("it opened its own device");
  return {
    tf,
    prepare: async ({ op, dtype, rows, cols, eps }, stored) => {
      // This throws the library's own error for a type that it does not have.
      tf.tensor([1], [1], dtype).dispose();
      const norm = normOf(tf, op, eps);
      const shapes = { x: [rows, cols], weight: [cols], bias: [cols] };
      const inputs = {};
      for (const [name, data] of Object.entries(stored)) inputs[name] = tf.tensor(data, shapes[name], dtype);
      let y = null;
      return {
        run: async () => {
          y?.dispose();
          y = tf.tidy(() => norm(inputs));
          submit(tf);
        },
        read: async () => new Uint8Array((await y.data()).slice().buffer),
        close: () => {
          y?.dispose();
          tf.dispose(inputs);
        },
      };
    },
  };
}
