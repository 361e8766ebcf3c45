// jax-js: norms under jit, composed of operations or with nn.standardize.

/** Return a norm as a function of arrays, which it consumes. */
export function normOf({ numpy: np, nn, jit }, op, eps, standardize) {
  const squares = (x) => np.mean(np.square(x), -1, { keepdims: true });
  if (op === "rms_norm") {
    return jit((x, weight) => x.ref.mul(np.reciprocal(np.sqrt(squares(x).add(eps)))).mul(weight));
  }
  if (standardize) {
    return jit((x, weight, bias) => nn.standardize(x, -1, { epsilon: eps }).mul(weight).add(bias));
  }
  return jit((x, weight, bias) => {
    const centred = x.ref.sub(np.mean(x, -1, { keepdims: true }));
    const variance = squares(centred.ref);
    return centred.mul(np.reciprocal(np.sqrt(variance.add(eps)))).mul(weight).add(bias);
  });
}

/** List the library's types in words. */
export function typesOf({ DType }) {
  return `its types are ${Object.values(DType).join(", ")}`;
}

/** Make a jax-js array; float16 data are passed as a Float16Array, as jax-js requires. */
export function arrayOf(jax, data, shape, dtype) {
  if (dtype === "float32") return jax.numpy.array(data).reshape(shape);
  if (dtype !== "float16") throw new Error(typesOf(jax));
  if (!globalThis.Float16Array) throw new Error("this host has no Float16Array, which jax-js needs for float16");
  const { buffer, byteOffset, length } = data;
  return jax.numpy.array(new Float16Array(buffer, byteOffset, length)).reshape(shape);
}

export async function open(host, { device }, { standardize = false }) {
  const jax = await host.module("node_modules/@jax-js/jax/dist/index.js");
  const found = await jax.init();
  if (!found.includes("webgpu")) throw new Error("it finds no WebGPU");
  jax.defaultDevice("webgpu");
  if (jax.getWebGPUDevice() !== device) throw new Error("it opened its own device");
  return {
    jax,
    prepare: async ({ op, dtype, rows, cols, eps }, stored) => {
      if (standardize && op === "rms_norm") throw new Error("nn.standardize subtracts the mean, so it has no RMSNorm");
      const norm = normOf(jax, op, eps, standardize);
      const shapes = { x: [rows, cols], weight: [cols], bias: [cols] };
      const inputs = Object.entries(stored).map(([name, data]) => arrayOf(jax, data, shapes[name], dtype));
      let y = null;
      return {
        run: async () => {
          y?.dispose();
          y = norm(...inputs.map((one) => one.ref));
          await y.blockUntilReady();
        },
        read: async () => {
          const { buffer, byteOffset, byteLength } = await y.ref.data();
          return new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength));
        },
        close: () => {
          y?.dispose();
          for (const one of inputs) one.dispose();
        },
      };
    },
  };
}
