// The charts of a page: their common range, zone and refresh, and the one request that asks for all charts in view.
//
// All of it stands in the address: ?range=1h follows the clock, ?from=&to= is fixed (or from=now-2h), ?tz=, ?refresh= (in
// seconds; 0 is off), ?asof= (seconds since 1970) shows the data accepted by then. What a person chose last is used where
// the address says nothing. Nothing is asked for while nobody looks, and less often when the server is busy.

import "./shell.js";
import { durationText, parseMoment, parsePair, rangeMs } from "./charts/grammar.js";
import { chosenZone, rewriteTimes } from "./local_times.js";
import { Plot } from "./charts/plot.js";

const REFRESH_S = 10;
const SLOWEST_S = 60; // of a refresh that the server refuses
const ANSWER_MS = 30_000; // a live chart that waited forever would never refresh
const DRAWERS = await drawersOf(new Set([...document.querySelectorAll("[data-chart][data-kind]")].map(({ dataset }) => dataset.kind)));
const BATCH = 40; // charts of one request
const RECENT = 5; // ranges that are remembered
const KEPT = ["range", "from", "to", "tz", "refresh", "asof"]; // parameters that links carry on
const WORDS = { s: "s", m: "min", h: "h", d: "days", w: "weeks" };

const kept = {
  get: (name) => { try { return JSON.parse(localStorage.getItem(`spm.${name}`)); } catch { return null; } },
  set: (name, value) => { try { localStorage.setItem(`spm.${name}`, JSON.stringify(value)); } catch { /* a browser without storage remembers nothing */ } },
};

/** Load what draws these kinds of panels; lines, which every page has, are drawn by Plot. */
async function drawersOf(kinds) {
  const drawers = {};
  if (["stat", "gauge", "toplist", "table"].some((kind) => kinds.has(kind))) {
    const { Figures } = await import("./charts/figures.js");
    Object.assign(drawers, { stat: Figures, gauge: Figures, toplist: Figures, table: Figures });
  }
  if (["heatmap", "states"].some((kind) => kinds.has(kind))) {
    const { Cells } = await import("./charts/cells.js");
    Object.assign(drawers, { heatmap: Cells, states: Cells });
  }
  return drawers;
}

class ChartPage {
  constructor({ onRefusal, onDrawn } = {}) {
    this.bar = document.querySelector("[data-ranges]");
    this.onRefusal = onRefusal; // with what is wrong about the expression, or null
    this.onDrawn = onDrawn;
    this.events = [];
    this.draft = this.bar.dataset.draft ? JSON.parse(this.bar.dataset.draft) : null;
    this.colours = new Map();
    this.turn = 0;
    this.slower = 1;
    this.inView = new Set();
    this.setZone();
    this.plots = [...document.querySelectorAll("[data-chart]")].map((figure) => new (DRAWERS[figure.dataset.kind] ?? Plot)(figure, this));
    const observer = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "100% 0%" });
    for (const plot of this.plots) observer.observe(plot.figure);
    this.byFigure = new Map(this.plots.map((plot) => [plot.figure, plot]));
    this.listen();
    this.drawBar();
    this.schedule();
  }

  // --- the address

  get parameters() {
    return new URL(location.href).searchParams;
  }

  /** The named range: the address's, the person's last one, or the page's. */
  get named() {
    const own = this.parameters.get("range");
    return [own, this.bar.dataset.ranges !== "15m" ? kept.get("range") : null, this.bar.dataset.ranges].find((each) => each && rangeMs(each));
  }

  get live() {
    const { from, to } = this.fixed ?? {};
    return !this.ended && !this.parameters.has("asof") && (from === undefined || to.startsWith("now"));
  }

  /** The texts of ?from= and ?to=, if both are times. */
  get fixed() {
    const { from: first, to: last } = this.bar.dataset; // of a page that is about a range
    const [from, to] = [this.parameters.get("from") ?? first, this.parameters.get("to") ?? last];
    return from && to && parseMoment(from, this.zone) < parseMoment(to, this.zone) ? { from, to } : null;
  }

  /** A host that is down is shown up to its last sample, until somebody chooses a range. */
  get ended() {
    return this.bar.dataset.until !== undefined && !this.parameters.has("range") && !this.fixed;
  }

  get range() {
    if (this.fixed) return { start: parseMoment(this.fixed.from, this.zone), end: parseMoment(this.fixed.to, this.zone) };
    const asof = Number(this.parameters.get("asof")) * 1000;
    const end = this.ended ? Number(this.bar.dataset.until) + 60_000 : asof || Date.now();
    return { start: end - rangeMs(this.named), end };
  }

  get refreshS() {
    const text = this.parameters.get("refresh") ?? kept.get("refresh");
    return text === null || text === "" || !Number.isFinite(Number(text)) ? REFRESH_S : Math.max(0, Number(text));
  }

  setZone() {
    const before = this.zone?.name;
    this.zone = chosenZone();
    if (before !== undefined && before !== this.zone.name) rewriteTimes(document, this.zone);
  }

  go(changes, { replace = false } = {}) {
    const address = new URL(location.href);
    for (const [name, value] of Object.entries(changes)) {
      address.searchParams.delete(name);
      for (const each of [value].flat()) if (each !== null) address.searchParams.append(name, each);
    }
    history[replace ? "replaceState" : "pushState"](null, "", address);
    this.show();
  }

  choose(range) {
    kept.set("range", range);
    this.go({ range, from: null, to: null });
  }

  zoom(from, to) {
    const recent = (kept.get("recent") ?? []).filter(([a, b]) => a !== Math.round(from) || b !== Math.round(to));
    kept.set("recent", [[Math.round(from), Math.round(to)], ...recent].slice(0, RECENT));
    this.go({ from: Math.round(from), to: Math.round(to) });
  }

  select(plot, from, to) {
    this.zoom(from, to);
  }

  reset() {
    this.go({ from: null, to: null });
  }

  shift(share) {
    const { start, end } = this.range;
    const by = (end - start) * share;
    this.zoom(start + by, Math.min(end + by, Date.now()));
  }

  wider() {
    const { start, end } = this.range;
    const half = (end - start) / 2;
    this.zoom(start - half, Math.min(end + half, Date.now()));
  }

  // --- what charts ask of their page

  /** A name has one colour on the whole page, unless another line of the chart has it already. */
  coloursOf(names, most) {
    const used = new Set();
    const free = () => { let at = 0; while (used.has(at)) at += 1; return at % most; };
    return names.map((name) => {
      const wanted = this.colours.get(name);
      const slot = wanted !== undefined && !used.has(wanted) && (wanted < 8 || names.length > 8) ? wanted : free();
      used.add(slot);
      if (wanted === undefined) this.colours.set(name, slot);
      return slot;
    });
  }

  /** What can be done at a time of a chart: [{text, href or run}]. */
  actsOf(plot, time, remarks) {
    const { start, end } = this.range;
    const { toExplore: explore, rule, corrections } = this.bar.dataset;
    const { expr } = plot.figure.dataset;
    const eighth = (end - start) / 8;
    const retraction = remarks.find((each) => each.retraction)?.retraction;
    const asked = (address, values) => `${address}?${new URLSearchParams(values)}`;
    const span = this.fixed ? [start, end] : [time - plot.data.step, time];
    const instants = span.map((ms) => new Date(ms).toISOString().slice(0, 19));
    return [
      ...(document.querySelector("[data-explore]") === null ? [{ text: "Explore", href: asked(explore, { expr, ...Object.fromEntries(KEPT.filter((name) => this.parameters.has(name)).map((name) => [name, this.parameters.get(name)])) }) }] : []),
      { text: "What changed?", href: asked(explore, { expr, from: String(Math.round(this.fixed ? start : time - eighth)), to: String(Math.round(this.fixed ? end : time + eighth)), changes: "1" }) },
      { text: "Zoom", run: () => this.zoom(time - eighth, time + eighth) },
      ...(rule ? [{ text: "New rule", href: asked(rule, { expr }) }] : []),
      ...(corrections ? [{ text: "Retract…", href: asked(corrections, { series: selectorOf(expr), data_from: instants[0], data_to: instants[1] }) }] : []),
      ...(retraction ? [{ text: "Show as before", run: () => this.go({ asof: String(Math.floor(retraction.made / 1000) - 1), from: String(start), to: String(end) }) }] : []),
      { text: "Explain", run: () => this.explain(plot) },
      { text: "Copy", run: () => navigator.clipboard?.writeText(`${new Date(time).toISOString()}\n${plot.names.map((name, index) => `${name}: ${plot.data.series[index].values[plot.data.times.indexOf(time)] ?? "no value"}`).join("\n")}`).then(() => say("Values copied")) },
    ];
  }

  /** Show in a drawer what the numbers of a chart rest on. */
  async explain(plot) {
    const { start, end } = this.range;
    const address = new URL(this.bar.dataset.explained, location.href);
    for (const [name, value] of Object.entries({ app: this.bar.dataset.app, expr: plot.figure.dataset.expr, start: Math.round(start), end: Math.round(end), explain: "1" })) address.searchParams.set(name, value);
    if (this.parameters.has("asof")) address.searchParams.set("asof", this.parameters.get("asof"));
    const answer = await fetch(address, { headers: { Accept: "application/json" }, credentials: "same-origin" });
    const body = await answer.json();
    const lines = answer.ok ? explanationOf(body, plot) : [["", [body.error]]];
    document.dispatchEvent(new CustomEvent("spm:drawer", { detail: { title: `What “${plot.title}” rests on`, sections: lines } }));
  }

  // --- asking

  /** Ask for the charts in view. `quiet`: a refresh, which keeps what is drawn if it fails. */
  async show(quiet = false) {
    this.setZone();
    this.drawBar();
    const wanted = this.plots.filter((plot) => this.inView.has(plot.figure));
    const turn = ++this.turn;
    this.stop?.abort(); // the server cancels queries without a client
    if (!wanted.length) return;
    this.stop = new AbortController();
    const late = setTimeout((stop) => stop.abort(new DOMException("", "TimeoutError")), ANSWER_MS, this.stop);
    const range = this.range;
    const asked = wanted.map((plot, at) => plot.request(String(at), { quiet }));
    if (!quiet) for (const plot of wanted) plot.state("loading", "");
    try {
      await this.read(wanted, asked, range, turn, quiet);
      this.slower = 1;
    } catch (error) {
      if (turn !== this.turn || error.name === "AbortError") return;
      this.slower = Math.min(this.slower * 2, SLOWEST_S);
      const text = error.name === "TimeoutError" ? "The server did not answer in time." : error instanceof TypeError ? "The server cannot be reached." : error instanceof SyntaxError ? "The server sent an invalid answer." : error.message;
      for (const plot of wanted) plot.fail(text, { quiet });
      if (error.retryS) setTimeout(() => turn === this.turn && this.show(quiet), error.retryS * 1000);
    } finally {
      clearTimeout(late);
    }
    if (turn === this.turn) this.compare(wanted, asked, range, turn);
  }

  /** Send the request and give each line of its answer to its chart. */
  async read(plots, asked, range, turn, quiet) {
    const limits = { start: Math.round(range.start), end: Math.round(range.end) };
    const now = { value: range.end };
    for await (const line of this.lines(asked, limits)) {
      if (turn !== this.turn) return;
      if (line.events) { this.events = line.events; now.value = line.now; continue; }
      const at = Number(line.id);
      if (line.error) this.refuse(plots[at], line, quiet);
      else {
        this.onRefusal?.(null);
        plots[at].receive(line, asked[at], range, now.value);
        this.onDrawn?.(plots[at]);
      }
    }
  }

  refuse(plot, { error, status }, quiet) {
    const refused = status === 400 && this.onRefusal;
    this.onRefusal?.(refused ? error : null);
    plot.fail(refused ? "The expression above cannot be drawn." : error, { quiet: quiet && status !== 400 });
  }

  /** `draft`: of a retraction that is only planned; the charts are drawn as if it were in force. */
  async* lines(panels, limits, draft = this.draft) {
    for (let at = 0; at < panels.length; at += BATCH) yield* this.batch(panels.slice(at, at + BATCH), limits, draft);
  }

  async* batch(panels, limits, draft) {
    const asof = this.parameters.get("asof");
    const token = document.querySelector("[name=csrfmiddlewaretoken]")?.value ?? "";
    const body = JSON.stringify({ app: Number(this.bar.dataset.app), ...limits, panels, ...(asof ? { asof } : {}), ...(draft ? { draft } : {}) });
    const headers = { "Content-Type": "application/json", "X-CSRFToken": token, Accept: "application/x-ndjson, application/json" };
    const answer = await fetch(this.bar.dataset.batch, { method: "POST", body, headers, credentials: "same-origin", signal: this.stop.signal });
    if (!answer.ok) {
      const text = await answer.json().then((each) => each.error, () => null);
      throw Object.assign(new Error(text ?? `The server answered ${answer.status}.`), { retryS: [429, 503].includes(answer.status) ? Number(answer.headers.get("Retry-After")) || 2 : 0 });
    }
    let rest = "";
    for await (const piece of pieces(answer.body.pipeThrough(new TextDecoderStream()))) {
      const texts = (rest + piece).split("\n");
      rest = texts.pop();
      for (const text of texts) yield JSON.parse(text);
    }
  }

  /** Ask for the same charts of an earlier time, if ?compare= names one. */
  async compare(plots, asked, range, turn) {
    if (this.draft) { await this.showBefore(plots, asked, range, turn); return; }
    const name = this.parameters.get("compare");
    const start = name ? this.before(range, name) : null;
    if (start === null) {
      for (const plot of plots) if (plot.earlier) plot.compare(null);
      return;
    }
    const key = `${name} ${Math.round(range.start / 60_000)} ${JSON.stringify(asked.map(({ expr, queries }) => queries ?? expr))}`;
    if (this.compared === key) return;
    const shift = range.start - start;
    const panels = asked.map(({ since, ...each }) => each);
    try {
      for await (const line of this.lines(panels, { start: Math.round(start), end: Math.round(range.end - shift) })) {
        if (turn !== this.turn) return;
        if (line.id !== undefined && !line.error) plots[Number(line.id)].compare(line, shift, `${durationText(shift)} before`);
      }
      this.compared = key;
    } catch { /* the chart of now stands by itself */ }
  }

  /** Draw what a planned retraction would take out, dotted. */
  async showBefore(plots, asked, range, turn) {
    try {
      for await (const line of this.lines(asked.map(({ since, ...each }) => each), { start: Math.round(range.start), end: Math.round(range.end) }, null)) {
        if (turn !== this.turn) return;
        if (line.id !== undefined && !line.error) plots[Number(line.id)].addBefore(line);
      }
    } catch { /* the chart of what is left stands by itself */ }
  }

  /** Where the range before begins: the one just before, or the same clock some days earlier. */
  before({ start, end }, name) {
    const days = { day: 1, week: 7, month: 28 }[name];
    if (days) return this.zone.shiftDays(start, -days);
    return name === "previous" ? start - (end - start) : null;
  }

  seen(entries) {
    let fresh = false;
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting && !this.inView.has(target)) { this.inView.add(target); fresh = true; }
      if (!isIntersecting) this.inView.delete(target);
    }
    if (fresh) this.show();
  }

  schedule() {
    clearTimeout(this.timer);
    const wait = (this.refreshS || REFRESH_S) * this.slower * 1000;
    this.timer = setTimeout(async () => {
      try {
        if (this.refreshS && this.live && !document.hidden && !this.plots.some((plot) => plot.pinned)) await this.show(true);
      } finally {
        this.schedule();
      }
    }, wait);
  }

  // --- the bar

  listen() {
    const { bar } = this;
    const on = (selector, type, act) => { for (const each of document.querySelectorAll(selector)) each.addEventListener(type, act); };
    on("[data-range]", "click", ({ currentTarget }) => { this.close(); this.choose(currentTarget.dataset.range); });
    on("[data-shift]", "click", ({ currentTarget }) => this.shift(Number(currentTarget.dataset.shift)));
    on("[data-wider]", "click", () => this.wider());
    on("[data-zone]", "change", ({ currentTarget }) => { kept.set("zone", currentTarget.value); this.setChoice("tz", currentTarget.value); });
    on("[data-refresh]", "change", ({ currentTarget }) => { kept.set("refresh", currentTarget.value); this.setChoice("refresh", currentTarget.value); this.schedule(); });
    on("[data-asof]", "change", ({ currentTarget }) => this.goAsof(currentTarget.value));
    on("[data-asof-now]", "click", () => this.goAsof(""));
    on("[data-copy-range]", "click", () => this.copyRange());
    on("[data-paste-range]", "click", () => this.pasteRange());
    bar.querySelector("[data-range-form]").addEventListener("submit", (event) => this.submit(event));
    window.addEventListener("popstate", () => this.show());
    document.addEventListener("visibilitychange", () => document.hidden || (this.live && this.refreshS && this.show(true)));
    document.addEventListener("spm:range", ({ detail }) => this[detail]?.());
    for (const menu of document.querySelectorAll("details[data-chart-menu]")) this.listenMenu(menu);
  }

  earlier() { this.shift(-0.5); }

  later() { this.shift(0.5); }

  toggleUtc() {
    this.setChoice("tz", this.zone.name === "utc" ? "browser" : "utc");
  }

  refresh() { this.show(); }

  openAsof() {
    const menu = document.querySelector(".asof-menu");
    menu.open = true;
    menu.querySelector("input").focus();
  }

  setChoice(name, value) {
    this.go({ [name]: value }, { replace: true });
    for (const plot of this.plots) plot.redraw();
  }

  goAsof(value) {
    const ms = value ? parseMoment(value, this.zone) : null;
    if (Number.isNaN(ms)) return;
    for (const plot of this.plots) plot.held = null;
    this.go({ asof: ms === null ? null : String(Math.floor(ms / 1000)) });
  }

  close() {
    for (const menu of document.querySelectorAll(".page-head details.menu[open]")) menu.open = false;
  }

  /** Take what is typed into From and To, or a pair pasted into From. */
  submit(event) {
    event.preventDefault();
    const { from, to } = event.target.elements;
    const complaint = this.bar.querySelector("[data-range-error]");
    const pair = to.value.trim() ? null : parsePair(from.value, this.zone);
    const [start, end] = pair ?? [from.value, to.value || "now"].map((text) => parseMoment(text, this.zone));
    complaint.hidden = start < end;
    if (!(start < end)) {
      const wrong = [[from, start], [to, end]].find(([, ms]) => Number.isNaN(ms))?.[0];
      complaint.textContent = wrong ? `“${wrong.value}” is no time. Try now-2h, yesterday, 22 Nov 20:00 or 2026-11-22 20:00.` : "From must be before To.";
      (wrong ?? from).focus();
      return;
    }
    this.close();
    if (!pair && [from.value, to.value || "now"].every((text) => text.trim().startsWith("now"))) this.go({ from: from.value.trim(), to: to.value.trim() || "now" });
    else this.zoom(start, end);
  }

  async copyRange() {
    const { start, end } = this.range;
    await navigator.clipboard?.writeText(`${new Date(start).toISOString()} to ${new Date(end).toISOString()}`);
    say("Range copied");
  }

  async pasteRange() {
    const text = await navigator.clipboard?.readText().catch(() => "") ?? "";
    const pair = parsePair(text, this.zone);
    if (pair) this.zoom(...pair);
    else say("The clipboard holds no pair of times, for example: 2026-11-22T20:00Z to 2026-11-22T21:00Z");
  }

  drawBar() {
    const { start, end } = this.range;
    const text = this.bar.querySelector("[data-range-text]");
    const [, count, unit] = /^(\d+)(\w)$/.exec(this.named);
    const names = this.zone.isToday(start) && this.zone.isToday(end) ? "seconds" : "short";
    text.textContent = this.fixed && !this.live ? `${this.zone.text(names, start)} – ${this.zone.text(names, end)}` : this.fixed ? `${this.fixed.from} – ${this.fixed.to}` : this.ended ? `up to ${this.zone.text(names, end)}` : `Last ${count} ${WORDS[unit].replace(/s$/, count === "1" ? "" : "s")}`;
    const state = this.bar.querySelector("[data-range-live]");
    state.hidden = !this.live || !this.refreshS;
    this.bar.querySelector("[data-zone-text]").textContent = this.zone.name === "browser" ? "" : this.zone.title;
    for (const button of this.bar.querySelectorAll("[data-range]")) button.setAttribute("aria-pressed", String(!this.fixed && button.dataset.range === this.named));
    const { from, to } = this.bar.querySelector("[data-range-form]").elements;
    if (!this.bar.querySelector("details[open]")) [from.value, to.value] = this.fixed ? [from, to].map((field, at) => (/^now/.test(this.fixed[["from", "to"][at]]) ? this.fixed[["from", "to"][at]] : this.zone.text("full", [start, end][at]).replace(/,/g, ""))) : [`now-${this.named}`, "now"];
    this.drawChoices();
    for (const link of document.querySelectorAll("a[data-keep-range]")) this.keepRange(link);
  }

  drawChoices() {
    const zones = this.bar.querySelector("[data-zone]");
    if (![...zones.options].some(({ value }) => value === this.zone.name)) zones.append(new Option(this.zone.title, this.zone.name));
    zones.value = this.zone.name;
    const refresh = this.bar.querySelector("[data-refresh]");
    if (![...refresh.options].some(({ value }) => value === String(this.refreshS))) refresh.append(new Option(`every ${this.refreshS} s`, String(this.refreshS)));
    refresh.value = String(this.refreshS);
    const asof = Number(this.parameters.get("asof")) * 1000;
    const menu = document.querySelector(".asof-menu");
    menu.classList.toggle("past", Boolean(asof));
    document.querySelector("[data-asof-text]").textContent = asof ? this.zone.text("short", asof) : "now";
    const field = document.querySelector("[data-asof]");
    if (document.activeElement !== field) field.value = asof ? this.zone.text("full", asof).replace(/,/g, "") : "";
    document.querySelector("[data-asof-banner]").hidden = !asof;
    if (asof) document.querySelector("[data-asof-banner] time").textContent = this.zone.text("full", asof);
    const recent = (kept.get("recent") ?? []).map(([from, to]) => {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "link", textContent: `${this.zone.text("short", from)} – ${this.zone.text("short", to)}` });
      button.addEventListener("click", () => { this.close(); this.zoom(from, to); });
      return button;
    });
    this.bar.querySelector("[data-recent]").replaceChildren(...recent);
  }

  keepRange(link) {
    const address = new URL(link.href);
    for (const name of KEPT) {
      const value = this.parameters.get(name);
      if (value === null) address.searchParams.delete(name);
      else address.searchParams.set(name, value);
    }
    link.href = address;
  }

  /** The menu of a chart: its values as a table, as CSV or as a picture. */
  listenMenu(menu) {
    const plot = this.byFigure.get(menu.closest(".card").querySelector("[data-chart]"));
    const acts = {
      table: () => plot.toggleTable(),
      csv: () => save(new Blob([plot.csv()], { type: "text/csv" }), `${plot.title}.csv`),
      png: async () => save(await plot.png(), `${plot.title}.png`),
      explain: () => this.explain(plot),
    };
    for (const button of menu.querySelectorAll("[data-act]")) button.addEventListener("click", () => { menu.open = false; if (button.dataset.act === "png" ? plot.chart : plot.data) acts[button.dataset.act](); });
  }
}

/** The pieces of a stream; not all browsers iterate over one by themselves. */
async function* pieces(stream) {
  const reader = stream.getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) yield piece.value;
}

/** The series that an expression reads: its first selector. */
export function selectorOf(expr) {
  return /[a-zA-Z_:][\w:]*\{[^}]*\}/.exec(expr)?.[0] ?? /\{[^}]*\}/.exec(expr)?.[0] ?? /[a-zA-Z_:][\w:]*(?=\s*(?:\[|\)|$))/.exec(expr)?.[0] ?? expr;
}

function explanationOf({ explain, series, step, warnings }, plot) {
  const time = (text) => (text ? plot.localTimes(text.endsWith("Z") ? text : `${text}Z`) : "–");
  return [
    ["Query", [plot.figure.dataset.expr, `${series.length} series, one value per ${durationText(step)}`]],
    ["Resolution", explain.segments.map((each) => `${each.resolution}: ${time(each.start)} to ${time(each.end)}`)],
    ["The last hours", explain.lastHours.map((each) => `${time(each.start)}: ${each.complete === null ? "not known to be complete" : each.complete ? "complete" : each.over ? "incomplete" : "still running"}${each.sources === null ? "" : `, ${each.sources} source${each.sources === 1 ? "" : "s"}`}${each.sourcesSilentSince?.length ? `, silent: ${each.sourcesSilentSince.join(", ")}` : ""}`)],
    ["Retractions", explain.retractions.map((each) => `${each.number}, by ${each.author}: “${each.reason}”${each.undone ? `, undone ${time(each.undone)}` : ""}${each.inEffect ? "" : ", not in effect here"}`)],
    ["Late samples", (explain.corrections ?? []).filter(({ cause }) => cause === "late").map((each) => `${time(each.hour)}: ${each.samplesThatCameLate} came late`)],
    ["Missing", [...explain.missing, ...warnings].map((text) => plot.localTimes(text))],
  ].filter(([, lines]) => lines.length);
}

function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name.replace(/[^\w.-]+/g, "-") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function say(text) {
  document.dispatchEvent(new CustomEvent("spm:toast", { detail: { text } }));
}

/** Draw every figure of the page; returns what the page's own script needs. */
export function start(options) {
  return new ChartPage(options);
}

if (document.querySelector("[data-explore]") === null) start();
