// Pauses in long work.

/**
 * Let a browser draw and handle input. This uses a message, since timers of a hidden page are slow.
 * @returns {Promise<void>}
 */
export function breathe() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
