// Dispatches that wait for one another, as the calls of one caller do.

const LIMIT = "maxStorageBuffersPerShaderStage";
// What every device has without asking.
const GRANTED = 8;

/**
 * The device, but that its pipelines bind one buffer more, which all share and each may write, though no shader
 * does. Dispatches on different sets of buffers have nothing else to wait for, and a GPU runs as many at a time
 * as it has room for: no call takes as little as its share of that (docs/measuring.md).
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
  // A device's methods and getters want the device itself.
  const get = (_, name) => {
    const value = own[name] ?? device[name];
    return typeof value === "function" && !own[name] ? value.bind(device) : value;
  };
  return new Proxy(device, { get });
}

/**
 * A descriptor that asks for the storage buffer that order takes, where the adapter has it.
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
 * Why a shader cannot be timed in order; null where it can.
 * @param {object} shader  of a manifest
 * @param {GPUDevice} device
 * @returns {string | null}
 */
export function noRoomForOrder(shader, device) {
  if (shader.limits[LIMIT] < device.limits[LIMIT]) return null;
  return "binds as many storage buffers as this device has; to time one call after the other takes one more";
}
