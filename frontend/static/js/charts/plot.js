// One chart: draws columns with uPlot, and dotted lines of an earlier range to compare with; says how sure they are, and
// lets people read, pin and take them. Enter by `Plot`.
//
// Eight lines have a colour each, 24 a colour and a dash. Of more than 24, the eight highest have colours; the others are
// grey hairlines in a grey band, and so is everything that the server only sent as a band.

/*! uPlot: MIT licence, © Leon Sorokin, https://github.com/leeoniya/uPlot */
import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { BINARY, bandOf, drawOverLines, drawUnderLines, durationText, flagsOf, joined, lineNames, moved, remarksAt, shown, silence, splitLines, unitOf, valueTicks, within } from "./grammar.js";

const COLOURS = 8;
const DASHES = [[], [6, 3], [2, 2]]; // of lines 1–8, 9–16, 17–24
const COLOURED = COLOURS * DASHES.length;
const HIGHEST = 8; // coloured ones, where there are more lines than colours and dashes
const THIN_FROM = 20_000; // points: strokes wider than a device pixel cost ten times as much
const MARKED_MAX = 30; // points with markers; of more, only those without a neighbour have one
const TABLE_ROWS = 200;
const BAR = 8; // pixels of a bar with its gap
const SHORTEST_MS = 5000; // of a zoom
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");

const element = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

/** Ends of the y axis: from 0, unless all values lie within a fifth of the highest. */
export function ends(unit, low, high) {
  if (low === null || high === null) return [0, 1];
  if (unit === "percent" && low >= 0 && high <= 100 && (high - low >= high * 0.2 || high < 40)) return [0, Math.min(100, Math.max(10, high * 1.15))];
  const room = (high - low || Math.abs(high) || 1) * 0.12;
  const floor = low >= 0 && (high - low >= high * 0.2 || high === low || low === 0) ? 0 : low - room;
  return [floor, unit === "percent" && high <= 100 ? Math.min(100, high + room) : high + room];
}

/** The points without a neighbour, which no line shows. */
function lonely(values) {
  const absent = (value) => value === null || value === undefined;
  return values.flatMap((value, at) => (!absent(value) && absent(values[at - 1]) && absent(values[at + 1]) ? [at] : []));
}

/** Write one line per tick: the time, or the date where a day begins. */
const timeTicks = (zone) => (chart, ticks, axis, space, increment) => ticks.map((tick) => {
  const { hour, minute, second } = zone.fields(tick * 1000);
  return zone.text(hour + minute + second === 0 ? "day" : increment < 60 ? "seconds" : "clock", tick * 1000);
});

const CELLS = { heatmap: "mean", states: "last" }; // kinds with one value per step

/** What a chart asks, to compare. */
const keyOf = ({ expr, queries }) => expr ?? JSON.stringify(queries);

export class Plot {
  /** `page` has the range, the zone, the events, and what a person may do with a chart. */
  constructor(figure, page) {
    this.figure = figure;
    this.page = page;
    this.area = figure.querySelector(".chart-area");
    this.veil = figure.querySelector(".chart-veil");
    this.legend = figure.querySelector(".legend");
    this.note = figure.querySelector(".chart-note");
    this.hidden = new Set();
    this.order = { key: "", down: true };
    this.tip = element("div", { className: "tip", hidden: true });
    this.spoken = element("div", { className: "visually-hidden" });
    this.spoken.setAttribute("aria-live", "polite");
    this.area.append(this.tip, this.spoken);
    this.area.tabIndex = 0;
    this.area.setAttribute("role", "application");
    this.area.setAttribute("aria-roledescription", "chart");
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("focusout", (event) => this.area.contains(event.relatedTarget) || this.leave());
    new ResizeObserver(() => this.chart?.setSize(this.size())).observe(this.area);
    dark.addEventListener("change", () => this.redraw());
    document.addEventListener("spm:theme", () => this.redraw());
  }

  get zone() {
    return this.page.zone;
  }

  get events() {
    return this.page.events;
  }

  get unit() {
    const unit = this.figure.dataset.unit;
    return unit === "auto" ? unitOf(this.figure.dataset.expr) : unit;
  }

  get title() {
    return this.figure.closest(".card")?.querySelector("h2")?.textContent ?? this.figure.dataset.expr;
  }

  written(value) {
    return shown(value, this.unit);
  }

  /** What the batch asks for this chart; `since` says what is here already. */
  request(id, { quiet = false } = {}) {
    const { expr, queries, top, kind } = this.figure.dataset;
    const asked = queries ? { queries: JSON.parse(queries) } : { expr };
    const key = keyOf(asked);
    const pixels = Math.min(Math.max(Math.round((this.area.clientWidth - 60) / (["bars", "heatmap", "states"].includes(kind) ? BAR : 1)), 50), 4000);
    return { id, ...asked, pixels, ...(top ? { top: Number(top) } : {}), ...(CELLS[kind] ? { cells: CELLS[kind] } : {}), ...(quiet && this.held && this.held.key === key && this.held.pixels === pixels ? { since: this.held.answer.since } : {}) };
  }

  /** Take an answer of the batch: the whole chart, or its later points. */
  receive(answer, asked, range, now) {
    const whole = joined(this.held?.answer, answer);
    this.held = { key: keyOf(asked), pixels: asked.pixels, answer: whole };
    this.draw({ ...within(whole, range), now }, range);
  }

  /** Take the same chart of an earlier time, `shift` ms before. */
  compare(answer, shift, name) {
    this.earlier = answer ? { answer, shift, name } : null;
    this.redraw();
  }

  /** Take the same chart before a change that is only planned: what would be gone has a line without values, too. */
  addBefore(answer) {
    const key = (labels) => JSON.stringify(Object.entries(labels).sort());
    const left = new Set(this.data.series.map(({ labels }) => key(labels)));
    const times = left.size ? this.data.times : answer.times;
    const gone = answer.series.filter(({ labels }) => !left.has(key(labels))).map(({ labels }) => ({ labels, values: times.map(() => null) }));
    this.earlier = { answer, shift: 0, name: "before" };
    this.shape = "";
    this.draw({ ...this.data, times, step: left.size ? this.data.step : answer.step, series: [...this.data.series, ...gone] }, this.range);
  }

  /** Say what is wrong; a chart that was drawn stays, with a mark if it only was not refreshed. */
  fail(text, { quiet = false } = {}) {
    if (quiet && this.figure.dataset.state === "drawn") {
      const seconds = Math.round((Date.now() - this.drawnAt) / 1000);
      this.note.querySelector(".stale-chip")?.remove();
      this.note.prepend(element("span", { className: "chip stale-chip warned", title: text, textContent: `not refreshed for ${seconds} s` }));
      return;
    }
    this.state("error", text);
    if (this.veil.querySelector("button") === null) this.veil.append(element("button", { type: "button", className: "quiet-button small", textContent: "Try again", onclick: () => this.page.show() }));
  }

  state(name, text) {
    this.figure.dataset.state = name;
    this.veil.replaceChildren(...(text ? [element("p", { textContent: text })] : []));
  }

  redraw() {
    if (!this.data) return;
    this.shape = "";
    this.draw(this.data, this.range);
  }

  draw(data, range) {
    const names = lineNames(data.series.map((each) => each.labels));
    const given = this.named(data.series, names);
    const named = data.series.map((each, index) => ({ ...each, name: each.name ?? given[index] }));
    this.sort(named);
    const [coloured, grey] = this.split(named);
    this.band = bandOf(grey, data.rest);
    this.further = grey.length + (data.rest?.count ?? 0);
    this.coloured = coloured.length;
    this.data = { ...data, series: [...coloured, ...grey] };
    this.range = range;
    this.names = this.data.series.map((each) => each.name);
    this.slots = this.page.coloursOf(coloured.map(({ name }) => name), COLOURED);
    this.drawnAt = Date.now();
    this.note.replaceChildren();
    if (!data.series.length) {
      this.chart?.destroy();
      this.chart = null;
      this.legend.replaceChildren();
      this.drawNote();
      this.describe();
      this.state("empty", this.emptyText());
      return;
    }
    const earlier = this.earlierLines();
    const columns = [this.data.times.map((ms) => ms / 1000), ...this.columns(), ...(this.band ? [this.band.low, this.band.high] : []), ...earlier.map(({ values }) => values)];
    this.points = this.data.series.reduce((sum, each) => sum + each.values.filter((v) => v !== null).length, 0);
    const shape = JSON.stringify([this.names, this.slots, this.unit, this.coloured, this.points > THIN_FROM, this.points <= MARKED_MAX, !this.band, earlier.map(({ at }) => at), this.zone.name, theme()]);
    if (this.chart && this.shape === shape) {
      this.chart.setData(columns);
    } else {
      this.shape = shape;
      this.chart?.destroy();
      this.chart = new uPlot(this.options(earlier), columns, this.area);
    }
    this.drawNote();
    this.drawLegend();
    this.describe();
    this.state("drawn", "");
    this.figure.dataset.points = this.points;
  }

  sort(named) {
    named.sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
  }

  /** Tell the lines that have a colour from those of the band. */
  split(named) {
    return splitLines(named, COLOURED, HIGHEST);
  }

  /** Names by the legends of a dashboard's queries, in which {{label}} stands for a label's value; others by labels. */
  named(series, names) {
    const legends = JSON.parse(this.figure.dataset.legends ?? "{}");
    const made = series.map(({ labels }, at) => {
      const legend = legends[labels.__query__ ?? ""];
      return legend ? legend.replace(/\{\{\s*([\w.]+)\s*\}\}/g, (_, label) => labels[label] ?? "") : names[at].replace("__query__=", "");
    });
    return made.map((name, at) => (made.indexOf(name) !== made.lastIndexOf(name) ? `${name} · ${names[at].replace("__query__=", "")}` : name));
  }

  /** Whether each line stands on those before it. */
  get stacks() {
    return ["area", "bars"].includes(this.figure.dataset.kind);
  }

  /** What is drawn of the lines: the values, or in a stack the sum with those below; a missing bar has no height. */
  columns() {
    if (!this.stacks) return this.data.series.map((each) => each.values);
    const below = this.data.times.map(() => 0);
    const gap = (at) => (this.figure.dataset.kind === "bars" ? below[at] : null);
    return this.data.series.map(({ values }, index) => values.map((value, at) => (value === null || value === undefined ? gap(at) : this.hidden.has(this.names[index]) ? below[at] : (below[at] += value))));
  }

  /** The lines of the range before, each beside the one of now: [{at, values}]. */
  earlierLines() {
    if (!this.earlier) return [];
    const lines = moved(this.earlier.answer, this.data.times, this.earlier.shift);
    const key = (labels) => JSON.stringify(Object.entries(labels).sort());
    const at = new Map(this.data.series.slice(0, this.coloured).map(({ labels }, index) => [key(labels), index]));
    return lines.filter(({ labels }) => at.has(key(labels))).map(({ labels, values }) => ({ at: at.get(key(labels)), values }));
  }

  emptyText() {
    return this.data.infos.find((text) => text.startsWith("No ")) ?? "No data in this range";
  }

  /** One row of chips: step and resolution, completeness, corrections; the sentences of the server are behind +n. */
  drawNote() {
    const { data } = this;
    const quality = data.quality ?? {};
    const infos = data.infos.map((text) => this.localTimes(text));
    const count = data.series.length + (data.rest?.count ?? 0);
    const chip = (text, name = "", title = "") => element("span", { className: `chip ${name}`, textContent: text, title });
    const names = [...new Set((quality.resolutions ?? []).map(({ name }) => name))];
    const chips = [chip([durationText(data.step), ...names, ...(data.extremes ? ["min–max"] : [])].join(" · "), "", "step · resolution")];
    if (count > 1) chips.push(chip(`${count.toLocaleString()} series`));
    const now = Math.min(data.now ?? Infinity, this.range.end);
    if (quality.complete_to !== undefined && now - quality.complete_to > 2000) chips.push(chip(`complete to ${this.zone.moment(quality.complete_to)}`, "warned"));
    const retractions = quality.retractions ?? [];
    if (retractions.length) chips.push(chip(`${retractions.length} retraction${retractions.length > 1 ? "s" : ""}`, "corrected", retractions.map(({ by, reason }) => `${by}: ${reason}`).join("\n")));
    const late = (quality.late ?? []).reduce((sum, { samples }) => sum + samples, 0);
    if (late) chips.push(chip(`${late.toLocaleString()} late samples`, "warned"));
    if (this.earlier) chips.push(chip(`dotted: ${this.earlier.name}`));
    if (infos.length) chips.push(element("details", { className: "chip-more" }, element("summary", { textContent: `+${infos.length}`, ariaLabel: `+${infos.length}: about this answer` }), ...infos.map((text) => element("span", { textContent: text }))));
    const open = this.note.querySelector("details")?.open ?? false;
    this.note.replaceChildren(...chips, ...(data.warnings ?? []).map((text) => element("span", { className: "warning", textContent: this.localTimes(text) })));
    if (open) this.note.querySelector("details")?.setAttribute("open", "");
  }

  /** Rewrite times in the server's sentences in the zone of the page; never the future. */
  localTimes(text) {
    return text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (instant) => {
      const ms = Date.parse(instant);
      return ms > Date.now() ? "now" : this.zone.moment(ms);
    });
  }

  /** Say in one sentence what the plot shows, for people who do not see it. */
  describe() {
    let [top, where, when] = [-Infinity, "", 0];
    for (const { name, values } of this.data.series) {
      values.forEach((value, at) => { if (value !== null && value > top) [top, where, when] = [value, name, this.data.times[at]]; });
    }
    const count = this.data.series.length + (this.data.rest?.count ?? 0);
    const gaps = this.data.series.filter(({ values }) => /[^n]n+[^n]/.test(values.map((value) => (value === null ? "n" : "v")).join(""))).length;
    const unsure = this.data.quality?.retractions?.length ? ", some data retracted" : "";
    const summary = count ? `${count} series, highest ${this.written(top)} ${where} at ${this.zone.text("clock", when)}${gaps ? `, ${gaps} with gaps` : ""}${unsure}. Arrow keys read the values, Enter pins them.` : "no data";
    this.area.setAttribute("aria-label", `${this.title}: ${summary}`);
  }

  size() {
    return { width: Math.max(this.area.clientWidth, 120), height: Math.max(this.area.clientHeight, 120) };
  }

  colour(index) {
    return getComputedStyle(this.figure).getPropertyValue(`--s${(this.slots[index] % COLOURS) + 1}`).trim();
  }

  filling(index) {
    const share = this.figure.dataset.kind === "bars" ? 60 : this.stacks ? 30 : 12;
    return `color-mix(in srgb, ${this.colour(index)} ${share}%, transparent)`;
  }

  dash(index) {
    return Math.floor(this.slots[index] / COLOURS) % DASHES.length;
  }

  /** How each line looks: the coloured ones, the grey ones, the edges of the band, and those of an earlier time. */
  lines(earlier, quiet, faint) {
    const thin = 1 / devicePixelRatio;
    const width = this.points > THIN_FROM ? thin : this.coloured <= COLOURS ? 1.5 : 1;
    const alone = this.names.length === 1 && !this.band && !earlier.length;
    const plain = { scale: "y", spanGaps: false, points: { show: false } };
    const bars = this.figure.dataset.kind === "bars";
    const floor = this.data.times.map(() => 0);
    const stackedBars = uPlot.paths.bars({ size: [0.75, 40], disp: { y0: { values: (chart, at) => (at > 1 ? chart.data[at - 1] : floor) }, y1: { values: (chart, at) => chart.data[at] } } });
    const lines = this.names.map((label, index) => (index < this.coloured
      ? {
        ...plain, label, stroke: this.colour(index), width, dash: DASHES[this.dash(index)], show: !this.hidden.has(label),
        ...(bars ? { paths: stackedBars } : {}),
        fill: alone || bars || (this.stacks && index === 0) ? this.filling(index) : undefined,
        points: { size: 4, show: this.points <= MARKED_MAX, filter: (chart, series, all) => (all ? null : lonely(chart.data[series])) },
      }
      : { ...plain, label, stroke: faint, width: thin }));
    const edges = this.band ? ["low", "high"].map((label) => ({ ...plain, label, width: 0 })) : [];
    const before = earlier.map(({ at }) => ({ ...plain, label: "earlier", stroke: this.colour(at), alpha: this.earlier.shift ? 0.5 : 0.9, width: 1.5, dash: [2, 3], show: !this.hidden.has(this.names[at]) }));
    const [low, high] = [this.names.length + 1, this.names.length + 2];
    const stacked = this.stacks && !bars ? this.names.slice(1, this.coloured).map((_, at) => ({ series: [at + 2, at + 1], fill: this.filling(at + 1) })) : [];
    const bands = [...stacked, ...(this.band ? [{ series: [high, low], fill: `color-mix(in srgb, ${quiet} 16%, transparent)` }] : [])];
    return { series: [{}, ...lines, ...edges, ...before], bands };
  }

  options(earlier) {
    const style = getComputedStyle(this.figure);
    const [quiet, grid, faint] = ["--quiet", "--grid", "--line-strong"].map((name) => style.getPropertyValue(name).trim());
    const axis = { stroke: quiet, font: `12px ${style.fontFamily}`, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    const zone = this.zone.timeZone;
    return {
      ...this.size(),
      padding: [12, 8, 7, 0],
      legend: { show: false },
      ...(zone ? { tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone) } : {}),
      cursor: { sync: { key: "page", setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 7 }, bind: { dblclick: () => () => { this.page.reset(); return null; } } },
      scales: {
        x: { time: true, range: () => (this.range ? [this.range.start / 1000, this.range.end / 1000] : [null, null]) },
        y: { range: (_, low, high) => ends(this.unit, low, high) },
      },
      axes: [
        { ...axis, space: 80, size: 24, values: timeTicks(this.zone) },
        { ...axis, size: this.unit === "bytes/s" ? 76 : 62, gap: 6, space: this.figure.classList.contains("large") ? 52 : 30, ...(this.unit.startsWith("bytes") ? { incrs: BINARY } : {}), values: (chart, ticks, index, space, step) => valueTicks(ticks, this.unit, step) },
      ],
      ...this.lines(earlier, quiet, faint),
      hooks: {
        drawAxes: [(chart) => drawUnderLines(chart, this)],
        draw: [(chart) => drawOverLines(chart, this)],
        setSelect: [(chart) => this.select(chart)],
        setCursor: [(chart) => this.point(chart)],
        ready: [(chart) => chart.over.addEventListener("click", () => this.click(chart))],
      },
    };
  }

  select(chart) {
    if (chart.select.width < 4) return;
    this.dragged = Date.now();
    const [start, end] = [chart.select.left, chart.select.left + chart.select.width].map((at) => Math.round(chart.posToVal(at, "x") * 1000));
    chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (end - start >= SHORTEST_MS) this.page.select(this, start, end);
  }

  click(chart) {
    if (Date.now() - (this.dragged ?? 0) < 300 || chart.cursor.idx === null) return;
    if (this.pinned) this.unpin();
    else this.pin();
  }

  /** Show the time under the pointer, and the highest values there. */
  point(chart) {
    if (this.pinned) return;
    const { idx, left, top } = chart.cursor;
    if (idx === null || idx === undefined || left < 0 || !(chart.over.matches(":hover") || this.keyed)) {
      this.tip.hidden = true;
      return;
    }
    this.fillTip(chart, idx, chart.posToVal(top, "y"));
    this.placeTip(chart, left, top);
    if (this.keyed) this.spoken.textContent = this.tip.innerText;
  }

  fillTip(chart, idx, near) {
    const time = this.data.times[idx];
    const rows = this.names
      .map((name, index) => ({ name, index, value: this.data.series[index].values[idx] }))
      .filter((row) => row.value !== null && row.value !== undefined && !this.hidden.has(row.name))
      .sort((one, other) => other.value - one.value);
    const nearest = this.keyedSeries !== undefined ? rows.find(({ index }) => index === this.keyedSeries)
      : this.nearest(rows, near);
    const first = nearest && rows.indexOf(nearest) >= 8 ? [nearest, ...rows.slice(0, 7)] : rows.slice(0, 8);
    const lines = first.map((row) => {
      const swatch = element("i");
      this.paint(swatch, row.index);
      return element("div", { className: row === nearest && rows.length > 1 ? "nearest" : "" }, swatch, element("span", { className: "name", textContent: row.name }), element("b", { textContent: this.written(row.value) }));
    });
    const further = rows.length - first.length + (this.data.rest?.count ?? 0);
    const more = further > 0 ? [element("div", { textContent: `and ${further.toLocaleString()} more` })] : [];
    const head = element("time", {}, this.zone.text("full", time), element("small", { textContent: ` ${this.zone.title} · ${durationText(this.data.step)}` }));
    const flag = flagsOf(this.events, chart, this.range).find(({ left }) => Math.abs(left - chart.cursor.left) < 6);
    const remarks = [...remarksAt(this, time), ...(flag?.events ?? []).slice(0, 4).map(({ text, at }) => ({ kind: "accent", text: `⚑ ${this.zone.text("clock", at)} ${text}` }))];
    this.remarks = remarks;
    this.tip.replaceChildren(head, ...(lines.length ? lines : [element("div", { textContent: silence(this, idx) })]), ...more, ...remarks.map(({ kind, text }) => element("p", { className: `remark ${kind}`, textContent: text })));
    this.tip.hidden = false;
  }

  /** The row of the tooltip that the pointer means. */
  nearest(rows, near) {
    return rows.reduce((best, row) => (!best || Math.abs(row.value - near) < Math.abs(best.value - near) ? row : best), undefined);
  }

  placeTip(chart, left, top) {
    const box = chart.over.getBoundingClientRect();
    const own = this.area.getBoundingClientRect();
    const [x, y] = [left + box.left - own.left, top + box.top - own.top];
    const right = x + 14 + this.tip.offsetWidth <= own.width ? x + 14 : Math.max(0, x - this.tip.offsetWidth - 14);
    this.tip.style.left = `${Math.min(right, Math.max(0, own.width - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(y, own.height - this.tip.offsetHeight))}px`;
  }

  /** Keep the values of a time, with what can be done there. */
  pin() {
    const { idx } = this.chart.cursor;
    if (idx === null || idx === undefined || this.tip.hidden) return;
    this.pinned = true;
    const time = this.data.times[idx];
    const acts = this.page.actsOf(this, time, this.remarks).map(({ text, href, run }) => (href
      ? element("a", { textContent: text, href })
      : element("button", { type: "button", className: "link", textContent: text, onclick: () => { this.unpin(); run(); } })));
    this.tip.classList.add("pinned");
    this.tip.append(element("div", { className: "acts" }, ...acts, element("button", { type: "button", className: "link", textContent: "✕", ariaLabel: "Unpin", onclick: () => this.unpin() })));
    this.placeTip(this.chart, this.chart.cursor.left, this.chart.cursor.top);
    if (this.keyed) this.tip.querySelector("a, button").focus();
  }

  unpin() {
    this.pinned = false;
    this.tip.classList.remove("pinned");
    this.tip.hidden = true;
    if (this.tip.contains(document.activeElement)) this.area.focus();
  }

  /** Arrow keys move along the times and the series; [ and ] zoom; p and Enter pin; Escape leaves. */
  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape" && (this.pinned || this.keyed)) { if (this.pinned) this.unpin(); else this.leave(); event.stopPropagation(); return; }
    if (!this.chart || event.target !== this.area || event.ctrlKey || event.metaKey || event.altKey) return;
    const length = this.range.end - this.range.start;
    const at = this.keyed ? this.data.times[this.chart.cursor.idx] : this.range.end - length / 2;
    const acts = {
      "]": () => this.page.zoom(at - length / 4, at + length / 4),
      "[": () => this.page.zoom(this.range.start - length / 2, this.range.end + length / 2),
      p: () => this.keyed && this.pin(),
      Enter: () => this.keyed && this.pin(),
      ArrowUp: () => this.moveSeries(1),
      ArrowDown: () => this.moveSeries(-1),
    };
    if (!(event.key in moves) && !(event.key in acts)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key in acts) { acts[event.key](); return; }
    const last = this.data.times.length - 1;
    const from = this.keyed ? this.chart.cursor.idx ?? last : moves[event.key] < 0 ? last + 1 : last;
    this.moveTo(Math.min(last, Math.max(0, from + moves[event.key] * (event.shiftKey ? 10 : 1))));
  }

  moveTo(at) {
    const values = this.data.series.map(({ values: column }) => column[at]).filter((value) => value !== null);
    const value = this.data.series[this.keyedSeries]?.values[at] ?? (values.length ? Math.max(...values) : 0);
    this.pinned = false;
    this.tip.classList.remove("pinned");
    this.keyed = true;
    this.chart.setCursor({ left: Math.max(0, this.chart.valToPos(this.data.times[at] / 1000, "x")), top: Math.max(0, this.chart.valToPos(value, "y")) });
  }

  moveSeries(step) {
    const at = this.chart.cursor.idx ?? this.data.times.length - 1;
    const rows = this.data.series.map(({ values }, index) => ({ index, value: values[at] })).filter(({ value }) => value !== null).sort((one, other) => one.value - other.value);
    if (!rows.length) return;
    const now = rows.findIndex(({ index }) => index === this.keyedSeries);
    this.keyedSeries = rows[Math.min(rows.length - 1, Math.max(0, now < 0 ? rows.length - 1 : now + step))].index;
    this.moveTo(at);
  }

  leave() {
    if (!this.keyed && !this.pinned) return;
    this.keyed = false;
    this.keyedSeries = undefined;
    this.unpin();
    this.chart?.setCursor({ left: -10, top: -10 }, false);
  }

  /** Draw a line's colour and dash into a swatch. */
  paint(swatch, index) {
    swatch.style.borderTopColor = index < this.coloured ? this.colour(index) : "var(--line-strong)";
    swatch.style.borderTopStyle = index < this.coloured ? ["solid", "dashed", "dotted"][this.dash(index)] : "solid";
  }

  drawLegend() {
    const focused = this.legend.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    if (this.figure.classList.contains("large")) this.drawLegendTable();
    else this.legend.replaceChildren(...this.data.series.slice(0, this.coloured).map((each, index) => this.legendEntry(index, element("span", { className: "value", textContent: this.written(each.values.findLast((value) => value !== null)) }))), ...this.furtherEntry());
    if (focused !== null) [...this.legend.querySelectorAll("button")].find((each) => each.dataset.name === focused)?.focus();
  }

  furtherEntry() {
    return this.further ? [element("span", { className: "further", textContent: `+${this.further.toLocaleString()} more, as a grey band` })] : [];
  }

  /** A button of a line: a click leaves it alone, or all again; with Ctrl or ⌘ it hides and shows. */
  legendEntry(index, ...more) {
    const name = this.names[index];
    const swatch = element("i");
    this.paint(swatch, index);
    const labels = Object.entries(this.data.series[index].labels).map(([key, value]) => `${key}="${value}"`).join(", ");
    const entry = element("button", { type: "button", title: labels }, swatch, element("span", { className: "name", textContent: name }), ...more);
    entry.dataset.name = name;
    entry.setAttribute("aria-pressed", String(!this.hidden.has(name)));
    entry.addEventListener("click", (event) => this.toggle(name, event.ctrlKey || event.metaKey));
    for (const [type, on] of [["mouseenter", true], ["mouseleave", false], ["focus", true], ["blur", false]]) entry.addEventListener(type, () => this.lift(index, on));
    return entry;
  }

  /** The legend of a large chart: a table that sorts by any of its columns. */
  drawLegendTable() {
    const figures = { last: (values) => values.at(-1), min: (values) => Math.min(...values), avg: (values) => values.reduce((sum, v) => sum + v, 0) / values.length, max: (values) => Math.max(...values), sum: (values) => values.reduce((sum, v) => sum + v, 0) };
    const keys = Object.keys(figures);
    const rows = this.data.series.slice(0, this.coloured).map(({ values }, index) => {
      const present = values.filter((value) => value !== null);
      return { index, figures: Object.fromEntries(keys.map((key) => [key, present.length ? figures[key](present) : null])) };
    });
    const { key: by, down } = this.order;
    if (by) rows.sort((one, other) => (down ? 1 : -1) * ((other.figures[by] ?? -Infinity) - (one.figures[by] ?? -Infinity)));
    const head = keys.map((key) => {
      const button = element("button", { type: "button", className: "link", textContent: `${key}${by === key ? (down ? " ↓" : " ↑") : ""}` });
      button.addEventListener("click", () => { this.order = { key, down: by !== key || !down }; this.drawLegend(); });
      button.dataset.name = `\u0000${key}`;
      const cell = element("th", { className: "number", scope: "col" }, button);
      if (by === key) cell.ariaSort = down ? "descending" : "ascending";
      return cell;
    });
    const body = rows.map(({ index, figures: values }) => element("tr", {}, element("th", { scope: "row" }, this.legendEntry(index)), ...keys.map((key) => element("td", { className: "number", textContent: this.written(values[key]) }))));
    const table = element("table", { className: "legend-table tight" }, element("thead", {}, element("tr", {}, element("th", { scope: "col", textContent: "Series" }), ...head)), element("tbody", {}, ...body));
    this.legend.replaceChildren(table, ...this.furtherEntry());
  }

  toggle(name, one) {
    const all = this.names.slice(0, this.coloured);
    const alone = all.every((each) => (each === name) !== this.hidden.has(each));
    if (one) this.hidden.has(name) ? this.hidden.delete(name) : this.hidden.add(name);
    else this.hidden = new Set(alone ? [] : all.filter((each) => each !== name));
    this.page.hide?.(this);
    if (this.stacks) this.redraw();
    else this.applyHidden();
  }

  applyHidden() {
    this.names.slice(0, this.coloured).forEach((name, index) => this.chart.setSeries(index + 1, { show: !this.hidden.has(name) }));
    for (const entry of this.legend.querySelectorAll("button[aria-pressed]")) entry.setAttribute("aria-pressed", String(!this.hidden.has(entry.dataset.name)));
  }

  /** Make one line thicker than the others. */
  lift(index, on) {
    const series = this.chart?.series[index + 1];
    if (!series) return;
    this.width ??= series.width;
    series.width = on ? 3 : this.width;
    this.chart.redraw(false);
  }

  /** The values as rows of text: the header, and one row per time. */
  rows() {
    return [["time", ...this.names], ...this.data.times.map((time, at) => [new Date(time).toISOString(), ...this.data.series.map(({ values }) => values[at])])];
  }

  csv() {
    const cell = (value) => (value === null ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
    return this.rows().map((row) => row.map(cell).join(",")).join("\r\n");
  }

  /** The picture with its title, on the surface of the page. */
  png() {
    const { canvas } = this.chart.ctx;
    const head = 26 * devicePixelRatio;
    const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height + head });
    const pen = copy.getContext("2d");
    const style = getComputedStyle(this.figure);
    pen.fillStyle = style.getPropertyValue("--surface");
    pen.fillRect(0, 0, copy.width, copy.height);
    pen.fillStyle = style.getPropertyValue("--ink");
    pen.font = `600 ${14 * devicePixelRatio}px ${style.fontFamily}`;
    pen.fillText(this.title, 8 * devicePixelRatio, 18 * devicePixelRatio);
    pen.drawImage(canvas, 0, head);
    return new Promise((resolve) => { copy.toBlob(resolve, "image/png"); });
  }

  /** Show the values as a table instead of the plot, or the plot again. */
  toggleTable() {
    const there = this.figure.querySelector(".chart-table");
    if (there) { there.remove(); this.area.hidden = false; return; }
    const [head, ...body] = this.rows();
    const rows = body.slice(-TABLE_ROWS).reverse().map(([time, ...values]) => element("tr", {}, element("th", { scope: "row", textContent: this.zone.moment(Date.parse(time)) }), ...values.map((value) => element("td", { className: "number", textContent: this.written(value) }))));
    const table = element("table", { className: "tight" }, element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col", textContent: text })))), element("tbody", {}, ...rows));
    const box = element("div", { className: "chart-table", tabIndex: 0, role: "region" }, table);
    box.setAttribute("aria-label", `${this.title} as a table`);
    this.area.before(box);
    this.area.hidden = true;
  }
}
