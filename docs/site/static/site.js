// What the theme leaves out for people who do not use a mouse, or do not see the page.

const give = (selector, attributes) => {
  for (const element of document.querySelectorAll(selector)) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  }
};

give(".sidebar-drawer", { "aria-label": "All pages" });
give(".toc-drawer", { "aria-label": "On this page" });
give(".caption[role=heading]", { "aria-level": "2" });
// The lines of a signature, which define nothing.
give(".sig > dl", { role: "presentation" });

// What scrolls can be reached by the keyboard.
const reach = () => {
  for (const box of document.querySelectorAll(".highlight pre, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
reach();
addEventListener("resize", reach);

// A page that came from a file may not read others: what the search finds is shown without a piece of each.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
