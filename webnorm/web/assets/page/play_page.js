// The playground's page: shows every snapshot, and sends the user's actions to the server.

import { button, byId, element } from "./dom.js";
import { Texts } from "./play_editor.js";
import { savePackage } from "./play_export.js";
import { offerGuide } from "./play_guide.js";
import { runHere } from "./play_here.js";
import { chosenCopy, offerCopies, offerLessons, showLesson } from "./play_lessons.js";
import { ask, listen, takeToken } from "./play_link.js";
import { showMap } from "./play_map.js";
import { ComparisonPanel } from "./play_merge.js";
import * as results from "./play_results.js";
import { Saver } from "./play_save.js";
import { share } from "./play_share.js";
import { showHistory, showTimes } from "./play_times.js";
import { showTrace } from "./play_trace.js";

const comparison = new ComparisonPanel();
const saver = new Saver((label, text) => comparison.show(label, text));
const texts = new Texts(
  () => {
    saver.typed();
    comparison.refresh();
  },
  () => saver.save(),
);
saver.attach(texts);
comparison.attach(texts);

let remarks = [];
let snapshot = null;
let kernels = [];

/** Return a place as a text; a place in the kernel's own file becomes a link. */
function link(place, text) {
  const { attempt, good } = snapshot;
  const own = place.own ?? place.file === (attempt?.rendered ?? good?.rendered)?.files[0];
  if (own && place.line) return button(text, () => texts.goTo(place), { class: "plain link mono" });
  return element("span", { class: "mono", title: place.file }, text);
}

/** The data of each part as last drawn. Unchanged parts are not redrawn, so they keep their focus and open details. */
const drawn = new Map();

function part(name, data, draw) {
  const key = JSON.stringify(data ?? null);
  if (drawn.get(name) === key) return;
  drawn.set(name, key);
  draw(data);
}

/** Run an action of the user, and show the server's error if it fails. */
async function doing(action) {
  remarks = [];
  try {
    await action();
  } catch (error) {
    remarks = [error.message];
  }
  if (snapshot) showNotices();
  else results.showNotices(remarks);
}

const post = (path, body = {}) => doing(() => ask("POST", `api/${path}`, body));
const trace = (filter) => {
  byId("trace-filter").value = filter;
  return post("trace", { filter });
};

async function traceRow(row) {
  await trace(`row == ${row}u`);
  byId("trace-title").scrollIntoView();
}

function showNotices() {
  part("notices", [...(snapshot.notices ?? []), ...remarks], results.showNotices);
}

/** Return the save whose results are shown: the newest, or the last with results while the newest has none. */
function shownAttempt({ attempt, good }) {
  return attempt?.shapes?.length || !good ? attempt : good;
}

function showHead({ file, attempt, working }) {
  const [state, verdict, detail] = results.headline(attempt, working);
  document.body.dataset.state = state;
  byId("verdict").textContent = verdict;
  byId("status").textContent = detail;
  byId("name").textContent = file.name ?? "";
  byId("op").textContent = file.op ?? "";
  document.title = `${verdict}: ${file.name}`;
}

function showAttempt({ attempt, good }) {
  const shown = shownAttempt({ attempt, good });
  const stale = Boolean(shown && attempt && shown.number !== attempt.number);
  byId("results").classList.toggle("stale", stale);
  byId("stale").hidden = !stale;
  byId("stale").textContent = stale ? `These results are from save ${shown.number}, the last save that was checked.` : "";
  part("stages", attempt?.stages ?? [], results.showStages);
  part("mistakes", attempt?.mistakes ?? [], (mistakes) => results.showMistakes(mistakes, link));
  // Places in another text than the editor's last would be wrong. Until then the underlines move with the text.
  if (attempt?.hash === saver.base) {
    part("squiggles", [attempt.number, attempt.mistakes], () => texts.underline(attempt.mistakes ?? []));
  } else {
    drawn.delete("squiggles");
  }
  part("rendered", attempt?.rendered ?? shown?.rendered, (rendered) => texts.show(rendered));
  const { shapes, worst, hints, corpus } = shown ?? {};
  part("shapes", { shapes, worst, hints, corpus }, (data) => results.showShapes(data, link));
  part("map", shown?.map, (map) => showMap(map, traceRow));
  part("times", shown?.times, showTimes);
  part("cost", shown?.cost, results.showCost);
  const tracing = shown?.stages?.find(({ name }) => name === "trace");
  part("trace", [shown?.trace, tracing?.note], ([traced, note]) => showTrace(traced, note, link));
}

/** Show a setting, except in the field that the user is typing in. */
function fill(id, value) {
  const field = byId(id);
  if (field !== document.activeElement) field.value = value;
}

function showSettings(settings) {
  byId("auto-run").checked = settings.run ?? true;
  byId("auto-time").checked = settings.time ?? true;
  fill("dtype", settings.dtype ?? "float32");
  fill("options", (settings.options ?? []).join(" "));
  const constants = Object.entries(settings.constants ?? {});
  fill("constants", constants.map(([name, value]) => `${name}=${value}`).join(" "));
  const [mean, spread] = settings.x ?? ["", ""];
  fill("x-mean", mean);
  fill("x-spread", spread);
}

function showTracing(filter) {
  byId("trace-filter").value ||= filter ?? "";
}

function show(newest) {
  snapshot = newest;
  saver.take(newest.file, newest.revision);
  showHead(newest);
  showAttempt(newest);
  showNotices();
  const { trace: filter = null, ...settings } = newest.settings ?? {};
  part("settings", settings, showSettings);
  part("tracing", filter, showTracing);
  part("lesson", newest.lesson, showLesson);
  part("history", newest.history ?? [], (history) => {
    showHistory(history, compareWith, restore);
    offerKernels(newest);
  });
  part("device", newest.device, (device) => (byId("footer").textContent = deviceText(device)));
}

function offerKernels({ history = [], file }) {
  // Kernels of the file's op come first.
  const sorted = kernels.toSorted((a, b) => (b.op === file.op) - (a.op === file.op));
  comparison.offer(history, sorted);
  offerCopies(sorted);
}

function deviceText(device) {
  return device ? `On ${[device.adapter, device.backend].filter(Boolean).join(", ")}.` : "";
}

function compareWith(attempt) {
  return doing(async () => comparison.show(`Save ${attempt.number}`, await comparison.source(attempt)));
}

function restore(attempt) {
  return doing(async () => texts.replace(await comparison.source(attempt), true));
}

/** Return the settings from the form. */
function settings() {
  const words = (id) => byId(id).value.split(/[\s,]+/).filter(Boolean);
  const constants = words("constants").map((word) => {
    const [name, value = ""] = word.split("=");
    if (!value) throw new Error(`Constants contains ${word}; expected NAME=VALUE, such as threads_per_row=8`);
    return [name, { true: true, false: false }[value] ?? Number(value)];
  });
  return {
    run: byId("auto-run").checked,
    time: byId("auto-time").checked,
    dtype: byId("dtype").value,
    options: words("options"),
    constants: Object.fromEntries(constants),
  };
}

/** Return the mean and the spread that the user chose for another x, or null. */
function chosenX() {
  const [mean, spread] = [byId("x-mean").value, byId("x-spread").value];
  return mean === "" ? null : [Number(mean), Number(spread || 1)];
}

function handle() {
  const onSubmit = (id, action) =>
    byId(id).addEventListener("submit", (event) => {
      event.preventDefault();
      action();
    });
  offerGuide(doing);
  onSubmit("settings", () => doing(() => ask("POST", "api/settings", settings())));
  onSubmit("x-form", () => post("settings", { x: chosenX() }));
  onSubmit("trace-form", () => trace(byId("trace-filter").value));
  byId("share").addEventListener("click", () => doing(() => share(snapshot)));
  byId("run-here").addEventListener("click", () =>
    doing(async () => {
      await saver.save();
      await runHere(() => snapshot?.attempt?.times?.find(({ name }) => name === "attempt")?.result);
    }),
  );
  onSubmit("lesson-form", async () => {
    await saver.save();
    post("lesson", { name: byId("lesson-name").value });
  });
  byId("lesson-end").addEventListener("click", () => {
    // The button becomes disabled and would lose the keyboard focus.
    byId("lesson-name").focus();
    post("lesson", { name: null });
  });
  byId("run").addEventListener("click", async () => {
    await saver.save();
    post("run");
  });
  onSubmit("copy-form", async () => {
    await saver.save();
    post("fork", chosenCopy());
  });
  byId("export").addEventListener("click", () =>
    doing(() => savePackage(snapshot?.file.kernel ?? "kernel", doing)),
  );
}

function connection(connected, why) {
  byId("connection").className = connected ? "tag pass" : "tag fail";
  byId("connection").textContent = connected ? "connected" : "connection lost";
  if (!connected) byId("status").textContent = why;
  else if (snapshot) saver.again();
}

async function begin() {
  window.webnormStarted = true;
  if (!takeToken()) {
    connection(false, "The key is missing. Open the full address that webnorm play printed; it contains the key.");
    return;
  }
  handle();
  listen(show, connection);
  await doing(async () => {
    kernels = await (await ask("GET", "api/kernels")).json();
    offerKernels(snapshot ?? { file: {} });
    offerLessons(await (await ask("GET", "api/lessons")).json());
    if (snapshot) showLesson(snapshot.lesson);
  });
}

begin();
