// Numbers as text, in the same form as the command line shows them.
// rows and cols are names of the manifest's format.

import { ON_BY_DEFAULT } from "./numbers.js";

export const NOTHING = "–";

/**
 * Return a time with three or four digits and its unit.
 * @param {number | null | undefined} nanoseconds
 * @returns {string}
 */
export function timeText(nanoseconds) {
  if (nanoseconds === null || nanoseconds === undefined || !Number.isFinite(nanoseconds)) return NOTHING;
  const units = [
    ["s", 1e9],
    ["ms", 1e6],
    ["µs", 1e3],
  ];
  const [unit, size] = units.find(([, each]) => nanoseconds >= each) ?? ["ns", 1];
  return `${digits(nanoseconds / size)} ${unit}`;
}

/**
 * Return an error with two digits.
 * @param {number | null | undefined} error
 * @returns {string}
 */
export function errorText(error) {
  if (error === null || error === undefined) return NOTHING;
  if (!Number.isFinite(error)) return Number.isNaN(error) ? "NaN" : "inf";
  return error === 0 ? "0" : error.toExponential(1);
}

/**
 * Return GB/s with at most four digits.
 * @param {number | null | undefined} gbps
 * @returns {string}
 */
export function gbpsText(gbps) {
  return Number.isFinite(gbps) ? digits(gbps) : NOTHING;
}

/**
 * Return a share in whole percent.
 * @param {number | null | undefined} percent
 * @returns {string}
 */
export function percentText(percent) {
  return Number.isFinite(percent) ? `${percent.toFixed(0)} %` : NOTHING;
}

/**
 * Return bytes in KiB, MiB or GiB.
 * @param {number} bytes
 * @returns {string}
 */
export function bytesText(bytes) {
  const units = [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ];
  const [unit, size] = units.find(([, each]) => bytes >= each) ?? ["bytes", 1];
  return `${digits(bytes / size)} ${unit}`;
}

/**
 * Return "1 shader" or "2 shaders".
 * @param {number} count
 * @param {string} noun
 * @returns {string}
 */
export function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * Return constants as "a=1 b=2".
 * @param {Record<string, number>} constants
 * @returns {string}
 */
export function constantsText(constants) {
  return Object.entries(constants)
    .map(([name, value]) => `${name}=${Number(value)}`)
    .join(" ");
}

/**
 * Return the options that differ from the defaults, like Python's str(Options): "no bias, residual, out_dtype=int8".
 * @param {Record<string, boolean | number | string>} options
 * @returns {string}
 */
export function optionsText(options) {
  return Object.entries(options)
    .filter(([name, value]) => value !== ON_BY_DEFAULT.includes(name) && value !== 0 && value !== null)
    .map(([name, value]) => (value === true ? name : value === false ? `no ${name}` : `${name}=${value}`))
    .join(", ");
}

function digits(value) {
  return String(Number(value.toPrecision(4)));
}

/**
 * Return a problem as the command line shows it.
 * @param {{ rows: number, cols: number, dtype: string }} problem
 * @returns {string}
 */
export function problemText({ rows, cols, dtype }) {
  return `${rows}x${cols} ${dtype}`;
}
