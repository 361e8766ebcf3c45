// Dispatches that wait for one another, like the calls of one caller.

const LIMIT = "maxStorageBuffersPerShaderStage";
// The default limit of every device.
const GRANTED = 8;

/**
 * Wrap a device so that its pipelines bind one more buffer, which all share and each may write, though no shader does.
 * Without it, dispatches on different sets of buffers run at the same time, and each seems faster than a single call
 * is (docs/measuring.md).
 * @param {GPUDevice} device
 * @returns {GPUDevice}
 */
export function ordered(device) {
  const buffer = device.createBuffer({ label: "order", size: 16, usage: GPUBufferUsage.STORAGE });
  const places = new WeakMap();
  const own = {
    createBindGroupLayout(descriptor) {
      const binding = 1 + Math.max(-1, ...descriptor.entries.map((entry) => entry.binding));
      const order = { binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: "storage" } };
      const layout = device.createBindGroupLayout({ ...descriptor, entries: [...descriptor.entries, order] });
      places.set(layout, binding);
      return layout;
    },
    createBindGroup(descriptor) {
      const order = { binding: places.get(descriptor.layout), resource: { buffer } };
      return device.createBindGroup({ ...descriptor, entries: [...descriptor.entries, order] });
    },
  };
  // A device's methods and getters need the device itself as `this`.
  const get = (_, name) => {
    const value = own[name] ?? device[name];
    return typeof value === "function" && !own[name] ? value.bind(device) : value;
  };
  return new Proxy(device, { get });
}

/**
 * Return the descriptor with one more storage buffer for ordering, if the adapter supports it.
 * @param {GPUDeviceDescriptor} descriptor
 * @param {object[]} shaders  of manifests
 * @param {GPUAdapter} adapter
 * @returns {GPUDeviceDescriptor}
 */
export function withRoomForOrder(descriptor, shaders, adapter) {
  const bound = Math.max(...shaders.map((shader) => shader.limits[LIMIT]));
  const wanted = Math.min(bound + 1, adapter.limits[LIMIT]);
  if (wanted <= GRANTED) return descriptor;
  return { ...descriptor, requiredLimits: { ...descriptor.requiredLimits, [LIMIT]: wanted } };
}

/**
 * Return the reason why a shader cannot be timed in order, or null if it can.
 * @param {object} shader  of a manifest
 * @param {GPUDevice} device
 * @returns {string | null}
 */
export function noRoomForOrder(shader, device) {
  if (shader.limits[LIMIT] < device.limits[LIMIT]) return null;
  return "binds all storage buffers that this device allows, and timing one call after the other needs one more";
}
