// Waits for work of simulated devices:
//
//     node wait.mjs FOLDER
//
// Prints one line of JSON that begins with "result: ". For each host it contains the number of empty submissions during
// a wait, and what the wait returned or threw.

import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder] = process.argv.slice(2);
const { finished } = await import(pathToFileURL(resolve(join(folder, "runtime.js"))).href);
const GECKO = "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0";
const CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36";

/** Wait on a host for work that ends at its third submission, or at the end of a timer if it needs none. */
async function on(navigator, { submissions = 0, fails = false } = {}) {
  Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });
  let submitted = 0;
  const work = {};
  work.promise = new Promise((resolve, reject) => Object.assign(work, { resolve, reject }));
  const end = () => (fails ? work.reject(new Error("lost")) : work.resolve("mapped"));
  const device = { queue: { submit: (buffers) => buffers.length === 0 && ++submitted === submissions && end() } };
  if (submissions === 0) setTimeout(end, 20);
  const found = await finished(device, work.promise).catch((error) => error.message);
  return { found, submitted };
}

const found = {
  firefox: await on({ userAgent: GECKO }, { submissions: 3 }),
  deno: await on({ userAgent: "Deno/2.9.6" }, { submissions: 3 }),
  lost: await on({ userAgent: GECKO }, { submissions: 3, fails: true }),
  chrome: await on({ userAgent: CHROME }),
  node: await on(undefined),
};
console.log(`\nresult: ${JSON.stringify(found)}`);
