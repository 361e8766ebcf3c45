import { requestDevice } from "../layer-norm/index.js";

/** Request a device with everything that the libraries would request themselves, if the adapter supports it. */
export async function sharedDevice() {
  const adapter = await navigator.gpu?.requestAdapter();
  const wanted = ["shader-f16", "subgroups", "timestamp-query"];
  const requiredLimits = {};
  for (const limit in adapter?.limits) requiredLimits[limit] = adapter.limits[limit];
  return requestDevice({ requiredFeatures: wanted.filter((one) => adapter?.features.has(one)), requiredLimits });
}
