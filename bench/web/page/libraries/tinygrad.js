// tinygrad: WGSL that it rendered in Python without a device, dispatched as its own WebGPU runtime would.

import { bufferWith, readBuffer, submitPass } from "../machine.js";

export async function open(host, { device, features }) {
  const { programs } = JSON.parse(new TextDecoder().decode(await host.bytes("tinygrad.json")));
  const infinity = device.createBuffer({ size: 4, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
  device.queue.writeBuffer(infinity, 0, new Float32Array([Infinity]));
  return {
    prepare: async ({ op, dtype, rows, cols }, stored) => {
      const program = programs[`${op}-${dtype}-${rows}x${cols}`];
      if (program.why) throw new Error(program.why);
      if (dtype === "float16" && !features.includes("shader-f16")) throw new Error("needs shader-f16");
      const buffers = program.buffers.map(({ name, bytes }) => bufferWith(device, stored[name] ?? new Uint8Array(bytes)));
      const steps = [];
      for (const kernel of program.kernels) steps.push(await stepOf(device, kernel, buffers, infinity));
      const y = buffers[program.buffers.findIndex(({ name }) => name === "y")];
      return {
        run: async () => submitPass(device, (pass) => steps.forEach((step) => dispatch(pass, step))),
        read: () => readBuffer(device, y, 0, stored.x.byteLength),
        close: () => buffers.forEach((buffer) => buffer.destroy()),
      };
    },
  };
}

async function stepOf(device, { code, entry, grid, buffers: used }, buffers, infinity) {
  const bound = [infinity, ...used.map((index) => buffers[index])];
  const entries = bound.map((_, binding) => ({
    binding,
    visibility: GPUShaderStage.COMPUTE,
    buffer: { type: binding === 0 ? "uniform" : "storage" },
  }));
  const own = device.createBindGroupLayout({ entries });
  const pipeline = await device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [own] }),
    compute: { module: device.createShaderModule({ code }), entryPoint: entry },
  });
  const resources = bound.map((buffer, binding) => ({ binding, resource: { buffer } }));
  return { pipeline, group: device.createBindGroup({ layout: own, entries: resources }), grid };
}

function dispatch(pass, { pipeline, group, grid }) {
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(...grid);
}
