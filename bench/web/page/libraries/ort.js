// onnxruntime-web, which transformers.js uses, with a one-node model for each op and storage type.

import { bufferWith, readBuffer } from "../machine.js";

const DIST = "node_modules/onnxruntime-web/dist/";
const OPTIONS = { executionProviders: ["webgpu"], preferredOutputLocation: "gpu-buffer" };

/** Load the package and put the machine's device into its environment. */
async function loaded(host, { device }) {
  const ort = await host.module(`${DIST}ort.webgpu.min.mjs`);
  Object.assign(ort.env.wasm, { numThreads: 1, wasmPaths: host.at(DIST) });
  ort.env.logLevel = "error";
  ort.env.webgpu.device = device;
  return ort;
}

export async function open(host, machine) {
  const ort = await loaded(host, machine);
  const { device } = machine;
  const session = async (name) => ort.InferenceSession.create(await host.bytes(`models/${name}.onnx`), OPTIONS);
  return {
    ort,
    session,
    prepare: async ({ op, dtype, rows, cols }, stored) => {
      const model = await session(`${op}-${dtype}`);
      if ((await ort.env.webgpu.device) !== device) throw new Error("it opened its own device");
      const feeds = {};
      const buffers = [];
      for (const [name, data] of Object.entries(stored)) {
        const buffer = bufferWith(device, data);
        buffers.push(buffer);
        const dims = name === "x" ? [rows, cols] : [cols];
        feeds[name] = ort.Tensor.fromGpuBuffer(buffer, { dataType: dtype, dims });
      }
      let y = null;
      return {
        run: async () => {
          y?.dispose();
          ({ y } = await model.run(feeds));
        },
        read: () => {
          if (y.location !== "gpu-buffer") throw new Error(`its answer is on ${y.location}`);
          return readBuffer(device, y.gpuBuffer, 0, stored.x.byteLength);
        },
        close: () => {
          y?.dispose();
          model.release();
          for (const buffer of buffers) buffer.destroy();
        },
      };
    },
  };
}
