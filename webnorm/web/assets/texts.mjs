// Imports the module at the path in its argument and prints its export `texts` as a line of JSON that begins with
// "result: ".

import { pathToFileURL } from "node:url";

const { texts } = await import(pathToFileURL(process.argv[2]));
console.log(`\nresult: ${JSON.stringify(texts)}`);
