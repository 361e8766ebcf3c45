// Runs the shaders of bundles on test vectors: node outputs.mjs PACKAGE FOLDER
//
// FOLDER/runs.json  [{ bundle, shaders, eps?, vectors: [{ file, rows }], keep }]. `bundle` is a JSON
//                   file of { manifest, texts }; `keep` stores the outputs as
//                   FOLDER/kept/RUN.SHADER.VECTOR.TENSOR
// found             [{ run, shader, vector, ok, reason, encoded }], or { run, shader, skipped } for a shader
//                   that no device here can run. `encoded` is null, or how `encode` differed from `run`

import {
  adapter,
  computed,
  finish,
  inputsOf,
  json,
  offerGpu,
  open,
  put,
  runtime,
  sameBytes,
  verdictOn,
  view,
} from "./engine.mjs";

offerGpu();
const runs = json("runs.json");
const found = [];
const devices = { bare: await open({}), full: null };

// A device with every feature that any of the bundles can use.
const bundles = runs.map(({ bundle }) => json(bundle));
devices.full = await open(
  runtime.descriptorFor({ shaders: bundles.flatMap(({ manifest }) => manifest.shaders) }, adapter),
);

async function encodedDiffers(device, norm, arrays, rows, outputs, offset) {
  const { outputs: encoded, hit } = await computed(device, norm, arrays, rows, { offset });
  if (hit.length) return `the guards of ${hit.join(", ")} were hit`;
  return sameBytes(outputs, encoded) ? null : "encode gave other outputs than run";
}

async function tryShader(run, { eps, vectors, keep }, { name: shader, features, cols }) {
  const { manifest, texts } = bundles[run];
  const device = features.length ? devices.full : devices.bare;
  let norm;
  try {
    norm = await runtime.createNorm(device, manifest, texts, { cols, shader, eps });
  } catch (error) {
    return found.push({ run, shader, skipped: error.message });
  }
  const tryVector = async ({ file, rows }, vector) => {
    const arrays = inputsOf(file);
    const outputs = await norm.run(arrays);
    const { ok, reason } = verdictOn(norm, manifest, arrays, outputs, rows, { eps });
    // Use another offset each time, so that a wrongly reused bind group is noticed.
    const encoded = await encodedDiffers(device, norm, arrays, rows, outputs, 256 * vector);
    found.push({ run, shader, vector, ok, reason, encoded });
    for (const [name, array] of keep ? Object.entries(outputs) : []) {
      put(`kept/${run}.${shader}.${vector}.${name}`, view(array));
    }
  };
  // Start all calls at once, since each answer takes several turns.
  await Promise.all(vectors.map(tryVector));
  return norm.destroy();
}

for (const [run, one] of runs.entries()) {
  const { shaders } = bundles[run].manifest;
  const wanted = shaders.filter(({ name }) => one.shaders.includes(name));
  await Promise.all(wanted.map((shader) => tryShader(run, one, shader)));
}
await finish(found);
