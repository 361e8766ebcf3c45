// webnorm's exports: npm packages as `webnorm export` writes them.

import { bufferWith, readBuffer, submitPass } from "../machine.js";

const PARAMETERS = { layer_norm: ["x", "weight", "bias"], rms_norm: ["x", "weight"] };

/** Load an exported package by its name, on the machine's device. */
export async function normOf(host, { device, adapterInfo }, name, cols, eps) {
  const module = await host.module(`exports/${name}/index.js`);
  const [create] = Object.keys(module).filter((one) => one.startsWith("create"));
  return module[create](device, { cols, eps, adapterInfo });
}

/** Make buffers for all tensors of a package, with inputs from `stored`. */
export function buffersFor(device, norm, stored, rows) {
  const entries = norm.tensors.map(({ name, access }) => {
    const data = access === "read" ? stored[name] : new Uint8Array(norm.byteLength(name, rows));
    return [name, bufferWith(device, data)];
  });
  return Object.fromEntries(entries);
}

/** Submit one call. */
export function dispatch(device, norm, buffers, rows) {
  submitPass(device, (pass) => norm.encode(pass, { ...buffers, rows }));
}

export async function open(host, machine) {
  const { device } = machine;
  return {
    prepare: async ({ op, dtype, rows, cols, eps }, stored) => {
      const norm = await normOf(host, machine, `${op}-${dtype}`, cols, eps);
      const inputs = Object.fromEntries(PARAMETERS[op].map((name) => [name, stored[name]]));
      const buffers = buffersFor(device, norm, inputs, rows);
      return {
        run: async () => dispatch(device, norm, buffers, rows),
        read: () => readBuffer(device, buffers.y, 0, norm.byteLength("y", rows)),
        close: () => {
          for (const buffer of Object.values(buffers)) buffer.destroy();
          norm.destroy();
        },
      };
    },
  };
}
