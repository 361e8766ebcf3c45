// What a library dispatches in a call, written down to be dispatched again: imported before any library, since
// prototypes are changed here.

const pass = GPUComputePassEncoder.prototype;
const encoder = GPUCommandEncoder.prototype;
const { setPipeline, setBindGroup, dispatchWorkgroups, dispatchWorkgroupsIndirect } = pass;
const { createBindGroup } = GPUDevice.prototype;
const { destroy } = GPUBuffer.prototype;

// Of a pass its pipeline and groups so far, of a bind group the buffers in it.
const states = new WeakMap();
const bound = new WeakMap();
let calls = null;
let copies = 0;
let held = null;

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
 * Do some work, and write down what it dispatches.
 * @param {() => Promise<void>} work
 * @returns {Promise<{ calls: object[], copies: number }>}  the dispatches, and how many copies and clearings of
 *   buffers were put between them, which are not dispatched again
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
  if (held === null) destroy.call(this);
  else held.push(this);
};

/**
 * Keep buffers that libraries destroy: what was written down binds what they made for a call and gave up with it.
 * @returns {() => void}  what destroys them after all
 */
export function holdBuffers() {
  held = [];
  return () => {
    const given = held;
    held = null;
    for (const buffer of given) buffer.destroy();
  };
}

/** Dispatch again what was written down. */
export function replay(own, list) {
  for (const { pipeline, groups, dispatch, given } of list) {
    setPipeline.call(own, pipeline);
    groups.forEach((group, index) => group && setBindGroup.call(own, index, ...group));
    dispatch.apply(own, given);
  }
}

/** The buffers that a dispatch reads or writes. */
export function buffersOf({ groups }) {
  return [...new Set(groups.flatMap((group) => (group ? bound.get(group[0]) ?? [] : [])))];
}
