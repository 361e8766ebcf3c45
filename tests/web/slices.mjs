// Runs shaders on devices whose limits force many slices: node slices.mjs PACKAGE FOLDER
//
// FOLDER/slices.json  [{ bundle, shader, file, rows, limits, info? }]; `info` replaces the adapter's
// found               [{ equal, whole, split, encoded, over, dispatches }] in the same order: true if slices
//                     give the same outputs as the whole; the reasons of the verdicts, null if right; a
//                     difference of `encode`; the violated limits; dispatches by entry point

import {
  adapter,
  altered,
  finish,
  guarded,
  inputsOf,
  json,
  limited,
  offerGpu,
  open,
  release,
  runtime,
  sameBytes,
  submit,
  verdictOn,
  written,
} from "./engine.mjs";

offerGpu();
const cases = json("slices.json");
const device = await open({ requiredFeatures: ["subgroups"].filter((name) => adapter.features.has(name)) });

/** Wrap a device with other limits; record bindings beyond them in `over`. */
function watched(limits, over, members) {
  const small = limited(device, limits);
  const { minStorageBufferOffsetAlignment: alignment, maxStorageBufferBindingSize: most } = small.limits;
  return altered(small, {
    ...members,
    createBindGroup(descriptor) {
      for (const { binding, resource } of descriptor.entries) {
        const { offset, size, buffer } = resource;
        const fits = binding === 0 || size <= most;
        if (offset % alignment || offset + size > buffer.size || !fits) {
          over.push(`binding ${binding}: ${size} bytes at offset ${offset}`);
        }
      }
      return device.createBindGroup(descriptor);
    },
  });
}

/** Wrap a pass; count dispatches, and record dispatches beyond the limits. */
function counted(pass, { maxComputeWorkgroupsPerDimension: most }, over, dispatches, entryPoints) {
  let entryPoint;
  return altered(pass, {
    setPipeline(pipeline) {
      entryPoint = entryPoints.get(pipeline);
      pass.setPipeline(pipeline);
    },
    dispatchWorkgroups(...grid) {
      dispatches[entryPoint] = (dispatches[entryPoint] ?? 0) + 1;
      if (grid.some((count) => count > most || count < 1))
        over.push(`${entryPoint}: ${grid.join(" x ")} workgroups`);
      pass.dispatchWorkgroups(...grid);
    },
  });
}

async function tried({ bundle, shader, file, rows, limits, info }) {
  const { manifest, texts } = json(bundle);
  const { cols } = manifest.shaders.find(({ name }) => name === shader);
  const arrays = inputsOf(file);
  const over = [];
  const dispatches = {};
  const entryPoints = new WeakMap();
  const compiled = {};
  // Both norms share their pipelines, since compiling takes longest.
  const members = {
    async createComputePipelineAsync(descriptor) {
      const { entryPoint } = descriptor.compute;
      const pipeline = await (compiled[entryPoint] ??= device.createComputePipelineAsync(descriptor));
      entryPoints.set(pipeline, entryPoint);
      return pipeline;
    },
  };
  const options = { cols, shader };
  const whole = await runtime.createNorm(altered(device, members), manifest, texts, options);
  const small = watched(limits, over, members);
  const split = await runtime.createNorm(small, manifest, texts, { ...options, adapterInfo: info });
  const outputs = await whole.run(arrays);
  const pieces = await split.run(arrays);
  const bound = guarded(device, split, arrays, rows, { offset: 512 });
  submit(device, (pass) =>
    split.encode(counted(pass, limits, over, dispatches, entryPoints), { ...bound, rows }),
  );
  const { outputs: encoded, hit } = await written(device, split, bound, rows);
  let differs = hit.length ? `the guards of ${hit.join(", ")} were hit` : null;
  if (!sameBytes(encoded, pieces)) differs ??= "encode gave other outputs than run";
  release(bound);
  whole.destroy();
  split.destroy();
  return {
    equal: sameBytes(outputs, pieces),
    whole: verdictOn(whole, manifest, arrays, outputs, rows).reason,
    split: verdictOn(split, manifest, arrays, pieces, rows).reason,
    encoded: differs,
    over,
    dispatches,
  };
}

await finish(await Promise.all(cases.map(tried)));
