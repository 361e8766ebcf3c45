// Try each ability of each library: the result of a call, or the reason why it fails.

import { dispatchesOf, openCall, reasonOf } from "./calls.js";
import { PROBES } from "./probes.js";
import { drawn } from "./problems.js";

const DTYPES = ["float16", "bfloat16"];

/**
 * @param {object} machine
 * @param {object[]} libraries
 * @param {{ cols: number, rows: number, eps: number }} part
 * @returns {Promise<object[]>}  a line for each library and ability: `can`, and the result or reason as `said`
 */
export async function abilities(machine, libraries, part, host) {
  const lines = [];
  for (const library of libraries) {
    const tried = {
      RMSNorm: () => norm(machine, library, { ...part, op: "rms_norm", dtype: "float32" }),
      ...Object.fromEntries(
        DTYPES.map((dtype) => [dtype, () => norm(machine, library, { ...part, op: "layer_norm", dtype })]),
      ),
      ...Object.fromEntries(
        Object.entries(PROBES[library.module] ?? {}).map(([name, probe]) => [name, () => probe({ host, machine }, library, part)]),
      ),
    };
    for (const [ability, attempt] of Object.entries(tried)) {
      lines.push({ library: library.name, ability, ...(await outcome(attempt)) });
    }
  }
  return lines;
}

async function outcome(attempt) {
  try {
    return { can: true, said: await attempt() };
  } catch (error) {
    return { can: false, said: reasonOf(error) };
  }
}

/** Run a norm once, and count the dispatches of a call. */
async function norm(machine, library, problem) {
  const { stored } = drawn({ ...problem, mean: 0 });
  const call = await openCall(machine, library, problem, stored);
  try {
    await call.run();
    return await dispatchesOf(call.bare);
  } finally {
    call.close();
  }
}
