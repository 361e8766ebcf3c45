// A library's call on one problem, its dispatches and its errors.

import { recorded } from "./recorder.js";

/** Return a number of dispatches in words. */
export function dispatches(count) {
  return `${count} dispatch${count === 1 ? "" : "es"}`;
}

/** Count a call's dispatches, in words; throws an Error if there are none. */
export async function dispatchesOf(call) {
  const { calls } = await recorded(call);
  if (calls.length === 0) throw new Error("it does not run on the GPU: a call dispatches nothing");
  return dispatches(calls.length);
}

/** Return an error's message in one line. */
export function reasonOf(error) {
  const text = String(error?.message ?? error);
  return text.replace(/\s+/g, " ").trim().slice(0, 400) || "it failed without a message";
}

/**
 * Prepare a library's call, with its inputs on the device; errors of the device are thrown.
 * @returns {Promise<{ run: () => Promise<void>, read: () => Promise<Uint8Array>, close: () => void }>}
 */
export async function openCall(machine, library, problem, stored) {
  if (library.why) throw new Error(library.why);
  const { device } = machine;
  const call = await library.prepare(problem, stored);
  return {
    ...call,
    run: async () => {
      // Without this scope a refused command would go unnoticed, and a library would return a buffer's zeros.
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
