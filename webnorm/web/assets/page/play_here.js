// The same kernel in the browser that shows the page, beside what was found natively.

import { byId, element } from "./dom.js";
import { errorText, gbpsText, percentText, problemText, timeText } from "./format.js";
import { browserName } from "./gpu.js";
import { ask } from "./play_link.js";
import { row, table } from "./table.js";

// A shader that never ends ends with its thread.
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
 * Run the kernel here, and show it beside the native result; a run that is under way ends.
 * @param {() => object | undefined} native  the result of the newest save, as its times have it
 */
export async function runHere(native) {
  end();
  say("Asking for the text that browsers get.");
  const bundles = await (await ask("POST", "api/here", {})).json();
  say("Starting.");
  thread = new Worker("page/play_worker.js", { type: "module" });
  const timer = setTimeout(() => {
    end();
    say(`No answer within ${LIMIT_MS / 1000} s: stopped.`);
  }, LIMIT_MS);
  thread.onerror = ({ message }) => done(() => say(`The browser does not run it: ${message}`));
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
  byId("here").replaceChildren(table(COLUMNS, rows, { class: "bleed" }), reason || "");
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
