// The page of a package: checks its shaders on this device, times them, and shows the report.

import { byId, copyText, download } from "./dom.js";
import { Complaint, findAdapter } from "./gpu.js";
import { checkPackage } from "./verify_package.js";
import { View } from "./verify_view.js";

window.webnormStarted = true;
const view = new View();
const query = new URLSearchParams(location.search);

async function run() {
  window.webnormReport = undefined;
  view.begin();
  const host = {
    engine: navigator.userAgent,
    load,
    importCode: () => import(new URL("index.js", document.baseURI).href),
    findAdapter,
    without: query.get("without")?.split(",") ?? [],
    quick: query.has("quick"),
  };
  const report = await checkPackage(host, view);
  view.end(report);
  window.webnormReport = report;
}

async function load(file) {
  let answer;
  try {
    answer = await fetch(file, { cache: "no-cache" });
  } catch (error) {
    throw new Complaint(`${file} did not load: ${error.message}. Check that the server is running.`);
  }
  if (!answer.ok) {
    throw new Complaint(`${file} did not load: status ${answer.status}. Serve the whole folder.`);
  }
  return answer.arrayBuffer();
}

byId("again").addEventListener("click", run);
byId("copy").addEventListener("click", (event) => copyText(reportText(), event.currentTarget));
byId("download").addEventListener("click", () => download("webnorm-report.json", reportText()));
run();

function reportText() {
  return `${JSON.stringify(window.webnormReport, null, 1)}\n`;
}
