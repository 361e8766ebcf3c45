// Sending results to the person who exported the page: only the shown text, and only after confirmation.
// A lab contains this file only if it was exported with a URL.

import { allow, allowed, button, byId, element } from "./dom.js";
import { announce } from "./lab_share.js";

const LIMIT_MS = 30000;
// The fields that are sent; webnorm/web/collection/collector.py has the schema. Reasons, which contain drivers' words,
// and everything else that could identify a single device are left out.
const OF_A_RESULT = [
  ...["op", "kernel", "constants", "problem", "status", "expected", "max_abs_error", "max_rel_error"],
  ...["median_ns", "p20_ns", "p80_ns", "samples_ns", "dispatches_per_sample", "timing_method", "cache"],
  ...["bytes", "gbps", "percent_of_copy", "flags"],
];
const OF_A_DEVICE = ["adapter", "vendor", "driver", "backend", "type", "subgroup_size"];

/**
 * Add a button that shows the data to be sent, and their destination.
 * @param {string} url
 * @param {() => object} report  window.webnormReport at that moment
 */
export function offer(url, report) {
  const dialog = dialogFor(url);
  document.body.append(dialog);
  const open = () => allowed("submit") && ask(dialog, url, textOf(report()));
  byId("download").after(button("Submit…", open, { id: "submit", "aria-disabled": "true" }));
}

/**
 * Return the text of a report exactly as it is sent.
 * @param {object} report
 * @returns {string}
 */
export function textOf({ schema, webnorm, device, results }) {
  const sent = {
    schema,
    webnorm,
    device: { ...picked(device, OF_A_DEVICE), driver: browserOf(device) },
    results: results.map((result) => picked(result, OF_A_RESULT)),
  };
  // Lists of numbers take a line each.
  const numbers = /\[\s*(-?\d[^[\]{}"]*?)\s*\]/g;
  return JSON.stringify(sent, null, 1).replace(numbers, (_, list) => `[${list.replace(/\s+/g, " ")}]`);
}

function picked(from, names) {
  return Object.fromEntries(names.filter((name) => name in from).map((name) => [name, from[name]]));
}

/** Return the browser's name and version. An unknown browser is not named: its driver is its full user agent. */
function browserOf({ driver }) {
  return driver === navigator.userAgent ? "another browser" : driver;
}

function dialogFor(url) {
  return element(
    "dialog",
    { id: "submission", "aria-labelledby": "submission-title" },
    element("h2", { id: "submission-title" }, "Send these results?"),
    element("p", {}, "They go to ", element("code", { id: "submission-url" }, url), "."),
    element(
      "p",
      { class: "muted small" },
      "The page sends the text below and no cookies. As with any request, the server can see your network address, " +
        "your browser, and the site of this page. webnorm's collector keeps none of these.",
    ),
    element("pre", { class: "source", id: "submission-text", tabindex: 0, "aria-label": "The text to send" }),
    element("p", { id: "submission-status", role: "status" }),
    element(
      "div",
      { class: "buttons" },
      element("button", { type: "button", id: "send", class: "primary" }, "Send this"),
      element("button", { type: "button", id: "send-not" }, "Do not send"),
    ),
  );
}

function ask(dialog, url, text) {
  const [send, not] = ["send", "send-not"].map(byId);
  byId("submission-text").textContent = text;
  byId("submission-status").textContent = "Nothing has been sent yet.";
  not.textContent = "Do not send";
  allow("send", true);
  not.onclick = () => dialog.close();
  send.onclick = async () => {
    if (!allowed("send")) return;
    allow("send", false);
    byId("submission-status").textContent = "Sending.";
    const { arrived, message } = await sent(url, text);
    byId("submission-status").textContent = message;
    announce(message);
    not.textContent = "Close";
    allow("send", !arrived);
  };
  dialog.showModal();
}

/** Send a text; return whether the server accepted it, and its answer in one line. */
async function sent(url, text) {
  try {
    const answer = await fetch(url, {
      method: "POST",
      mode: "cors",
      credentials: "omit",
      referrerPolicy: "no-referrer",
      redirect: "error",
      cache: "no-store",
      headers: { "Content-Type": "application/json" },
      body: text,
      signal: AbortSignal.timeout(LIMIT_MS),
    });
    const said = await textIn(answer);
    const what = answer.ok ? "Sent" : "Not accepted";
    return { arrived: answer.ok, message: `${what}; the server's answer is ${answer.status}${said && `: ${said}`}.` };
  } catch (error) {
    const late =
      error.name === "TimeoutError" ? `there was no answer within ${LIMIT_MS / 1000} s` : error.message;
    return {
      arrived: false,
      message: `Not sent: ${late}. Check that the collector is running and accepts posts from this page.`,
    };
  }
}

async function textIn(answer) {
  // The collector's answers have had this key since the first lab, so it stays.
  const { told: message, error } = await answer.json().catch(() => ({}));
  return String(message ?? error ?? "").slice(0, 300);
}
