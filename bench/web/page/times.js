// Time every library: its own dispatches by one stopwatch, in turn with a copy, and whole calls.

import { copyShader } from "../page/buffers.js";
import { guarded } from "../page/gpu.js";
import { measure, statistics, Stopwatch } from "../page/measure.js";
import { flags } from "../page/statistics.js";
import { openCall, reasonOf } from "./calls.js";
import { bufferWith, readBuffer, submitPass } from "./machine.js";
import { CHECKED_ROWS, drawn, largestError } from "./problems.js";
import { buffersOf, keepBuffers, recorded, replay } from "./recorder.js";

const RULE = { least: 10, most: 40, spread: 0.01, budgetMs: 20000, settleMs: 500 };
const SOFTWARE_RULE = { least: 5, most: 15, spread: 0.03, budgetMs: 15000, settleMs: 100 };
const ROUNDS = 15;
const ITEMSIZE = { float32: 4, float16: 2 };

/**
 * @param {object} machine
 * @param {object[]} libraries
 * @param {{ op: string, dtype: string, rows: number, gpu_rows: number, cols: number, eps: number }} part
 * @returns {Promise<object[]>}  a line for the copy and for each library
 */
export async function times(machine, libraries, part) {
  const { gpu_rows: gpuRows, ...asked } = part;
  const problem = { ...asked, mean: 0, rows: machine.traits.software ? asked.rows : gpuRows };
  const { stored, expected } = drawn(problem);
  const { op, dtype, rows, cols } = problem;
  const lines = [];
  for (const library of libraries) {
    const line = { library: library.name, op, dtype, rows, cols };
    lines.push(line);
    try {
      line.call = await openCall(machine, library, problem, stored);
      await line.call.run();
    } catch (error) {
      line.why = reasonOf(error);
    }
  }
  const ready = lines.filter(({ why }) => !why);
  await wallTimes(machine, ready);
  const release = keepBuffers();
  for (const line of ready) await written(machine, line, problem, expected);
  const copy = await copyLine(machine, stored.x, { op, dtype, rows, cols });
  await gpuTimes(machine, [copy, ...ready.filter(({ calls }) => calls)]);
  for (const line of ready) await checked(machine, line);
  for (const { call } of ready) call.close();
  release();
  return [copy, ...lines].map(({ call, calls, proof, encode, ...line }) => line);
}

/** Time whole calls in turn and wait for each, as an app with data on the device does. */
async function wallTimes({ device }, lines) {
  const samples = lines.map(() => []);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [at, { call }] of lines.entries()) {
      const began = performance.now();
      await call.bare();
      await device.queue.onSubmittedWorkDone();
      samples[at].push((performance.now() - began) * 1e6);
    }
  }
  lines.forEach((line, at) => (line.wall_ns = statistics(samples[at]).median));
}

/** Record a call's dispatches, and find the buffer with its answer. */
async function written({ device }, line, problem, expected) {
  const { calls, copies } = await recorded(line.call.bare);
  Object.assign(line, { dispatches: calls.length, copies });
  if (calls.length === 0) {
    line.why_no_time = "a call dispatches nothing";
    return;
  }
  const answer = await line.call.read();
  const { dtype, rows, cols } = problem;
  line.error = largestError(answer, expected, dtype);
  const row = cols * ITEMSIZE[dtype];
  const size = Math.min(rows, CHECKED_ROWS) * row;
  const head = answer.subarray(0, size);
  for (const buffer of buffersOf(calls.at(-1))) {
    if (buffer.size < rows * row || !(buffer.usage & GPUBufferUsage.COPY_SRC)) continue;
    if (same(await readBuffer(device, buffer, 0, size), head)) {
      Object.assign(line, { calls, proof: { buffer, head, tail: rows * row - size, size } });
      return;
    }
  }
  line.why_no_time = "no buffer of its last dispatch contains the answer";
}

function same(one, other) {
  return one.length === other.length && one.every((byte, at) => byte === other[at]);
}

async function copyLine({ device }, x, about) {
  const [from, to] = [bufferWith(device, x), bufferWith(device, x)];
  const { encode } = await copyShader(device, { sets: [{ x: from, y: to }], copyTarget: "y" });
  return { library: "copy", ...about, encode, dispatches: 1 };
}

async function gpuTimes({ device, traits }, lines) {
  const stopwatch = new Stopwatch(device, traits.software);
  const candidates = lines.map(({ calls, encode }) => ({ encode: encode ?? ((pass) => replay(pass, calls)) }));
  const rule = traits.software ? SOFTWARE_RULE : RULE;
  const work = () => measure(stopwatch, candidates, rule);
  const { found, settled } = await guarded(device, "dispatches were timed", work);
  const [copy] = found.map(({ samples }) => statistics(samples).median);
  found.forEach(({ samples }, at) => {
    const { median, p20, p80 } = statistics(samples);
    const marks = [...flags(samples), ...(settled ? [] : ["unsettled"])];
    const line = { gpu_ns: median, p20_ns: p20, p80_ns: p80, samples: samples.length, flags: marks };
    Object.assign(lines[at], line, { percent_of_copy: 100 * (copy / median), method: stopwatch.method });
  });
  stopwatch.destroy();
}

/** Verify that the timed dispatches still give the answer: overwrite its first and last rows, and replay. */
async function checked({ device }, line) {
  if (!line.proof) return;
  const { buffer, head, tail, size } = line.proof;
  const before = await readBuffer(device, buffer, tail, size);
  const poison = new Uint8Array(Math.floor(size / 4) * 4).fill(0xff);
  for (const offset of [0, tail]) device.queue.writeBuffer(buffer, offset, poison);
  submitPass(device, (pass) => replay(pass, line.calls));
  const after = await Promise.all([0, tail].map((offset) => readBuffer(device, buffer, offset, size)));
  line.replay_right = same(after[0], head) && same(after[1], before);
  if (!line.replay_right) {
    line.why_no_time = "the replay gives another answer";
    for (const name of ["gpu_ns", "p20_ns", "p80_ns", "percent_of_copy"]) delete line[name];
  }
}
