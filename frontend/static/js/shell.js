// What every page has: the command palette, keys, messages that go away by themselves, the drawer at the right,
// and times in the zone of charts.

import "./local_times.js";

const TYPING_MS = 80;
const SHOWN_MS = 6000; // of a message
const SEQUENCE_MS = 1200; // between the two keys of "g h"

const element = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};
const kept = {
  get: (name) => { try { return JSON.parse(localStorage.getItem(`spm.${name}`)); } catch { return null; } },
  set: (name, value) => { try { localStorage.setItem(`spm.${name}`, JSON.stringify(value)); } catch { /* nothing is remembered */ } },
};

// --- messages

const toasts = element("div", { className: "toasts", role: "status" });
document.body.append(toasts);

/** Show a message for some seconds, longer while the pointer is on it; `undo` adds a button. */
export function toast(text, { undo } = {}) {
  const message = element("div", { className: "toast" }, element("span", { textContent: text }));
  if (undo) message.append(element("button", { type: "button", className: "link", textContent: "Undo", onclick: () => { undo(); message.remove(); } }));
  const leave = () => { message.timer = setTimeout(() => message.remove(), SHOWN_MS); };
  message.addEventListener("mouseenter", () => clearTimeout(message.timer));
  message.addEventListener("mouseleave", leave);
  leave();
  toasts.append(message);
}
document.addEventListener("spm:toast", ({ detail }) => toast(detail.text, detail));

// --- dialogs: the palette, the list of keys, the drawer

function dialog(className, label, ...children) {
  const made = element("dialog", { className }, ...children);
  made.setAttribute("aria-label", label);
  made.addEventListener("click", (event) => event.target === made && made.close());
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  made.showModal();
  return made;
}

const closing = () => element("button", { type: "button", className: "quiet-button small", textContent: "Close", onclick: (event) => event.target.closest("dialog").close() });

document.addEventListener("spm:drawer", ({ detail: { title, sections } }) => {
  const parts = sections.map(([head, lines]) => element("section", {}, element("h3", { textContent: head }), element("ul", {}, ...lines.map((text) => element("li", { textContent: text })))));
  dialog("drawer", title, element("header", {}, element("h2", { textContent: title }), closing()), ...parts);
});

// --- the theme

/** Take a theme, and remember it for this browser: the next page comes from the server with it. */
function setTheme(name) {
  const root = document.documentElement;
  if (name === "system") delete root.dataset.theme;
  else root.dataset.theme = name;
  document.cookie = `theme=${name}; path=/; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
  for (const button of document.querySelectorAll("[data-set-theme]")) button.setAttribute("aria-pressed", String(button.dataset.setTheme === name));
  document.dispatchEvent(new Event("spm:theme"));
}
for (const button of document.querySelectorAll("[data-set-theme]")) button.addEventListener("click", () => setTheme(button.dataset.setTheme));

// --- the palette

const bar = document.querySelector("header.bar");
const search = bar?.dataset.search;
const actions = () => [
  ...(document.querySelector("[data-ranges]") ? [
    { text: "Refresh the charts", hint: "r", run: () => range("refresh") },
    { text: "Zoom out", hint: "t z", run: () => range("wider") },
    { text: "Times in UTC or local", hint: "t u", run: () => range("toggleUtc") },
    { text: "As of an earlier time…", hint: "t a", run: () => range("openAsof") },
  ] : []),
  ...["light", "dark", "system"].map((name) => ({ text: `Theme: ${name}`, hint: "", run: () => setTheme(name) })),
  { text: "Keyboard shortcuts", hint: "?", run: () => showKeys() },
];

function openPalette() {
  if (!search || document.querySelector("dialog[open]")) return;
  const field = element("input", { type: "text", placeholder: "Pages, hosts, metrics, rules, acts", autocomplete: "off", spellcheck: false });
  for (const [name, value] of Object.entries({ role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Search", "aria-autocomplete": "list" })) field.setAttribute(name, value);
  const list = element("ul", { id: "palette-list" });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Results");
  const box = dialog("palette", "Search", field, list);
  let [chosen, turn, timer] = [0, 0, 0];
  const choose = (at) => {
    const rows = [...list.querySelectorAll("[role=option]")];
    chosen = Math.max(0, Math.min(at, rows.length - 1));
    rows.forEach((row, index) => row.setAttribute("aria-selected", String(index === chosen)));
    field.setAttribute("aria-activedescendant", rows[chosen]?.id ?? "");
    rows[chosen]?.scrollIntoView({ block: "nearest" });
  };
  const run = (item) => {
    box.close();
    if (item.run) item.run();
    else {
      kept.set("visited", [{ text: item.text, hint: item.hint, href: item.href }, ...(kept.get("visited") ?? []).filter(({ href }) => href !== item.href)].slice(0, 6));
      location.href = item.href;
    }
  };
  const draw = (groups) => {
    let number = 0;
    list.replaceChildren(...groups.filter(({ items }) => items.length).flatMap(({ kind, items }) => [
      element("li", { className: "kind", textContent: kind, role: "presentation" }),
      ...items.map((item) => {
        const row = element("li", { id: `palette-${number++}`, onclick: () => run(item) }, element("span", { textContent: item.text }), element("small", { textContent: item.hint ?? "" }));
        row.setAttribute("role", "option");
        row.item = item;
        return row;
      }),
    ]));
    if (!number) list.append(element("li", { className: "kind", textContent: "Nothing is called that." }));
    choose(0);
  };
  const ask = async () => {
    const [text, mine] = [field.value.trim(), ++turn];
    const matching = actions().filter((item) => item.text.toLowerCase().includes(text.toLowerCase()));
    const address = new URL(search, location.href);
    address.searchParams.set("q", text);
    const answer = await fetch(address, { headers: { Accept: "application/json" }, credentials: "same-origin" }).then((each) => (each.ok ? each.json() : { groups: [] }), () => ({ groups: [] }));
    if (mine === turn) draw([...(text ? [] : [{ kind: "Recent", items: kept.get("visited") ?? [] }]), ...answer.groups, { kind: "Acts", items: matching }]);
  };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, TYPING_MS); });
  field.addEventListener("keydown", (event) => {
    const moves = { ArrowDown: chosen + 1, ArrowUp: chosen - 1 };
    if (event.key in moves) { event.preventDefault(); choose(moves[event.key]); }
    if (event.key === "Enter") {
      event.preventDefault();
      const row = list.querySelector("[aria-selected=true]");
      if (row) run(row.item);
    }
  });
  draw([{ kind: "Recent", items: kept.get("visited") ?? [] }, { kind: "Acts", items: actions() }]);
  ask();
}

// --- keys

const KEYS = [
  ["⌘K, Ctrl K or /", "search"], ["?", "this list"],
  ["g h · e · d · o · a · s", "Home, Explore, Dashboards, hOsts, Alerts, Data"],
  ["t ← · → · z", "half a range earlier, later, zoom out"], ["t c · v · u · a", "copy, paste the range; UTC or local; as of"],
  ["r · e", "refresh the charts, edit the dashboard"], ["j · k · ↵", "next, previous row, open it"],
  ["In a chart: ← → ↑ ↓", "time (Shift: ten), series"], ["In a chart: [ · ] · p or ↵ · Esc", "zoom out, zoom in, pin with acts, leave"],
];

function showKeys() {
  const rows = KEYS.map(([keys, text]) => element("tr", {}, element("th", { scope: "row" }, element("kbd", { textContent: keys })), element("td", { textContent: text })));
  const box = element("input", { type: "checkbox", checked: kept.get("keys") !== false, onchange: () => kept.set("keys", box.checked) });
  dialog("keys", "Keyboard shortcuts", element("header", {}, element("h2", { textContent: "Keyboard shortcuts" }), closing()), element("table", { className: "tight" }, element("tbody", {}, ...rows)), element("label", {}, box, " Single keys work"));
}

const range = (name) => document.dispatchEvent(new CustomEvent("spm:range", { detail: name }));
const GO = { h: "Home", e: "Explore", d: "Dashboards", o: "Hosts", a: "Alerts", s: "Data" };
const RANGE = { ArrowLeft: "earlier", ArrowRight: "later", z: "wider", c: "copyRange", v: "pasteRange", u: "toggleUtc", a: "openAsof" };

function go(key) {
  const title = GO[key];
  const link = [...document.querySelectorAll(".bar nav a")].find((each) => each.textContent.trim().startsWith(title ?? "\u0000"));
  if (link) link.click();
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("main a.row, main .problems li > a")];
  const at = rows.findIndex((each) => each === document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))]?.focus();
}

const SINGLE = { "/": openPalette, "?": showKeys, r: () => range("refresh"), e: () => document.dispatchEvent(new CustomEvent("spm:edit")), j: () => moveRow(1), k: () => moveRow(-1) };
let [first, since] = ["", 0];

document.addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  const typing = event.target.closest("input, textarea, select, [contenteditable], dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || kept.get("keys") === false) return;
  const pair = Date.now() - since < SEQUENCE_MS ? first : "";
  [first, since] = ["", 0];
  if (pair === "g") go(event.key);
  else if (pair === "t" && event.key in RANGE) { event.preventDefault(); range(RANGE[event.key]); }
  else if (event.key === "g" || event.key === "t") [first, since] = [event.key, Date.now()];
  else if (event.key in SINGLE) { event.preventDefault(); SINGLE[event.key](); }
});

for (const button of document.querySelectorAll("[data-palette]")) button.addEventListener("click", openPalette);

for (const tab of document.querySelectorAll(".section-tabs [aria-current]")) tab.scrollIntoView({ block: "nearest", inline: "center" });

// A form that was changed asks before it is left, until it is sent; the server may have changed it, too.
for (const form of document.querySelectorAll("form[data-unsaved]")) {
  let changed = "changed" in form.dataset;
  form.addEventListener("input", () => { changed = true; });
  form.addEventListener("submit", () => { changed = false; });
  window.addEventListener("beforeunload", (event) => { if (changed) event.preventDefault(); });
}

// Menus close when a click goes elsewhere, and by Escape, which gives the focus back.
document.addEventListener("pointerdown", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" ? document.querySelector("details.menu[open]") : null;
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
