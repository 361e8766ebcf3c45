// The results file, in the format of webnorm/lab/results/result.py: `webnorm compare` reads it like a file from bench.

import { adapterName, browserName } from "./gpu.js";
import { SCHEMA } from "./numbers.js";

const LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupStorageSize",
  "maxComputeWorkgroupsPerDimension",
];

/**
 * Return a results file's description of a device. A browser reveals neither driver nor backend; `driver` is its name.
 * @param {GPUDevice} device
 * @param {object} facts  gpu.js's adapterFacts
 * @returns {object}
 */
export function deviceDescription(device, facts) {
  const { subgroup_min_size: least, subgroup_max_size: most } = facts;
  const known = device.features.has("subgroups") && least === most ? least : null;
  return {
    adapter: adapterName(facts),
    vendor: facts.vendor,
    driver: browserName(),
    backend: "WebGPU",
    type: facts.software ? "CPU" : "GPU",
    features: [...device.features].sort(),
    limits: Object.fromEntries(LIMITS.map((name) => [dashed(name), device.limits[name]])),
    engine: navigator.userAgent,
    ...(known ? { subgroup_size: known } : {}),
  };
}

function dashed(name) {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/**
 * Return the report as the file stores it: without null values, and with numbers that are not finite as words.
 * @param {{ webnorm: string, device: object, results: object[] }} report
 * @returns {object}
 */
export function asJson(report) {
  const plain = (_, value) => {
    if (typeof value === "number" && !Number.isFinite(value)) {
      return String(value).toLowerCase().replace("infinity", "inf");
    }
    return value === null ? undefined : value;
  };
  return JSON.parse(JSON.stringify({ schema: SCHEMA, ...report }, plain));
}

/**
 * Return the status in words: "pass", "FAIL", "expected failure", "skip" or "error".
 * @param {{ status: string, expected?: boolean }} result
 * @returns {string}
 */
export function verdictOf(result) {
  if (result.status === "fail") return result.expected ? "expected failure" : "FAIL";
  return result.status;
}
