// The page Explore: queries A, B, … and formulas of them in one chart, each in fields or as PromQL, and what changed.
//
// The address holds the state: ?expr= is the query A, ?q=B:text another one, ?f=C:text a formula, ?hide=A is not drawn.

import { QueryLine, ask } from "./query_line.js";
import { rewriteTimes } from "./local_times.js";
import { start } from "./panels.js";

const form = document.querySelector("[data-explore]");
const lines = form.querySelector("[data-lines]");
const template = form.querySelector("[data-line-template]").content.firstElementChild;
const complaint = form.querySelector("[data-expr-error]");
const figure = document.querySelector("[data-chart]");
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const OFFERED = 50;
const TYPING_MS = 120;
const first = lines.firstElementChild;
const firstText = first.querySelector("textarea").value;
let queries = [];
let page = null;
let typing = 0;

/** Offer the metrics whose names contain what is typed; an app has thousands. */
function offerMetrics(text) {
  clearTimeout(typing);
  typing = setTimeout(async () => {
    const { metrics = [] } = await ask(form.dataset.metrics, { limit: OFFERED, ...(text ? { q: text } : {}) });
    form.querySelector("#metric-names").replaceChildren(...metrics.map((value) => Object.assign(document.createElement("option"), { value })));
  }, TYPING_MS);
}

// --- the lines

function addLine(letter, { element = template.cloneNode(true), ...more } = {}) {
  lines.append(element);
  const line = new QueryLine(element, { form, letter, run: () => draw(), remove: () => removeLine(line), offerMetrics, ...more });
  queries.push(line);
  return line;
}

function removeLine(line) {
  queries = queries.filter((each) => each !== line);
  line.element.remove();
  draw();
  queries[0].field.focus();
}

/** The lines of the address: [{letter, text, formula, drawn}]. */
function linesOfAddress() {
  const { searchParams } = new URL(location.href);
  const hidden = searchParams.getAll("hide");
  const of = (name, formula) => searchParams.getAll(name).filter((each) => /^[A-Z]:/.test(each)).map((each) => ({ letter: each[0], text: each.slice(2), formula }));
  const others = [...of("q", false), ...of("f", true)];
  const own = searchParams.has("expr") || !others.length ? [{ letter: "A", text: searchParams.get("expr") ?? firstText, formula: false }] : [];
  const all = [...own, ...others].sort((one, other) => (one.letter < other.letter ? -1 : 1));
  return all.filter(({ letter }, at) => letter !== all[at - 1]?.letter).map((each) => ({ ...each, drawn: !hidden.includes(each.letter) }));
}

function makeLines() {
  queries = [];
  lines.replaceChildren();
  for (const { letter, ...more } of linesOfAddress()) addLine(letter, letter === "A" ? { element: first.cloneNode(true), ...more } : more);
  shape();
}

/** Tell the chart what to draw, and the lines whether they are alone. */
function shape() {
  const asked = queries.filter((each) => each.text.trim());
  const shown = asked.filter((each) => each.drawn);
  for (const each of queries) each.alone = queries.length === 1;
  form.querySelector("[data-add=query]").disabled = form.querySelector("[data-add=formula]").disabled = queries.length === LETTERS.length;
  figure.dataset.expr = (shown[0] ?? asked[0] ?? queries[0]).text;
  figure.dataset.unit = shown.some((each) => each.formula) ? "" : "auto";
  const isPlain = asked.length < 2 && !asked[0]?.formula;
  if (isPlain) delete figure.dataset.queries;
  else figure.dataset.queries = JSON.stringify(asked.map(({ letter, text, formula, drawn }) => ({ name: letter, expr: text, ...(formula ? { formula } : {}), ...(drawn || !shown.length ? {} : { hidden: true }) })));
}

function draw() {
  shape();
  const others = queries.filter((each) => each.letter !== "A");
  const texts = (formula) => others.filter((each) => each.formula === formula).map(({ letter, text }) => `${letter}:${text}`);
  page.go({ expr: queries.find((each) => each.letter === "A")?.text ?? null, q: texts(false), f: texts(true), hide: queries.filter((each) => !each.drawn).map(({ letter }) => letter) });
}

for (const button of form.querySelectorAll("[data-add]")) {
  button.addEventListener("click", () => {
    const letter = [...LETTERS].find((each) => !queries.some((query) => query.letter === each));
    const line = addLine(letter, { formula: button.dataset.add === "formula", text: "" });
    shape();
    (line.formula ? line.field : line.metric).focus();
    offerMetrics("");
  });
}
form.addEventListener("submit", (event) => {
  event.preventDefault();
  for (const each of queries) each.read();
  draw();
});
window.addEventListener("popstate", () => {
  const wanted = linesOfAddress();
  const same = wanted.length === queries.length && wanted.every(({ letter, formula }, at) => letter === queries[at].letter && formula === queries[at].formula);
  if (!same) makeLines();
  else wanted.forEach(({ text, drawn }, at) => { queries[at].text = text; queries[at].choice("drawn").checked = drawn; });
  shape();
  page?.show();
});

// --- what changed

const changes = document.querySelector("[data-changes]");
const answer = changes.querySelector("[data-changes-answer]");

/** Ask for the series that differ most between the range and the time before it. */
async function findChanges() {
  const { start: from, end: to } = page.range;
  const address = new URL(changes.dataset.address, location.href);
  const asof = page.parameters.get("asof");
  for (const [name, value] of Object.entries({ from: Math.round(from), to: Math.round(to), match: changes.dataset.match, asof })) if (value) address.searchParams.set(name, value);
  answer.setAttribute("aria-busy", "true");
  answer.replaceChildren(Object.assign(document.createElement("p"), { className: "quiet", textContent: "Comparing all series with the time before…" }));
  const reply = await fetch(address, { credentials: "same-origin" }).catch(() => null);
  answer.removeAttribute("aria-busy");
  if (reply?.ok) answer.innerHTML = await reply.text();
  else answer.firstChild.textContent = reply ? `The server answered ${reply.status}. Try again.` : "The server cannot be reached. Try again.";
  rewriteTimes(answer, page.zone);
}

changes.querySelector("[data-find-changes]").addEventListener("click", () => {
  page.go({ changes: "1" }, { replace: true });
  findChanges();
});

makeLines();
page = start({
  onRefusal(text) {
    complaint.hidden = text === null;
    complaint.textContent = text ?? "";
    for (const { field } of queries) {
      if (text === null) field.removeAttribute("aria-invalid");
      else field.setAttribute("aria-invalid", "true");
    }
  },
  onDrawn(plot) {
    const texts = plot.held.answer.exprs;
    if (texts) figure.dataset.expr = Object.values(texts)[0] ?? figure.dataset.expr;
  },
});
if (page.parameters.has("changes")) findChanges();
