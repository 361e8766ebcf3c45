// Record the dispatches of a library's call and replay them. Import this file before any library, because it
// changes prototypes.

const pass = GPUComputePassEncoder.prototype;
const encoder = GPUCommandEncoder.prototype;
const { setPipeline, setBindGroup, dispatchWorkgroups, dispatchWorkgroupsIndirect } = pass;
const { createBindGroup } = GPUDevice.prototype;
const { destroy } = GPUBuffer.prototype;

// The current pipeline and groups of each pass, and the buffers of each bind group.
const states = new WeakMap();
const bound = new WeakMap();
let calls = null;
let copies = 0;
let kept = null;

const stateOf = (own) => states.get(own) ?? states.set(own, { groups: [] }).get(own);

pass.setPipeline = function (pipeline) {
  stateOf(this).pipeline = pipeline;
  return setPipeline.call(this, pipeline);
};
pass.setBindGroup = function (index, group, ...offsets) {
  stateOf(this).groups[index] = [group, ...offsets];
  return setBindGroup.call(this, index, group, ...offsets);
};
pass.dispatchWorkgroups = function (...grid) {
  note(this, dispatchWorkgroups, grid);
  return dispatchWorkgroups.apply(this, grid);
};
pass.dispatchWorkgroupsIndirect = function (...place) {
  note(this, dispatchWorkgroupsIndirect, place);
  return dispatchWorkgroupsIndirect.apply(this, place);
};
for (const name of ["copyBufferToBuffer", "clearBuffer"]) {
  const own = encoder[name];
  encoder[name] = function (...given) {
    copies += calls === null ? 0 : 1;
    return own.apply(this, given);
  };
}
GPUDevice.prototype.createBindGroup = function (descriptor) {
  const group = createBindGroup.call(this, descriptor);
  const buffers = Array.from(descriptor.entries, ({ resource }) => resource.buffer ?? resource);
  bound.set(group, buffers.filter((one) => one instanceof GPUBuffer));
  return group;
};

function note(own, dispatch, given) {
  if (calls === null) return;
  const { pipeline, groups } = stateOf(own);
  calls.push({ pipeline, groups: [...groups], dispatch, given });
}

/**
 * Run some work and record its dispatches.
 * @param {() => Promise<void>} work
 * @returns {Promise<{ calls: object[], copies: number }>}  the dispatches, and the number of copies and clearings
 *   of buffers between them, which are not replayed
 */
export async function recorded(work) {
  calls = [];
  copies = 0;
  try {
    await work();
    return { calls, copies };
  } finally {
    calls = null;
  }
}

GPUBuffer.prototype.destroy = function () {
  if (kept === null) destroy.call(this);
  else kept.push(this);
};

/**
 * Keep buffers that libraries destroy, because recorded dispatches still bind the buffers of a call.
 * @returns {() => void}  a function that destroys them
 */
export function keepBuffers() {
  kept = [];
  return () => {
    const given = kept;
    kept = null;
    for (const buffer of given) buffer.destroy();
  };
}

/** Replay recorded dispatches. */
export function replay(own, list) {
  for (const { pipeline, groups, dispatch, given } of list) {
    setPipeline.call(own, pipeline);
    groups.forEach((group, index) => group && setBindGroup.call(own, index, ...group));
    dispatch.apply(own, given);
  }
}

/** Return the buffers that a dispatch binds. */
export function buffersOf({ groups }) {
  return [...new Set(groups.flatMap((group) => (group ? bound.get(group[0]) ?? [] : [])))];
}
