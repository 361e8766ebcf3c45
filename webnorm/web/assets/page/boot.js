// A classic script, which also runs where modules do not: it shows why the page's module did not start.
"use strict";

(() => {
  const START_LIMIT_MS = 15000;

  function complain(sentence) {
    if (window.webnormStarted || window.webnormReport) return;
    window.webnormReport = { error: sentence, engine: navigator.userAgent };
    document.body.dataset.state = "error";
    document.getElementById("status").textContent = sentence;
    const verdict = document.getElementById("verdict");
    if (verdict) verdict.textContent = "The page could not start";
  }

  if (location.protocol === "file:") {
    complain(
      "Browsers load no modules from file://. Serve this folder over HTTP, for instance with " +
        "`python3 -m http.server` or `npx serve`, and open the localhost address it prints.",
    );
    return;
  }
  if (!("noModule" in HTMLScriptElement.prototype)) {
    complain("This browser supports neither JavaScript modules nor WebGPU. Use a current browser.");
    return;
  }
  // Errors of script elements do not bubble, so this listens in the capture phase.
  window.addEventListener(
    "error",
    (event) => {
      const source = event.target instanceof HTMLScriptElement ? event.target.src : event.filename;
      const why = event.message || "check that the server serves every file of the folder";
      complain(`${source || "A script of this page"} did not load: ${why}`);
    },
    true,
  );
  setTimeout(
    () => complain("The page's script did not start: its files did not load, or the browser refused them. Reload the page."),
    START_LIMIT_MS,
  );
})();
