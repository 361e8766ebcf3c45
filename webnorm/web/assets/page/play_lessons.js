// The ladder as lessons: what is asked, and how far the newest save does it.

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
 * Show the lesson that is under way, or none.
 * @param {{ name: string, title: string, text: string, passed: boolean,
 *   marks: { text: string, met?: boolean }[] } | null | undefined} lesson
 */
export function showLesson(lesson) {
  byId("lesson-end").disabled = !lesson;
  byId("lesson").hidden = !lesson;
  if (!lesson) return;
  byId("lesson-name").value = lesson.name;
  byId("lesson").replaceChildren(
    element("h3", {}, lesson.title),
    element("p", {}, lesson.text),
    element("ul", { class: "marks" }, ...lesson.marks.map(mark)),
    element("p", { role: "status" }, lesson.passed && element("strong", {}, "Done: go on to the next.")),
  );
}

function mark({ text, met }) {
  const word = WORDS[met] ?? "not known yet";
  const kind = met === true ? "pass" : met === false ? "fail" : "";
  return element("li", {}, element("span", { class: `tag ${kind}` }, word), ` ${text}`);
}
