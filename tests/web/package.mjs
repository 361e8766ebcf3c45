// Uses a package as a page does: node package.mjs PACKAGE FOLDER
//
// FOLDER/package  a package from `webnorm export`
// found           { exports, chosen: { COLS: { described, bare } },
//                   vectors: [{ on, name, reason, expected }] }:
//                 the shaders chosen on a device with the package's descriptor and on one without features,
//                 the verdict, and the first output whose expected values differ between file and page

import {
  adapter,
  bytesOf,
  finish,
  inputsOf,
  json,
  open,
  packageAt,
  reference,
  storage,
  verdictOn,
} from "./engine.mjs";

const { manifest, create, deviceDescriptor, ...others } = await packageAt("package");
const whole = json("package/manifest.json");
const devices = { described: await open(deviceDescriptor(adapter)), bare: await open({}) };

/** Compare a file's expected outputs with the page's: null, or the name of the first that differs. */
function otherAnswers(file, arrays, rows, cols, outputs) {
  const { tensors } = storage.readSafetensors(new Uint8Array(bytesOf(file)).buffer);
  const decode = (dtypes) => (all) =>
    Object.fromEntries(
      Object.entries(all).map(([name, array]) => [name, storage.decode(array, dtypes[name])]),
    );
  const decoded = decode(Object.fromEntries(manifest.tensors.map(({ name, dtype }) => [name, dtype])));
  const answers = reference.answersOf(decoded(arrays), reference.problemOf(manifest, rows, cols));
  for (const name of Object.keys(outputs)) {
    const { bytes, shape } = tensors[`expected.${name}`];
    const expected = new Float32Array(bytes.slice().buffer);
    const { value } = answers[name];
    const close = (a, b) => Object.is(a, b) || a === b || Math.abs(a - b) <= 2 ** -22 * Math.abs(b);
    const same = expected.every(
      (one, at) => close(one, Math.fround(value[at])) || Math.abs(one - value[at]) < 1e-9,
    );
    if (!same || String(shape) !== String(answers[name].shape)) return name;
  }
  return null;
}

const chosen = {};
const vectors = [];
for (const cols of manifest.cols) {
  chosen[cols] = {};
  for (const [on, device] of Object.entries(devices)) {
    const norm = await create(device, { cols });
    chosen[cols][on] = norm.shader.name;
    for (const { name, file, rows } of whole.vectors.filter((one) => one.cols === cols)) {
      const arrays = inputsOf(`package/${file}`);
      const outputs = await norm.run(arrays);
      const { reason } = verdictOn(norm, whole, arrays, outputs, rows);
      const expected = otherAnswers(`package/${file}`, arrays, rows, cols, outputs);
      vectors.push({ on, name, reason, expected });
    }
  }
}
const exports = ["manifest", "create", "deviceDescriptor", ...Object.keys(others)].sort();
await finish({ exports, chosen, vectors });
