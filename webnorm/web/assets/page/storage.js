// Encoding and decoding of the storage types, and reading of safetensors files.
// Hosts are little-endian, as WebGPU is. Float16Array is not used, since some browsers lack it.

import { ARRAYS, itemsize } from "../runtime.js";
import { INT8_MAXIMUM } from "./numbers.js";

// Binary digits of the fraction of each narrow float; the rest of its layout follows.
const DIGITS = { float16: 10, bfloat16: 7, float8_e4m3fn: 3, float8_e5m2: 2 };
const FLOATS = Object.fromEntries(
  Object.entries(DIGITS).map(([dtype, digits]) => [dtype, layout(dtype, digits)]),
);
const SAFETENSORS = {
  F32: "float32",
  F16: "float16",
  BF16: "bfloat16",
  F8_E4M3: "float8_e4m3fn",
  F8_E5M2: "float8_e5m2",
  I8: "int8",
  U8: "uint8",
  I32: "int32",
  U32: "uint32",
  F64: "float64",
};
// Types of files, including float64, which no shader stores.
const FILE_ARRAYS = { ...ARRAYS, float64: Float64Array };
const WHOLE_NUMBERS = ["uint8", "int32", "uint32"];
// A float64 of this size has no digits after the point: adding it rounds to a whole number, ties to even. The
// factor leaves room for negative numbers.
const WHOLE = 1.5 * 2 ** 52;
const EXPONENT_BIAS = 1023;

// One float64 and the upper half of its bits: sign, 11 bits of exponent, 20 bits of fraction.
const bits = new Float64Array(1);
const upper = new Uint32Array(bits.buffer, 4, 1);

/**
 * Return the layout of a narrow float: the exponent of the `smallest` normal number, the `largest` number, and the code
 * at the `end` of the numbers, which is infinity or already NaN. `nan` is the code to write for NaN. A type that
 * `saturates` stores its largest number instead of infinity.
 */
function layout(dtype, digits) {
  const size = itemsize(dtype);
  const exponents = 2 ** (8 * size - 1 - digits);
  const infinite = !dtype.endsWith("fn");
  const end = infinite ? (exponents - 1) << digits : (exponents << digits) - 1;
  const nan = end | (1 << (digits - 1));
  const saturates = dtype.startsWith("float8");
  const format = { size, digits, smallest: 2 - exponents / 2, end, infinite, nan, saturates };
  return { ...format, largest: valueOf(end - 1, format) };
}

function codesOf(dtype) {
  if (!Object.hasOwn(FILE_ARRAYS, dtype)) {
    throw new Error(`dtype is ${JSON.stringify(dtype)}; expected one of ${Object.keys(ARRAYS).join(", ")}`);
  }
  return FILE_ARRAYS[dtype];
}

/** Round `value` to a storage type, to nearest even, in one step; int8 and float8 saturate. */
export function roundTo(value, dtype) {
  if (dtype === "float32") return Math.fround(value);
  if (WHOLE_NUMBERS.includes(dtype)) return value + WHOLE - WHOLE;
  if (dtype === "int8") return Math.max(-INT8_MAXIMUM, Math.min(INT8_MAXIMUM, value)) + WHOLE - WHOLE;
  return roundToFloat(value, FLOATS[dtype]);
}

function roundToFloat(value, format) {
  bits[0] = value;
  const sign = upper[0] >>> 31 ? -1 : 1;
  const magnitude = Math.abs(value);
  if (!(magnitude < 2 * format.largest)) return magnitude > 0 ? sign * beyond(format) : NaN;
  // The same trick as WHOLE, at the last digit of the type instead of the point.
  const exponent = Math.max(((upper[0] >>> 20) & 0x7ff) - EXPONENT_BIAS, format.smallest);
  bits[0] = 0;
  upper[0] = (exponent - format.digits + 52 + EXPONENT_BIAS) << 20;
  const rounded = magnitude + bits[0] - bits[0];
  return sign * (rounded > format.largest ? beyond(format) : rounded);
}

/**
 * The distance between neighbours of a narrow float type in the power of two that contains `value`.
 * @param {number} value finite
 * @param {string} dtype
 * @returns {number}
 */
export function stepAt(value, dtype) {
  const { smallest, digits } = FLOATS[dtype];
  bits[0] = value;
  return 2 ** (Math.max(((upper[0] >>> 20) & 0x7ff) - EXPONENT_BIAS, smallest) - digits);
}

function beyond(format) {
  return format.saturates ? format.largest : Infinity;
}

function codeOf(value, format) {
  const rounded = roundToFloat(value, format);
  if (Number.isNaN(rounded)) return format.nan;
  bits[0] = rounded;
  const sign = (upper[0] >>> 31) << (8 * format.size - 1);
  const magnitude = Math.abs(rounded);
  if (magnitude === Infinity) return sign | format.end;
  if (magnitude < 2 ** format.smallest) return sign | (magnitude / 2 ** (format.smallest - format.digits));
  const exponent = ((upper[0] >>> 20) & 0x7ff) - EXPONENT_BIAS - format.smallest + 1;
  return sign | (exponent << format.digits) | ((upper[0] & 0xfffff) >>> (20 - format.digits));
}

function valueOf(code, format) {
  const signBit = 1 << (8 * format.size - 1);
  const magnitude = code & (signBit - 1);
  const sign = code & signBit ? -1 : 1;
  if (magnitude >= format.end) return format.infinite && magnitude === format.end ? sign * Infinity : NaN;
  const exponent = magnitude >> format.digits;
  const fraction = (magnitude & ((1 << format.digits) - 1)) / 2 ** format.digits;
  return sign * (exponent ? 1 + fraction : fraction) * 2 ** (Math.max(exponent - 1, 0) + format.smallest);
}

const tables = {};

/** Return the number of every code. */
function tableOf(dtype) {
  const format = FLOATS[dtype];
  const codes = 2 ** (8 * format.size);
  tables[dtype] ??= Float64Array.from({ length: codes }, (_, code) => valueOf(code, format));
  return tables[dtype];
}

/**
 * Decode the numbers in an array or a buffer of bytes.
 * @param {ArrayBuffer | ArrayBufferView} data its bytes are decoded, whatever its type
 * @param {string} dtype
 * @returns {Float64Array}
 */
export function decode(data, dtype) {
  const Codes = codesOf(dtype);
  const { buffer, byteOffset, byteLength } = ArrayBuffer.isView(data) ? data : new Uint8Array(data);
  const size = Codes.BYTES_PER_ELEMENT;
  if (byteLength % size !== 0) throw new Error(`${byteLength} bytes are not a whole number of ${dtype}`);
  const aligned = byteOffset % size === 0;
  const codes = aligned
    ? new Codes(buffer, byteOffset, byteLength / size)
    : new Codes(buffer.slice(byteOffset, byteOffset + byteLength));
  if (!Object.hasOwn(FLOATS, dtype)) return new Float64Array(codes);
  const table = tableOf(dtype);
  const values = new Float64Array(codes.length);
  for (let i = 0; i < codes.length; i++) values[i] = table[codes[i]];
  return values;
}

/**
 * Encode `values` in their storage type: as Float32Array, Int8Array, or the codes of a narrow float in a Uint16Array
 * or Uint8Array.
 * @param {Float64Array} values
 * @param {string} dtype
 */
export function encode(values, dtype) {
  const Codes = codesOf(dtype);
  if (dtype === "float32") return new Float32Array(values);
  const codes = new Codes(values.length);
  const code = dtype === "int8" || WHOLE_NUMBERS.includes(dtype) ? (value) => roundTo(value, dtype) : (value) => codeOf(value, FLOATS[dtype]);
  for (let i = 0; i < values.length; i++) codes[i] = code(values[i]);
  return codes;
}

/**
 * Read a safetensors file: 8 bytes with the header's length, a JSON header, the data without gaps.
 * @param {ArrayBuffer} file
 * @returns {{ metadata: Object,
 *   tensors: Object<string, { dtype: string, shape: number[], bytes: Uint8Array }> }}
 * @throws {Error} for a damaged file, with the reason
 */
export function readSafetensors(file) {
  const damaged = (why) => new Error(`not a whole safetensors file: ${why}`);
  if (file.byteLength < 8) throw damaged(`it has ${file.byteLength} bytes`);
  const length = Number(new DataView(file).getBigUint64(0, true));
  if (length > file.byteLength - 8) {
    throw damaged(`its header needs ${length} bytes, but only ${file.byteLength - 8} follow`);
  }
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(file, 8, length)));
  } catch (error) {
    throw damaged(`its header is not JSON (${error.message})`);
  }
  if (header === null || typeof header !== "object") throw damaged("its header is not an object");
  const { __metadata__: metadata = {}, ...entries } = header;
  const data = file.slice(8 + length);
  const tensors = {};
  let total = 0;
  for (const [name, entry] of Object.entries(entries)) {
    tensors[name] = tensorOf(name, entry, data, damaged);
    total += tensors[name].bytes.length;
  }
  if (total !== data.byteLength) {
    throw damaged(`its tensors need ${total} bytes, but it contains ${data.byteLength}`);
  }
  return { metadata, tensors };
}

function tensorOf(name, entry, data, damaged) {
  const { dtype: code, shape, data_offsets: offsets } = entry ?? {};
  const sizes = (list) => Array.isArray(list) && list.every((n) => Number.isSafeInteger(n) && n >= 0);
  if (!Object.hasOwn(SAFETENSORS, code)) throw damaged(`${name} has the unknown type ${code}`);
  if (!sizes(shape) || !sizes(offsets) || offsets.length !== 2) {
    throw damaged(`the shape or the offsets of ${name} are missing or invalid`);
  }
  const dtype = SAFETENSORS[code];
  const bytes = shape.reduce((product, size) => product * size, codesOf(dtype).BYTES_PER_ELEMENT);
  const [start, end] = offsets;
  if (end - start !== bytes || end > data.byteLength) {
    throw damaged(`${name} needs ${bytes} bytes, but its place is ${start} to ${end} of ${data.byteLength}`);
  }
  // Copy the bytes, since the header's length may leave them unaligned.
  return { dtype, shape, bytes: new Uint8Array(data.slice(start, end)) };
}
