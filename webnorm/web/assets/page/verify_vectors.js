// Runs a check of a package, reads the package's code and test vectors, and compares the outputs of its norms with the vectors.
// rows and cols are names of the manifest's format.

import { ARRAYS, itemsize } from "../runtime.js";
import { answersOf, problemOf } from "./answers.js";
import { Complaint, within } from "./gpu.js";
import { decode, readSafetensors } from "./storage.js";
import { assess, tolerance, verdictOn } from "./verdicts.js";

// The expected outputs in the package are rounded to float32. A larger difference means that this code is wrong.
const EXPECTED_TOLERANCE = 1e-6;

/**
 * Run a check that fills a report, and return the report. A reason why nothing could be checked is its `error`.
 * @param {object} report
 * @param {(opened: { device?: GPUDevice }) => Promise<void>} check  sets the device to destroy afterwards
 * @returns {Promise<object>}
 */
export async function filled(report, check) {
  const began = performance.now();
  const opened = {};
  try {
    await check(opened);
  } catch (error) {
    if (!(error instanceof Complaint)) console.error(error);
    report.error = error.message;
  }
  opened.device?.destroy();
  report.seconds = Number(((performance.now() - began) / 1000).toFixed(2));
  return report;
}

/**
 * Import the code of a package.
 * @param {{ importCode: () => Promise<object> }} host
 * @returns {Promise<object>}
 */
export async function importCode(host) {
  try {
    return await host.importCode();
  } catch (error) {
    throw new Complaint(
      `index.js did not load (${error.message}). Keep the whole folder as webnorm export wrote it.`,
    );
  }
}

/**
 * Read a JSON file of a package.
 * @param {{ load: (file: string) => Promise<ArrayBuffer> }} host
 * @param {string} file
 * @returns {Promise<object>}
 */
export async function readJson(host, file) {
  return JSON.parse(new TextDecoder().decode(await host.load(file)));
}

/**
 * Throw a Complaint if bytes are not the exported ones.
 * @param {BufferSource} bytes
 * @param {string} sha256
 * @param {string} what
 */
export async function checkDigest(bytes, sha256, what) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (hex !== sha256) {
    throw new Complaint(
      `${what} differs from the exported file: its SHA-256 is not the manifest's. Export again.`,
    );
  }
}

/**
 * Load each vector with its decoded inputs and expected outputs.
 * @param {{ manifest: object, load: (file: string) => Promise<ArrayBuffer> }} loaded
 * @returns {Promise<object[]>}
 */
export async function loadVectors({ manifest, load }) {
  return Promise.all(
    manifest.vectors.map(async (entry) => {
      const file = await load(entry.file);
      await checkDigest(file, entry.sha256, entry.file);
      const { tensors } = readSafetensors(file);
      const inputs = manifest.tensors.filter((tensor) => tensor.access === "read");
      const bytes = Object.fromEntries(inputs.map(({ name }) => [name, tensors[name].bytes]));
      const arrays = Object.fromEntries(inputs.map(({ name, dtype }) => [name, decode(bytes[name], dtype)]));
      if (manifest.reference === "vectors") return { ...entry, bytes, arrays, answers: recorded(manifest, tensors) };
      const problem = problemOf(manifest, entry.rows, entry.cols);
      const answers = answersOf(arrays, problem);
      for (const [name, answer] of Object.entries(answers)) {
        checkExpected(entry, name, answer, decode(tensors[`expected.${name}`].bytes, "float32"));
      }
      return { ...entry, problem, bytes, arrays, answers };
    }),
  );
}

/** Return the expected outputs stored in a vector, for an op that JavaScript does not compute. */
function recorded(manifest, tensors) {
  const written = manifest.tensors.filter((tensor) => tensor.access === "write");
  const answer = ({ name }) => {
    const { shape, bytes } = tensors[`expected.${name}`];
    const numbers = (kind) => decode(tensors[`${kind}.${name}`].bytes, "float32");
    const value = decode(bytes, "float64");
    return { shape, value, error_scale: numbers("allowed"), mean_error_scale: numbers("per_term") };
  };
  return Object.fromEntries(written.map((tensor) => [tensor.name, answer(tensor)]));
}

/** Compare the float64 results of JavaScript with Python's results. */
function checkExpected(entry, name, { value, error_scale }, expected) {
  const wrong = value.findIndex((here, i) => {
    const off = Math.abs(Math.fround(here) - expected[i]);
    const same =
      Object.is(Math.fround(here), expected[i]) || off <= EXPECTED_TOLERANCE * (error_scale[i] + Math.abs(here));
    return !same;
  });
  if (wrong >= 0) {
    throw new Complaint(
      `JavaScript and Python disagree on ${name}[${wrong}] of ${entry.file}: ${value[wrong]} in JavaScript, ` +
        `${expected[wrong]} in Python. This is a bug of webnorm, not of the GPU; please report it.`,
    );
  }
}

/**
 * Return the verdict on several vectors and their largest errors: "skip" if none of them could be compared.
 * @param {object[]} vectors
 * @returns {{ verdict: string, max_abs_error: number | null, allowed: number | null, max_rel_error: number | null }}
 */
export function together(vectors) {
  const verdicts = vectors.map((vector) => vector.verdict);
  const compared = verdicts.includes("pass") ? "pass" : "skip";
  const max_abs_error = largest(vectors, "max_abs_error");
  return {
    verdict: !verdicts.length || verdicts.includes("fail") ? "fail" : compared,
    max_abs_error,
    allowed: vectors.find((one) => one.max_abs_error === max_abs_error)?.allowed ?? null,
    max_rel_error: largest(vectors, "max_rel_error"),
  };
}

function largest(vectors, key) {
  const known = vectors.map((vector) => vector[key]).filter((error) => error !== null);
  return known.length ? Math.max(...known) : null;
}

/**
 * Run a norm on a vector, and compare the outputs with the expected ones.
 * @param {object | null} norm  null if it could not be created
 * @param {string | null} failure  the reason
 * @param {object} vector
 * @param {object} shader  the shader of the norm
 * @param {object} manifest
 * @param {GPUDevice} device
 * @returns {Promise<object>}
 */
export async function checkVector(norm, failure, vector, shader, manifest, device) {
  const failed = (reason) => ({
    name: vector.name,
    verdict: "fail",
    max_abs_error: null,
    allowed: null,
    max_rel_error: null,
    reason,
  });
  if (failure !== null) return failed(failure);
  let outputs;
  try {
    const typed = Object.fromEntries(
      manifest.tensors
        .filter((tensor) => tensor.access === "read")
        .map((tensor) => [tensor.name, typedArray(vector.bytes[tensor.name], tensor.dtype)]),
    );
    outputs = await within(norm.run(typed), `running ${shader.name} on ${vector.name}`, device);
  } catch (error) {
    if (error instanceof Complaint) throw error;
    return failed(error.message);
  }
  const written = manifest.tensors.filter((tensor) => tensor.access === "write");
  const got = Object.fromEntries(written.map(({ name, dtype }) => [name, decode(outputs[name], dtype)]));
  // y is checked against the norm of the rounded h that the shader wrote.
  const fed = manifest.reference !== "vectors" && got.h;
  const answers = fed ? answersOf({ ...vector.arrays, h: got.h }, vector.problem) : vector.answers;
  const found = assess(got, answers, manifest, tolerance(shader, manifest, vector.rows));
  const { max_abs_error, allowed, max_rel_error } = found;
  const reason = found.reason ?? found.not_compared;
  return { name: vector.name, verdict: verdictOn(found), max_abs_error, allowed, max_rel_error, reason };
}

function typedArray(bytes, dtype) {
  return new ARRAYS[dtype](bytes.buffer, bytes.byteOffset, bytes.byteLength / itemsize(dtype));
}
