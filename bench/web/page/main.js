// The record's page: run one part of the plan and report it as `window.webnormReport`.

import { browserName } from "../page/gpu.js";
import { run } from "./run.js";

const foreign = [];
document.addEventListener("securitypolicyviolation", ({ blockedURI }) => foreign.push(blockedURI));

const at = (path) => new URL(`../${path}`, import.meta.url).href;

function script(path) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    element.src = at(path);
    element.onload = resolve;
    element.onerror = () => reject(new Error(`${path} cannot be loaded`));
    document.head.append(element);
  });
}

async function bytes(path) {
  const response = await fetch(at(path));
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

async function report() {
  const plan = JSON.parse(new TextDecoder().decode(await bytes("plan.json")));
  const host = { gpu: navigator.gpu, name: browserName(), plan, script, bytes, at, module: (path) => import(at(path)) };
  const found = await run(host, Number(new URLSearchParams(location.search).get("part")));
  // Resources that the policy allowed but that came from another server.
  const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
  const others = loaded.filter((name) => !name.startsWith(location.origin) && !/^(blob|data):/.test(name));
  return { ...found, outside: [...new Set([...foreign, ...others])] };
}

window.webnormReport = await report().catch((error) => ({ error: String(error.stack ?? error) }));
