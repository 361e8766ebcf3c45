// Bundles entry.js, and lists its packages and licences: node build.mjs FOLDER, in a folder with node_modules.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { build } from "esbuild";

const out = process.argv[2];
const PACKAGE = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//;

const made = await build({
  entryPoints: ["entry.js"],
  outfile: join(out, "editor.js"),
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  charset: "utf8",
  banner: { js: "// CodeMirror and webnorm/web/editor/, made by `make editor`; whose work it is: LICENSES.txt" },
  metafile: true,
});

const names = Object.keys(made.metafile.inputs).map((path) => PACKAGE.exec(path)?.[1]);
const licences = new Map();
for (const name of [...new Set(names)].filter(Boolean).sort()) {
  const folder = join("node_modules", name);
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const text = readFileSync(join(folder, "LICENSE"), "utf8").trim();
  licences.set(text, [...(licences.get(text) ?? []), `${name} ${version}`]);
}
const sections = [...licences].map(([text, packages]) => `${packages.join("\n")}\n\n${text}\n`);
writeFileSync(join(out, "LICENSES.txt"), `What editor.js is made of.\n\n${sections.join(`\n${"-".repeat(72)}\n\n`)}`);

const sources = readdirSync(".").filter((name) => /\.(mjs|js|json)$/.test(name));
const files = [
  ...["editor.js", "LICENSES.txt"].map((name) => [name, join(out, name)]),
  ...sources.sort().map((name) => [`../../editor/${name}`, name]),
];
const lines = files.map(([name, path]) => {
  return `${createHash("sha256").update(readFileSync(path)).digest("hex")}  ${name}\n`;
});
writeFileSync(join(out, "editor.sha256"), lines.join(""));
