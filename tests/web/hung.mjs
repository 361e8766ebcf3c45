// A page's messages about a GPU that hangs, is lost or refuses a device, in each host:
//
//     node hung.mjs FOLDER
//
// Prints one line of JSON that begins with "result: ", with the messages of each host.

import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder] = process.argv.slice(2);
// The time limit is over at once.
globalThis.setTimeout = (call) => void setImmediate(call);
const never = new Promise(() => {});

async function messages(host) {
  // The query makes the module run again.
  const { openDevice, within } = await import(`${pathToFileURL(resolve(join(folder, "page", "gpu.js")))}?${host}`);
  const refusing = {
    features: new Set(),
    requestDevice: async () => {
      throw new TypeError("no more");
    },
  };
  const attempts = {
    hung: () => within(never, "testing"),
    lost: () => within(never, "testing", { lost: Promise.resolve({ message: "gone" }) }),
    refused: () => openDevice(refusing, {}, []),
  };
  const said = {};
  for (const [name, attempt] of Object.entries(attempts)) said[name] = await attempt().catch((error) => error.message);
  return said;
}

const found = { node: await messages("node") };
globalThis.Deno = {};
found.deno = await messages("deno");
delete globalThis.Deno;
globalThis.isSecureContext = true;
found.page = await messages("page");
console.log(`\nresult: ${JSON.stringify(found)}`);
