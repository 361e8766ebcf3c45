// Whose an app's buffers are, which only a device can tell.

/** A tensor whose buffer a device refuses for any binding: another device's, or an invalid one. */
export async function strangerAmong(device, bound) {
  const visibility = GPUShaderStage.COMPUTE;
  const entries = [{ binding: 0, visibility, buffer: { type: "storage" } }];
  const layout = device.createBindGroupLayout({ entries });
  for (const [name, { buffer }] of Object.entries(bound)) {
    device.pushErrorScope("validation");
    device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer, size: 4 } }] });
    // No rows may have no bytes, which are never bound.
    if ((await device.popErrorScope()) && buffer.size) return name;
  }
}
