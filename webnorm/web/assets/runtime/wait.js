// Waiting for work of a device.

// These look for finished work every 100 ms, and with every submission.
const POLLING = /\b(Firefox|Deno)\//;

/**
 * Wait for work that was submitted, such as a mapping. Where the host only polls for finished work, empty submissions
 * make it look every few milliseconds.
 */
export async function finished(device, work) {
  if (!POLLING.test(globalThis.navigator?.userAgent)) return work;
  let waiting = true;
  const end = work.finally(() => (waiting = false));
  while (waiting) {
    await Promise.race([end, new Promise((done) => setTimeout(done, 1))]);
    if (waiting) device.queue.submit([]);
  }
  return end;
}
