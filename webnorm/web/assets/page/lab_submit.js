// Sending results to who exported the page: only what is shown, and only when that is confirmed.
// This file is in a lab only where its exporter named a URL.

import { allow, allowed, button, byId, element } from "./dom.js";
import { tell } from "./lab_share.js";

const LIMIT_MS = 30000;
// What is sent of a result and of a device: webnorm/web/collection/collector.py has the form. Reasons are left out, as drivers
// write them, and so is all else that would tell one device from others of its kind.
const OF_A_RESULT = [
  ...["op", "kernel", "constants", "problem", "status", "expected", "max_abs_error", "max_rel_error"],
  ...["median_ns", "p20_ns", "p80_ns", "samples_ns", "dispatches_per_sample", "timing_method", "cache"],
  ...["bytes", "gbps", "percent_of_copy", "flags"],
];
const OF_A_DEVICE = ["adapter", "vendor", "driver", "backend", "type", "subgroup_size"];

/**
 * A button that shows what would be sent of a report, and to whom.
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
 * What is sent of a report, as it is sent.
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

/** The browser's name and version; one that is not known has given all that it says of itself. */
function browserOf({ driver }) {
  return driver === navigator.userAgent ? "another browser" : driver;
}

function dialogFor(url) {
  return element(
    "dialog",
    { id: "submission", "aria-labelledby": "submission-title" },
    element("h2", { id: "submission-title" }, "Send these results?"),
    element("p", {}, "They would go to ", element("code", { id: "submission-url" }, url), "."),
    element(
      "p",
      { class: "muted small" },
      "What is sent is the text below, and no cookies. As with any request a server can see the network address " +
        "that it comes from, which browser asks, and which site the page is on; webnorm's collector keeps none " +
        "of these.",
    ),
    element("pre", { class: "source", id: "submission-text", tabindex: 0, "aria-label": "What is sent" }),
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
    const { arrived, told } = await sent(url, text);
    byId("submission-status").textContent = told;
    tell(told);
    not.textContent = "Close";
    allow("send", !arrived);
  };
  dialog.showModal();
}

/** Whether it arrived, and what the other side said, in one line. */
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
    const said = await saidBy(answer);
    const what = answer.ok ? "Sent" : "Not taken";
    return { arrived: answer.ok, told: `${what}; the answer is ${answer.status}${said && `: ${said}`}.` };
  } catch (error) {
    const late =
      error.name === "TimeoutError" ? `there was no answer within ${LIMIT_MS / 1000} s` : error.message;
    return {
      arrived: false,
      told: `Not sent: ${late}. Is the collector there, and may this page post to it?`,
    };
  }
}

async function saidBy(answer) {
  const { told, error } = await answer.json().catch(() => ({}));
  return String(told ?? error ?? "").slice(0, 300);
}
