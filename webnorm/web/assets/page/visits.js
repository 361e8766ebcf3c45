// The page of what visitors of a lab sent: loads visits.json and shows the part that the controls select.

import { byId, element } from "./dom.js";
import { counted } from "./format.js";
import { groupsOf } from "./visits_data.js";
import { Filters } from "./visits_filters.js";
import { adapterTable, engineTable } from "./visits_view.js";

window.webnormStarted = true;

const SOFTWARE_NOTE =
  "Software adapters run on the CPU and share it with other programs. Their times rank no GPU, and no engine on a GPU.";

/** Load the data and show them. */
async function start() {
  const data = await load("visits.json");
  describe(data);
  if (data.groups.length === 0) say("There are no results yet.");
  else showWith(data);
  document.body.dataset.state = "shown";
}

/** Show what the address selects, and then what the controls select. */
function showWith(data) {
  const filters = new Filters(groupsOf(data));
  const show = (faults = []) => showSelected(filters, data, faults);
  byId("form").addEventListener("input", () => {
    filters.narrow();
    history.replaceState(null, "", filters.address);
    show();
  });
  byId("form").addEventListener("reset", (event) => {
    event.preventDefault();
    filters.clear();
    history.replaceState(null, "", filters.address);
    show();
  });
  byId("form").addEventListener("submit", (event) => event.preventDefault());
  show(filters.read(location.search));
}

async function load(file) {
  const answer = await fetch(file, { cache: "no-cache" });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

function describe({ visits, left_out: leftOut, received, webnorm }) {
  const days = [...new Set(received.map((time) => time.slice(0, 10)))].join(" to ");
  const damaged = leftOut > 0 ? ` ${counted(leftOut, "visit")} could not be read.` : "";
  const when = days && ` (${days})`;
  byId("about").append(` The page contains ${counted(visits, "visit")}${when}.${damaged}`);
  byId("made").textContent = `Made by webnorm ${webnorm}: webnorm collect --store FILE --page DIR.`;
}

function showSelected(filters, { ladders }, faults) {
  const groups = filters.shown;
  const op = byId("op").value;
  const { kernels: ladder } = ladders.find((one) => one.op === op);
  const software = groups.some(({ device }) => device.software);
  byId("engines").replaceChildren(...(groups.length > 0 ? [engineTable(groups)] : []));
  byId("adapters").replaceChildren(
    ...(software ? [element("p", { class: "banner" }, SOFTWARE_NOTE)] : []),
    ...(groups.length > 0 ? adapterTable(groups, ladder) : []),
  );
  for (const id of ["engines-section", "adapters-section"]) byId(id).hidden = groups.length === 0;
  const found =
    groups.length > 0
      ? `${counted(groups.length, "line")} of adapter, engine and rows.`
      : "No results match. Clear the filters to see all.";
  say([...faults, found].join(" "));
}

function say(text) {
  byId("status").textContent = text;
}

start().catch((error) => {
  document.body.dataset.state = "error";
  say(`visits.json did not load: ${error.message}. Serve the whole folder, and check that the server is running.`);
});
