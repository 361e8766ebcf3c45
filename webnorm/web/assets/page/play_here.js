// Runs the kernel in the browser that shows the page, and compares it with the native result.

import { byId, element } from "./dom.js";
import { errorText, gbpsText, percentText, problemText, timeText } from "./format.js";
import { browserName } from "./gpu.js";
import { ask } from "./play_link.js";
import { row, table } from "./table.js";

// After this time the worker is terminated, which also ends a shader that never returns.
const LIMIT_MS = 60000;
const COLUMNS = [
  { name: "Where", wide: true, unnamed: true },
  { name: "Problem" },
  { name: "Verdict" },
  { name: "Max error", number: true },
  { name: "Median", number: true },
  { name: "GB/s", number: true },
  { name: "of copy", number: true },
];
const TAGS = { pass: "pass", fail: "fail", error: "fail" };

let thread = null;

/**
 * Run the kernel in this browser and show it next to the native result; an earlier run ends.
 * @param {() => object | undefined} native  returns the timed result of the newest save
 */
export async function runHere(native) {
  end();
  say("Loading the exported shader.");
  let bundles;
  try {
    bundles = await (await ask("POST", "api/here", {})).json();
  } catch (error) {
    return say(`Not run: ${error.message}`);
  }
  say("Starting.");
  thread = new Worker("page/play_worker.js", { type: "module" });
  const timer = setTimeout(() => {
    end();
    say(`Stopped: no answer within ${LIMIT_MS / 1000} s.`);
  }, LIMIT_MS);
  thread.onerror = ({ message }) => done(() => say(`The browser cannot run it: ${message}`));
  thread.onmessage = ({ data: { said, results, adapter, error } }) => {
    if (said) say(said);
    else done(() => (error ? say(error) : show(results, adapter, native())));
  };
  thread.postMessage(bundles);

  function done(then) {
    clearTimeout(timer);
    end();
    then();
  }
}

function end() {
  thread?.terminate();
  thread = null;
}

function say(text) {
  byId("here-status").textContent = text;
}

function show(results, adapter, native) {
  say(`In ${browserName()} on ${adapter}.`);
  const own = results.find(({ op }) => op !== "copy");
  const rows = [line("this browser", own), native && line("natively", native)].filter(Boolean);
  const reason = own.reason && element("p", { class: "small" }, own.reason);
  byId("here").replaceChildren(table(COLUMNS, rows, { bleed: true }), reason || "");
}

function line(where, result) {
  return row(COLUMNS, [
    element("strong", {}, where),
    problemText(result.problem),
    element("span", { class: `tag ${TAGS[result.status] ?? ""}` }, result.status),
    errorText(result.max_abs_error),
    timeText(result.median_ns),
    gbpsText(result.gbps),
    percentText(result.percent_of_copy),
  ]);
}
