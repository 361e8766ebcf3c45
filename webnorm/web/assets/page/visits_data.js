// The data of the page, visits.json: see webnorm/web/collection/visit_summary.py.
// rows and cols are names of the results' format.

/**
 * @typedef {{ kernel: string, pass: number, fail: number, expected: number, skip: number, error: number,
 *   timed: number, flagged: number, percent_of_copy: number | null, gbps: number | null,
 *   max_abs_error: number | null }} Kernel
 * @typedef {{ adapter: string, vendor: string, engine: string, version: string, software: boolean }} Device
 * @typedef {{ op: string, rows: number, cols: number, dtype: string, options: string, distribution: string }} Problem
 * @typedef {{ device: Device, problem: Problem, visits: number, kernels: Kernel[] }} Group
 *   the results of one device on one problem
 */

const NOT_FINITE = { inf: Infinity, nan: NaN };

/** The verdicts, the worst first: the name of their count, and their word. */
export const VERDICTS = [
  ["fail", "FAIL"],
  ["error", "error"],
  ["expected", "expected failure"],
  ["pass", "pass"],
  ["skip", "not run"],
];

/**
 * Return the groups of the data, with their devices and problems in place of the numbers.
 * @param {object} data
 * @returns {Group[]}
 */
export function groupsOf({ devices, problems, columns, groups }) {
  const kernelOf = (values) => {
    const kernel = Object.fromEntries(columns.map((name, at) => [name, values[at]]));
    return { ...kernel, max_abs_error: NOT_FINITE[kernel.max_abs_error] ?? kernel.max_abs_error };
  };
  return groups.map(({ device, problem, visits, kernels }) => ({
    device: devices[device],
    problem: problems[problem],
    visits,
    kernels: kernels.map(kernelOf),
  }));
}

/**
 * Return the larger of two errors, which may be null; NaN is the largest.
 * @param {number | null} one
 * @param {number | null} other
 * @returns {number | null}
 */
export function worse(one, other) {
  if (one === null || other === null) return one ?? other;
  return Math.max(one, other);
}
