// Starting points for the editor, and lessons along the ladder with the state of their goals.

import { byId, element } from "./dom.js";

const WORDS = { true: "met", false: "not met" };

/**
 * Offer the lessons.
 * @param {{ name: string, title: string }[]} lessons
 */
export function offerLessons(lessons) {
  const options = lessons.map(({ name, title }, at) => element("option", { value: name }, `${at + 1}. ${title}`));
  byId("lesson-name").replaceChildren(...options);
}

/**
 * Offer copies of built-in kernels.
 * @param {{ op: string, kernel: string, summary: string }[]} kernels
 */
export function offerCopies(kernels) {
  const chosen = byId("built-in").value;
  const options = kernels.map((one) =>
    element("option", { value: `${one.op}/${one.kernel}` }, `${one.op} ${one.kernel}: ${one.summary}`),
  );
  byId("built-in").replaceChildren(...options);
  if (chosen) byId("built-in").value = chosen;
}

/** Return the built-in kernel to copy. */
export function chosenCopy() {
  const [op, kernel] = byId("built-in").value.split("/");
  return { op, kernel };
}

/**
 * Show the current lesson, or none.
 * @param {{ name: string, title: string, text: string, passed: boolean,
 *   marks: { text: string, met?: boolean }[] } | null | undefined} lesson
 */
export function showLesson(lesson) {
  byId("lesson-end").disabled = !lesson;
  byId("lesson").hidden = !lesson;
  if (!lesson) return;
  const names = byId("lesson-name");
  names.value = lesson.name;
  // Preselect the next lesson.
  if (lesson.passed) names.selectedIndex = Math.min(names.selectedIndex + 1, names.length - 1);
  byId("lesson").replaceChildren(
    element("h3", {}, lesson.title),
    element("p", {}, lesson.text),
    element("ul", { class: "marks" }, ...lesson.marks.map(mark)),
    element("p", { role: "status" }, lesson.passed && element("strong", {}, "Done. Press Begin for the next lesson.")),
  );
}

function mark({ text, met }) {
  const word = WORDS[met] ?? "not known yet";
  const kind = met === true ? "pass" : met === false ? "fail" : "";
  return element("li", {}, element("span", { class: `tag ${kind}` }, word), ` ${text}`);
}
