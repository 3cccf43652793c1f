// The editor of a grid: panels are moved by their titles and sized by their corners, with a pointer or by keys.
//
// A panel that is put onto others pushes them down. Each change can be undone. What is saved is a list of places; the
// server keeps whatever else it has of a panel.

const COLUMNS = 24;
const HEIGHT_MAX = 60;
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const NAMES = ["x", "y", "w", "h"];

const grid = document.querySelector("[data-grid]");
const form = document.querySelector("[data-editor]");
const undo = form.querySelector("[data-undo]");
const past = [];
let saving = false;

const panels = () => [...grid.querySelectorAll("[data-place]")];
const placeOf = (panel) => Object.fromEntries(panel.dataset.place.split(" ").map((value, at) => [NAMES[at], Number(value)]));
const numberOf = (panel) => Number(panel.dataset.number);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function put(panel, place) {
  panel.dataset.place = NAMES.map((name) => place[name]).join(" ");
  for (const name of NAMES) panel.style.setProperty(`--${name}`, place[name]);
}

const overlap = (one, other) => one.x < other.x + other.w && other.x < one.x + one.w && one.y < other.y + other.h && other.y < one.y + one.h;

/** Push down whatever stands where the moved panel is now, and what that pushes in turn. */
function settle(moved) {
  const fixed = [placeOf(moved)];
  const rest = panels().filter((panel) => panel !== moved).sort((one, other) => placeOf(one).y - placeOf(other).y);
  for (const panel of rest) {
    const place = placeOf(panel);
    for (let hit = fixed.find((each) => overlap(each, place)); hit; hit = fixed.find((each) => overlap(each, place))) place.y = hit.y + hit.h;
    fixed.push(place);
    put(panel, place);
  }
}

/** Remember how all was; the last argument of `act` is what changes it. */
function change(act) {
  past.push(panels().map((panel) => [panel, panel.dataset.place]));
  undo.disabled = false;
  act();
}

function takeBack() {
  const before = past.pop();
  if (!before) return;
  for (const panel of panels()) if (!before.some(([each]) => each === panel)) panel.remove();
  for (const [panel, place] of before) {
    if (!panel.isConnected) grid.append(panel);
    put(panel, Object.fromEntries(place.split(" ").map((value, at) => [NAMES[at], Number(value)])));
  }
  undo.disabled = past.length === 0;
}

function move(panel, { dx = 0, dy = 0, dw = 0, dh = 0 }, from = placeOf(panel)) {
  const w = clamp(from.w + dw, 1, COLUMNS - from.x);
  put(panel, { x: clamp(from.x + dx, 0, COLUMNS - w), y: Math.max(from.y + dy, 0), w, h: clamp(from.h + dh, 1, HEIGHT_MAX) });
}

function remove(panel) {
  const next = panels()[panels().indexOf(panel) + 1] ?? panels()[0];
  change(() => panel.remove());
  next?.querySelector("[data-handle]")?.focus();
}

function copy(panel) {
  const made = panel.cloneNode(true);
  made.dataset.number = Math.max(...panels().map(numberOf), 0) + 1;
  made.dataset.copyOf = panel.dataset.copyOf ?? panel.dataset.number;
  const place = placeOf(panel);
  for (const picture of made.querySelectorAll(".uplot, .legend > *")) picture.remove();
  change(() => { grid.append(made); put(made, { ...place, y: place.y + place.h }); settle(made); });
  (made.matches("[data-handle]") ? made : made.querySelector("[data-handle]")).focus();
}

/** Follow the pointer until it lets go; `kind` is move or size. */
function drag(panel, event, kind) {
  event.preventDefault();
  const from = placeOf(panel);
  const cell = { x: grid.clientWidth / COLUMNS, y: Number.parseFloat(getComputedStyle(grid).gridAutoRows) + Number.parseFloat(getComputedStyle(grid).rowGap) };
  const before = panels().map((each) => [each, each.dataset.place]);
  const stop = new AbortController();
  const follow = (next) => {
    for (const [each, place] of before) put(each, Object.fromEntries(place.split(" ").map((value, at) => [NAMES[at], Number(value)])));
    const [a, b] = [Math.round((next.clientX - event.clientX) / cell.x), Math.round((next.clientY - event.clientY) / cell.y)];
    move(panel, kind === "move" ? { dx: a, dy: b } : { dw: a, dh: b }, from);
    settle(panel);
  };
  const end = () => {
    stop.abort();
    panel.classList.remove("dragged");
    if (before.every(([each, place]) => each.dataset.place === place)) return;
    past.push(before);
    undo.disabled = false;
  };
  panel.classList.add("dragged");
  document.addEventListener("pointermove", follow, { signal: stop.signal });
  for (const type of ["pointerup", "pointercancel"]) document.addEventListener(type, end, { signal: stop.signal });
}

grid.addEventListener("pointerdown", (event) => {
  const panel = event.target.closest("[data-place]");
  if (!panel || event.button !== 0 || event.target.closest("a, button, summary, ul")) return;
  if (event.target.closest("[data-corner]")) drag(panel, event, "size");
  else if (event.target.closest("[data-handle]")) { event.target.closest("[data-handle]").focus(); drag(panel, event, "move"); }
});

grid.addEventListener("click", ({ target }) => {
  const panel = target.closest("[data-place]");
  if (target.closest("[data-remove]")) remove(panel);
  if (target.closest("[data-copy-panel]")) { target.closest("details").open = false; copy(panel); }
});

grid.addEventListener("keydown", (event) => {
  if (!event.target.matches("[data-handle]")) return;
  const panel = event.target.closest("[data-place]");
  const control = event.ctrlKey || event.metaKey;
  if (event.key in STEPS && !control) {
    const [a, b] = STEPS[event.key];
    change(() => { move(panel, event.shiftKey ? { dw: a, dh: b } : { dx: a, dy: b }); settle(panel); });
  } else if (event.key === "Delete") remove(panel);
  else if (control && event.key === "d") copy(panel);
  else return;
  event.preventDefault();
  event.stopPropagation();
});

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key !== "z" || event.target.closest("input, textarea")) return;
  event.preventDefault();
  takeBack();
});
undo.addEventListener("click", takeBack);

form.addEventListener("submit", () => {
  saving = true;
  form.elements.layout.value = JSON.stringify(panels().map((panel) => ({ number: numberOf(panel), ...(panel.dataset.copyOf ? { copy_of: Number(panel.dataset.copyOf) } : {}), ...placeOf(panel) })));
});
window.addEventListener("beforeunload", (event) => { if (past.length && !saving) event.preventDefault(); });
