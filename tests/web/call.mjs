// Calls exports of the modules in DIR/page, one after another: node call.mjs DIR
//
// DIR/calls.json    [["module", "name", ...arguments]]. { at, bytes, dtype } among the arguments is an array
//                   in DIR/calls.bin, decoded; its bytes where dtype is null, its ArrayBuffer for "buffer".
// DIR/results.json  what each gave, { error } where it threw. An array is { at, count } in DIR/results.bin, in
//                   float64; NaN and infinities are strings.

import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const folder = resolve(process.argv[2]);
const imported = (name) => import(pathToFileURL(join(folder, "page", `${name}.js`)).href);
const modules = {};
for (const name of ["storage", "answers", "verdicts", "statistics", "format"]) modules[name] = await imported(name);

const data = new Uint8Array(readFileSync(join(folder, "calls.bin")));
const calls = JSON.parse(readFileSync(join(folder, "calls.json"), "utf8"), (_, value) => {
  if (!(value instanceof Object) || !Object.hasOwn(value, "at")) return value;
  const bytes = data.subarray(value.at, value.at + value.bytes);
  if (value.dtype === "buffer") return bytes.slice().buffer;
  if (value.dtype === "float64") return new Float64Array(bytes.slice().buffer);
  return value.dtype ? modules.storage.decode(bytes, value.dtype) : bytes;
});

function called([module, name, ...given]) {
  try {
    return modules[module][name](...given);
  } catch (error) {
    return { error: error.message };
  }
}

const arrays = [];
let count = 0;
const results = JSON.stringify(calls.map(called), (_, value) => {
  if (typeof value === "number" && !Number.isFinite(value)) return String(value);
  if (!ArrayBuffer.isView(value)) return value;
  arrays.push(new Uint8Array(Float64Array.from(value).buffer));
  count += value.length;
  return { at: count - value.length, count: value.length };
});
writeFileSync(join(folder, "results.json"), results);
writeFileSync(join(folder, "results.bin"), Buffer.concat(arrays));
