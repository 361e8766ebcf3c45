// Imports the module whose path is its argument, and writes a line of JSON, opened by "result: ": the `texts`
// that it exports.

import { pathToFileURL } from "node:url";

const { texts } = await import(pathToFileURL(process.argv[2]));
console.log(`\nresult: ${JSON.stringify(texts)}`);
