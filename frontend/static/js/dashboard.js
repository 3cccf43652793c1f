// The grid of a dashboard: puts its panels in their places, folds rows, fills the screen, and asks again when a variable
// is chosen. Which rows are folded, whether the page is alone on the screen, and after how many seconds the next dashboard
// follows there, stands in the address. The key e edits.

for (const panel of document.querySelectorAll("[data-place]")) {
  const [x, y, w, h] = panel.dataset.place.split(" ");
  for (const [name, value] of Object.entries({ x, y, w, h })) panel.style.setProperty(`--${name}`, value);
}
document.querySelector("[data-grid]")?.classList.add("placed");

const parameters = () => new URL(location.href).searchParams;

function remember(name, value) {
  const address = new URL(location.href);
  if (value === null) address.searchParams.delete(name);
  else address.searchParams.set(name, value);
  history.replaceState(null, "", address);
  arrange();
}

const rows = [...document.querySelectorAll("[data-row]")];
const isFolded = (row) => parameters().get("fold")?.split(",").includes(row.dataset.number) ?? row.hasAttribute("data-folded");

/** Hide the panels of folded rows, and move up what stands below them. */
function arrange() {
  const heads = new Set(rows);
  let [head, shift, bottom] = [null, 0, 0];
  const placed = [...document.querySelectorAll("[data-grid]:not(.editing) > [data-place]")].map((panel) => ({ panel, place: panel.dataset.place.split(" ").map(Number) }));
  placed.sort((one, other) => one.place[1] - other.place[1]);
  for (const { panel, place: [, y, , h] } of placed) {
    if (heads.has(panel)) {
      shift += head && isFolded(head) ? Math.max(bottom - Number(head.dataset.place.split(" ")[1]) - 1, 0) : 0;
      [head, bottom] = [panel, y + 1];
      panel.querySelector("button").setAttribute("aria-expanded", String(!isFolded(panel)));
    }
    bottom = Math.max(bottom, y + h);
    panel.hidden = !heads.has(panel) && head !== null && isFolded(head);
    panel.style.setProperty("--y", y - shift);
  }
  document.documentElement.classList.toggle("kiosk", parameters().has("kiosk"));
}

for (const row of rows) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: row.textContent });
  button.addEventListener("click", () => {
    const folded = rows.filter((each) => isFolded(each) !== (each === row));
    remember("fold", folded.map((each) => each.dataset.number).join(","));
  });
  row.replaceChildren(button);
}
arrange();

/** Fill the screen with the panels alone, as on a screen on a wall; Escape ends it. */
async function fillScreen() {
  remember("kiosk", "1");
  takeTurns();
  await document.documentElement.requestFullscreen?.().catch(() => { /* the page is alone in its window, at least */ });
}
document.querySelector("[data-kiosk]")?.addEventListener("click", fillScreen);
document.querySelector("[data-kiosk-end]")?.addEventListener("click", () => { if (document.fullscreenElement) document.exitFullscreen(); remember("kiosk", null); });
document.addEventListener("fullscreenchange", () => document.fullscreenElement || remember("kiosk", null));
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && parameters().has("kiosk") && !event.defaultPrevented) remember("kiosk", null); });

const advance = document.querySelector("[data-advance]");
let turn = null;

/** Lead to the next dashboard in a while, as on a screen that nobody touches; not while the page is used by somebody. */
function takeTurns() {
  clearTimeout(turn);
  const seconds = Number(parameters().get("advance"));
  if (!advance || !parameters().has("kiosk") || !(seconds >= Number(advance.options[1].value))) return;
  advance.value = String(seconds);
  turn = setTimeout(() => {
    const address = new URL(advance.dataset.advance, location.href);
    for (const name of ["kiosk", "advance", "range", "tz", "refresh"]) if (parameters().has(name)) address.searchParams.set(name, parameters().get(name));
    location.replace(address);
  }, seconds * 1000);
}
advance?.addEventListener("change", () => { remember("advance", advance.value || null); takeTurns(); });
for (const type of ["pointerdown", "keydown"]) document.addEventListener(type, takeTurns);
takeTurns();

const form = document.querySelector("[data-variables]");
form?.addEventListener("change", ({ target }) => {
  if (target.type !== "checkbox") { form.requestSubmit(); return; }
  const all = target.value === "$__all";
  for (const box of form.querySelectorAll(`input[type=checkbox][name="${target.name}"]`)) if (box !== target && (all || box.value === "$__all")) box.checked = false;
});
form?.addEventListener("submit", () => {
  const now = new URL(location.href).searchParams;
  for (const field of form.querySelectorAll("input[type=hidden]")) field.remove();
  const asked = new Set([...form.elements].map(({ name }) => name)); // all else of the address stays: hidden variables, too
  for (const [name, value] of now) if (!asked.has(name)) form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
});

document.addEventListener("spm:edit", () => document.querySelector("[data-edit]")?.click());
