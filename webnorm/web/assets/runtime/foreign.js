// The search for a buffer of another device, which only the device itself can detect.

/** Return the first tensor whose buffer the device refuses in any binding: another device's, or an invalid one. */
export async function foreignBufferAmong(device, bound) {
  const visibility = GPUShaderStage.COMPUTE;
  const entries = [{ binding: 0, visibility, buffer: { type: "storage" } }];
  const layout = device.createBindGroupLayout({ entries });
  for (const [name, { buffer }] of Object.entries(bound)) {
    device.pushErrorScope("validation");
    device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer, size: 4 } }] });
    // A call of 0 rows may have an empty buffer, which is never bound.
    if ((await device.popErrorScope()) && buffer.size) return name;
  }
}
