// The largest error of every library, by the mean of x.

import { openCall, reasonOf } from "./calls.js";
import { drawn, largestError } from "./problems.js";

// Beyond these means the storage type has no digits left for a standard deviation of 1.
const MOST_MEAN = { float32: 2 ** 24, float16: 2 ** 11 };

/**
 * @param {object} machine
 * @param {object[]} libraries
 * @param {{ op: string, dtype: string, rows: number, cols: number, eps: number, means: number[] }} part
 * @returns {Promise<object[]>}  a line for each library: its errors by mean, or the reason for none
 */
export async function accuracy(machine, libraries, part) {
  const { means, ...problem } = part;
  const lines = libraries.map(({ name, why }) => ({ library: name, ...about(problem), why, errors: {} }));
  for (const mean of means.filter((one) => one < MOST_MEAN[problem.dtype])) {
    const { stored, expected } = drawn({ ...problem, mean });
    for (const [at, library] of libraries.entries()) {
      const line = lines[at];
      if (line.why) continue;
      try {
        line.errors[mean] = await errorOf(machine, library, { ...problem, mean }, stored, expected);
      } catch (error) {
        line.why = reasonOf(error);
      }
    }
  }
  return lines;
}

const about = ({ op, dtype, rows, cols }) => ({ op, dtype, rows, cols });

async function errorOf(machine, library, problem, stored, expected) {
  const call = await openCall(machine, library, problem, stored);
  try {
    await call.run();
    return largestError(await call.read(), expected, problem.dtype);
  } finally {
    call.close();
  }
}
