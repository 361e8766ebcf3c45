// Posts the report of a page, or why the page failed, to webnorm's server, with the errors on its console. The server
// puts this script before all others of the page while `webnorm verify` waits for it; exported folders do not have it.
// The server's answer may be the address of the page to open next.
"use strict";

{
  const address = new URL("report", document.currentScript.src);
  const MOST_ERRORS = 100;
  const errors = [];
  let [report, sent] = [undefined, false];

  function send(failure) {
    if (sent) return;
    sent = true;
    // JSON has no infinity.
    const asText = (_, value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);
    const body = JSON.stringify({ report: report ?? null, failure, errors }, asText);
    fetch(address, { method: "POST", body })
      .then(open)
      .catch((error) => say(error));
  }

  async function open(answer) {
    if (answer.status === 200) location.assign(new URL(await answer.text(), address));
  }

  // Pages publish their report as this property.
  Object.defineProperty(window, "webnormReport", {
    get: () => report,
    set(value) {
      report = value;
      if (value != null) send(null);
    },
  });

  const say = console.error;
  console.error = (...parts) => {
    if (errors.length < MOST_ERRORS) errors.push(parts.map(String).join(" "));
    say.apply(console, parts);
  };

  /** Post an error that the page did not catch, unless boot.js, which hears of it next, reports it. */
  function fail(error, place = "") {
    const [first] = String(error).trim().split("\n");
    const [found = place] = /https?:[^\s)@]+:\d+:\d+/.exec(error?.stack) ?? [];
    setTimeout(() => send(found ? `${first} (${found})` : first));
  }

  window.addEventListener("error", ({ error, message, filename, lineno, colno }) => {
    fail(error ?? message, `${filename}:${lineno}:${colno}`);
  });
  window.addEventListener("unhandledrejection", ({ reason }) => fail(reason));
}
