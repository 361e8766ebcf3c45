// Runs the check of a page, again at the press of a button, shows its state, and publishes its report.

import { byId, copyText, download } from "./dom.js";
import { Complaint, findAdapter } from "./gpu.js";

const query = new URLSearchParams(location.search);

/**
 * Run a check and show its report, now and whenever the user wants it again.
 * @param {(host: object, view: object) => Promise<object>} check
 * @param {{ begin: () => void, end: (report: object) => void }} view
 */
export function runPage(check, view) {
  window.webnormStarted = true;

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
    const report = await check(host, view);
    view.end(report);
    window.webnormReport = report;
  }

  byId("again").addEventListener("click", run);
  byId("copy").addEventListener("click", (event) => copyText(reportText(), event.currentTarget));
  byId("download").addEventListener("click", () => download("webnorm-report.json", reportText()));
  run();
}

const BUTTONS = ["again", "copy", "download"];

/** Show that a run begins. */
export function showRunning() {
  document.body.dataset.state = "running";
  for (const id of BUTTONS) byId(id).disabled = true;
  byId("verdict").textContent = "Checking";
  showProgress("Starting.", 0);
}

/**
 * Show the progress of a run.
 * @param {string} text
 * @param {number} [share]  of the step, from 0 to 1
 */
export function showProgress(text, share) {
  byId("status").textContent = text;
  if (share === undefined) byId("progress").removeAttribute("value");
  else byId("progress").value = share;
}

/** Show the verdict of a run, and let the user repeat it or keep its report. */
export function showVerdict(state, headline, detail) {
  document.body.dataset.state = state;
  byId("verdict").textContent = headline;
  byId("status").textContent = detail;
  for (const id of BUTTONS) byId(id).disabled = false;
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

function reportText() {
  return `${JSON.stringify(window.webnormReport, null, 1)}\n`;
}
