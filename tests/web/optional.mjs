// The choice of shaders with optional features in node: node optional.mjs PACKAGE FOLDER
//
// FOLDER/package  the exported op that doubles x
// found           { half, known, unknown, reason, requested, y }

import { adapter, finish, gpu, packageAt } from "./engine.mjs";

const { createDoubled, requestDevice, deviceDescriptor } = await packageAt("package");
const known = await createDoubled(await requestDevice({ gpu }));
const { y } = await known.run({ x: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8) });
const requested = deviceDescriptor(adapter).requiredFeatures;
const unknown = await createDoubled(await adapter.requestDevice(deviceDescriptor(adapter)));
await finish({
  half: adapter.features.has("shader-f16"),
  known: known.shader.name,
  unknown: unknown.shader.name,
  reason: unknown.reason,
  requested,
  y: [...y],
});
