// A library's call on one problem, and what became of it.

import { recorded } from "./recorder.js";

/** A count in words. */
export function dispatches(count) {
  return `${count} dispatch${count === 1 ? "" : "es"}`;
}

/** How many dispatches a call is, in words; an Error where it has none. */
export async function dispatchesOf(call) {
  const { calls } = await recorded(call);
  if (calls.length === 0) throw new Error("it does not run on the GPU: a call dispatches nothing");
  return dispatches(calls.length);
}

/** What an error says, in one line. */
export function reasonOf(error) {
  const text = String(error?.message ?? error);
  return text.replace(/\s+/g, " ").trim().slice(0, 400) || "it failed without a word";
}

/**
 * A library's call, with its inputs on the device; the device's complaints are thrown.
 * @returns {Promise<{ run: () => Promise<void>, read: () => Promise<Uint8Array>, close: () => void }>}
 */
export async function openCall(machine, library, problem, stored) {
  if (library.why) throw new Error(library.why);
  const { device } = machine;
  const call = await library.prepare(problem, stored);
  return {
    ...call,
    run: async () => {
      // A refused command is told to nobody else: a library would give the zeros of a new buffer.
      device.pushErrorScope("validation");
      try {
        await call.run();
      } finally {
        const refused = await device.popErrorScope();
        if (refused) throw new Error(refused.message);
      }
    },
    bare: call.run,
  };
}
