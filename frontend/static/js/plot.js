// One chart: fetches columns, draws them with uPlot, and shows notes about the answer. Enter by `Plot`.
//
// Eight lines have a colour each, 24 a colour and a dash. Of more than 24, the eight highest have colours; the others are
// grey hairlines in a grey band, and so is everything that the server only sent as a band.

const COLOURS = 8;
const DASHES = [[], [6, 3], [2, 2]]; // of lines 1–8, 9–16, 17–24
const COLOURED = COLOURS * DASHES.length;
const HIGHEST = 8; // coloured ones, where there are more lines than colours and dashes
const THIN_FROM = 20_000; // points: strokes wider than a device pixel cost ten times as much
const MARKED_MAX = 30; // points with markers; of more, only those without a neighbour have one
const ANSWER_MS = 30_000; // a live chart that waited forever would never refresh
const BUSY = 429; // too many queries of the organisation at once
const REFUSED = 400; // the expression is wrong
const RANGE_UNITS = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds of "15m", "6h", "7d". */
export function rangeMs(text) {
  const parts = /^(\d+)([mhd])$/.exec(text);
  return parts ? Number(parts[1]) * RANGE_UNITS[parts[2]] : 0;
}

const decimal = (digits) => new Intl.NumberFormat(undefined, { maximumFractionDigits: digits });
const steps = [decimal(0), decimal(1), decimal(2), decimal(3)];

function scaled(value, base, units, suffix) {
  let at = 0;
  let rest = Math.abs(value);
  while (rest >= base && at < units.length - 1) { rest /= base; at += 1; }
  const digits = rest >= 100 || rest === Math.trunc(rest) ? 0 : rest >= 10 ? 1 : 2;
  const tail = `${units[at]}${suffix}`;
  return `${steps[digits].format(Math.sign(value) * rest)}${tail && suffix ? `\u202f${tail}` : tail}`;
}

/** Write a value with its unit. */
export function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "percent") return `${steps[Math.abs(value) >= 10 ? 1 : 2].format(value)}\u202f%`;
  if (unit.startsWith("bytes")) return scaled(value, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"], unit === "bytes/s" ? "B/s" : "B");
  if (value !== 0 && Math.abs(value) < 0.01) return value.toPrecision(2);
  return Math.abs(value) < 10_000 ? steps[Math.abs(value) < 100 ? 2 : 1].format(value) : scaled(value, 1000, ["", "k", "M", "G", "T", "P"], "");
}

/** Write the values of the grid lines, with enough digits to tell neighbours apart. */
export function valueTicks(ticks, unit, step) {
  if (unit.startsWith("bytes") || ticks.some((value) => Math.abs(value) >= 10_000)) return ticks.map((value) => shown(value, unit));
  let digits = 0;
  while (digits < 12 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits += 1;
  const text = decimal(digits);
  return ticks.map((value) => `${text.format(value)}${unit === "percent" ? "\u202f%" : ""}`);
}

/** Guess the unit of an expression. */
export function unitOf(expr) {
  if (/percent|usage_/.test(expr)) return "percent";
  if (/bytes|mem_(used|free|available|total|cached|buffers)|disk_(used|free|total)|_rss|_size/.test(expr)) {
    return /rate\s*\(|irate\s*\(|deriv\s*\(/.test(expr) ? "bytes/s" : "bytes";
  }
  return "";
}

/** Name the lines by the labels that differ; a single line by all its labels. */
export function lineNames(labels) {
  if (labels.length > 1 && labels.every((each) => Object.keys(each).join() === "__name__")) return withoutCommonStart(labels.map((each) => each.__name__));
  const keys = [...new Set(labels.flatMap((each) => Object.keys(each)))].sort();
  const differing = keys.filter((key) => new Set(labels.map((each) => each[key] ?? "")).size > 1);
  const wanted = differing.length ? differing : keys;
  return labels.map((each) => {
    if (wanted.length === 1) return each[wanted[0]] || "(none)";
    const name = wanted.includes("__name__") ? each.__name__ ?? "" : "";
    const rest = wanted.filter((key) => key !== "__name__" && each[key]).map((key) => `${key}=${each[key]}`);
    return [name, rest.join(", ")].filter(Boolean).join(" · ") || "value";
  });
}

/** cpu_usage_user, cpu_usage_system: user, system. */
function withoutCommonStart(names) {
  let start = names[0];
  while (start && !names.every((name) => name.startsWith(start) && name !== start)) start = start.slice(0, -1);
  const cut = start.lastIndexOf("_") + 1;
  return names.map((name) => name.slice(cut));
}

const clockTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const clockSeconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayOnly = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** Write one line per tick: the time, or the date where a day begins. */
function timeTicks(chart, ticks, axis, space, increment) {
  return ticks.map((tick) => {
    const moment = new Date(tick * 1000);
    const midnight = moment.getHours() + moment.getMinutes() + moment.getSeconds() === 0;
    return (midnight ? dayOnly : increment < 60 ? clockSeconds : clockTime).format(moment);
  });
}

const dayAndClock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

/** Rewrite times in the server's notes in the browser's time zone; with the date, unless it is today; never the future. */
function localTimes(text) {
  return text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (instant) => {
    const moment = new Date(instant);
    if (moment > Date.now()) return "now";
    return (moment.toDateString() === new Date().toDateString() ? clockSeconds : dayAndClock).format(moment);
  });
}

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : -Infinity);

/** Split lines into the highest by their mean, as the server chooses them, and the grey rest: [coloured, grey]. */
export function splitLines(lines) {
  if (lines.length <= COLOURED) return [lines, []];
  const means = new Map(lines.map((each) => [each, mean(each.values.filter(Number.isFinite))]));
  const highest = new Set([...lines].sort((one, other) => means.get(other) - means.get(one)).slice(0, HIGHEST));
  return [lines.filter((each) => highest.has(each)), lines.filter((each) => !highest.has(each))];
}

/** The lowest and highest value of several lines and bands at each time: {low, high}. */
export function bandOf(lines, rest) {
  const rows = [...lines.map(({ values }) => ({ low: values, high: values })), ...(rest ? [rest] : [])];
  if (!rows.length) return null;
  const outer = (side, choose) => rows[0][side].map((_, at) => rows.reduce((value, row) => (row[side][at] === null ? value : value === null ? row[side][at] : choose(value, row[side][at])), null));
  return { low: outer("low", Math.min), high: outer("high", Math.max) };
}

const BINARY = Array.from({ length: 56 }, (_, power) => 2 ** power);

function stepText(ms) {
  const [size, unit] = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]].find(([each]) => ms >= each) ?? [1, "ms"];
  return `${ms / size} ${unit}`;
}

function ends(unit, low, high) {
  if (low === null || high === null) return [0, 1];
  if (unit === "percent" && low >= 0 && high <= 100) return [0, Math.min(100, Math.max(10, high * 1.15))];
  const room = (high - low || Math.abs(high) || 1) * 0.1;
  const floor = low >= 0 && low - room < high * 0.6 ? 0 : low - room;
  return [floor, high + room];
}

/** The points without a neighbour, which no line shows. */
function lonely(values) {
  const absent = (value) => value === null || value === undefined;
  return values.flatMap((value, at) => (!absent(value) && absent(values[at - 1]) && absent(values[at + 1]) ? [at] : []));
}

const element = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

export class Plot {
  constructor(figure, { onZoom, onReset, onRefusal }) {
    this.figure = figure;
    this.area = figure.querySelector(".chart-area");
    this.veil = figure.querySelector(".chart-veil");
    this.legend = figure.querySelector(".legend");
    this.note = figure.querySelector(".chart-note");
    this.onZoom = onZoom;
    this.onReset = onReset;
    this.onRefusal = onRefusal; // with what is wrong about the expression, or null
    this.hidden = new Set();
    this.asked = 0;
    this.tip = element("div", { className: "tip", hidden: true });
    this.spoken = element("div", { className: "visually-hidden" });
    this.spoken.setAttribute("aria-live", "polite");
    this.area.append(this.tip, this.spoken);
    this.area.tabIndex = 0;
    this.area.setAttribute("role", "application");
    this.area.setAttribute("aria-roledescription", "chart");
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => this.chart?.setSize(this.size())).observe(this.area);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.data && this.draw(this.data));
  }

  get unit() {
    const unit = this.figure.dataset.unit;
    return unit === "auto" ? unitOf(this.figure.dataset.expr) : unit;
  }

  /** Fetch the range and draw it. `quiet`: a refresh, which keeps the chart if it fails. */
  async load(range, quiet = false) {
    const { start, end, asof } = range;
    const turn = ++this.asked;
    this.stop?.abort(); // the server cancels queries without a client
    this.stop = new AbortController();
    const late = setTimeout((stop) => stop.abort(new DOMException("", "TimeoutError")), ANSWER_MS, this.stop);
    const address = new URL(this.figure.dataset.url, location.href);
    for (const [name, value] of Object.entries({ expr: this.figure.dataset.expr, start, end })) address.searchParams.set(name, value);
    if (asof) address.searchParams.set("asof", asof);
    if (this.figure.dataset.top) address.searchParams.set("top", this.figure.dataset.top);
    if (!quiet) this.state("loading", this.chart ? "" : "Loading…");
    try {
      const headers = { Accept: "application/json" };
      const answer = await fetch(address, { headers, credentials: "same-origin", signal: this.stop.signal });
      const body = await answer.json();
      if (turn !== this.asked) return;
      if (answer.status === BUSY && !quiet) this.comeAgain(range, turn, Number(answer.headers.get("Retry-After")));
      if (!answer.ok) throw Object.assign(new Error(body.error ?? `The server answered ${answer.status}.`), { refused: answer.status === REFUSED });
      this.onRefusal?.(null);
      this.draw(body, { start, end });
    } catch (error) {
      if (turn !== this.asked) return;
      const text = error instanceof TypeError ? "The server cannot be reached."
        : error instanceof SyntaxError ? "The server sent an invalid answer."
        : error.name === "TimeoutError" ? "The server did not answer in time." : error.message;
      this.onRefusal?.(error.refused ? text : null);
      if (quiet && this.figure.dataset.state === "drawn") this.note.textContent = `Not refreshed: ${text}`;
      else this.state("error", error.refused && this.onRefusal ? "The expression above cannot be drawn." : text);
    } finally {
      clearTimeout(late);
    }
  }

  /** The server is busy: try again when it says so, unless another request has started meanwhile. */
  comeAgain(range, turn, seconds) {
    setTimeout(() => turn === this.asked && this.load(range), (seconds || 2) * 1000);
  }

  state(name, text) {
    this.figure.dataset.state = name;
    this.veil.textContent = text;
  }

  draw(data, range = this.range) {
    const names = lineNames(data.series.map((each) => each.labels));
    const named = data.series.map((each, index) => ({ ...each, name: names[index] }));
    named.sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
    const [coloured, grey] = splitLines(named);
    this.band = bandOf(grey, data.rest);
    this.further = grey.length + (data.rest?.count ?? 0);
    this.coloured = coloured.length;
    this.data = data = { ...data, series: [...coloured, ...grey] };
    this.range = range;
    this.names = data.series.map((each) => each.name);
    this.drawNote(data);
    if (!data.series.length) {
      this.chart?.destroy();
      this.chart = null;
      this.legend.replaceChildren();
      this.describe();
      this.state("empty", this.emptyText(data));
      return;
    }
    const columns = [data.times.map((ms) => ms / 1000), ...data.series.map((each) => each.values), ...(this.band ? [this.band.low, this.band.high] : [])];
    this.points = data.series.reduce((sum, each) => sum + each.values.filter((v) => v !== null).length, 0);
    const shape = JSON.stringify([this.names, this.unit, this.coloured, this.points > THIN_FROM, this.points <= MARKED_MAX, !this.band, matchMedia("(prefers-color-scheme: dark)").matches]);
    if (this.chart && this.shape === shape) {
      this.chart.setData(columns);
    } else {
      this.shape = shape;
      this.chart?.destroy();
      this.chart = new uPlot(this.options(), columns, this.area);
    }
    this.drawLegend();
    this.describe();
    this.state("drawn", "");
    this.figure.dataset.points = this.points;
  }

  emptyText(data) {
    return data.infos.find((text) => text.startsWith("No ")) ?? "No data in this range";
  }

  /** One row of chips: step and resolution, number of series; the sentences of the server are behind ⓘ. */
  drawNote(data) {
    const infos = data.infos.map(localTimes);
    const kinds = [["raw samples", "raw"], ["hour aggregates", "hourly"], ["day aggregates", "daily"]];
    const resolutions = kinds.filter(([start]) => infos.some((text) => text.startsWith(start))).map(([, word]) => word);
    const count = data.series.length + (data.rest?.count ?? 0);
    const chip = (text, name = "") => element("span", { className: `chip ${name}`, textContent: text });
    const corrections = infos.filter((text) => text.startsWith("retraction") || / retractions? (in|may be in) effect/.test(text));
    const chips = [chip([stepText(data.step), ...resolutions].join(" · "))];
    if (count > 1) chips.push(chip(`${count.toLocaleString()} series`));
    for (const text of corrections) chips.push(chip(text, "corrected"));
    const others = infos.filter((text) => !corrections.includes(text));
    if (others.length) {
      const open = this.note.querySelector("details")?.open ?? false;
      chips.push(element("details", { className: "chip-more", open }, element("summary", { textContent: `+${others.length}`, ariaLabel: "About this answer" }), ...others.map((text) => element("span", { textContent: text }))));
    }
    this.note.replaceChildren(...chips, ...(data.warnings ?? []).map((text) => element("span", { className: "warning", textContent: localTimes(text) })));
  }

  /** Say in one sentence what the plot shows, for people who do not see it. */
  describe() {
    const title = this.figure.closest(".card")?.querySelector("h2")?.textContent ?? this.figure.dataset.expr;
    let [top, where, when] = [-Infinity, "", 0];
    for (const { name, values } of this.data.series) {
      values.forEach((value, at) => { if (value !== null && value > top) [top, where, when] = [value, name, this.data.times[at]]; });
    }
    const count = this.data.series.length + (this.data.rest?.count ?? 0);
    const gaps = this.data.series.filter(({ values }) => /[^n]n+[^n]/.test(values.map((value) => (value === null ? "n" : "v")).join(""))).length;
    const summary = count ? `${count} series, highest ${shown(top, this.unit)} ${where} at ${clockTime.format(when)}${gaps ? `, ${gaps} with gaps` : ""}. Arrow keys read the values.` : "no data";
    this.area.setAttribute("aria-label", `${title}: ${summary}`);
  }

  size() {
    return { width: Math.max(this.area.clientWidth, 120), height: Math.max(this.area.clientHeight, 120) };
  }

  colour(index) {
    return getComputedStyle(this.figure).getPropertyValue(`--s${(index % COLOURS) + 1}`).trim();
  }

  options() {
    const style = getComputedStyle(this.figure);
    const [quiet, grid] = ["--quiet", "--grid"].map((name) => style.getPropertyValue(name).trim());
    const axis = { stroke: quiet, font: `12px ${style.fontFamily}`, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    const alone = this.names.length === 1;
    const thin = 1 / devicePixelRatio;
    const width = this.points > THIN_FROM ? thin : this.coloured <= COLOURS ? 1.5 : 1;
    const faint = style.getPropertyValue("--line-strong").trim();
    const lines = this.names.map((label, index) => (index < this.coloured
      ? {
        label, scale: "y", stroke: this.colour(index), width, dash: DASHES[Math.floor(index / COLOURS)], spanGaps: false, show: !this.hidden.has(label),
        fill: alone && !this.band ? `color-mix(in srgb, ${this.colour(index)} 12%, transparent)` : undefined,
        points: { size: 4, show: this.points <= MARKED_MAX, filter: (chart, series, all) => (all ? null : lonely(chart.data[series])) },
      }
      : { label, scale: "y", stroke: faint, width: thin, spanGaps: false, points: { show: false } }));
    const edges = this.band ? ["low", "high"].map((label) => ({ label, scale: "y", width: 0, spanGaps: false, points: { show: false } })) : [];
    const [low, high] = [this.names.length + 1, this.names.length + 2];
    const bands = this.band ? [{ series: [high, low], fill: `color-mix(in srgb, ${quiet} 16%, transparent)` }] : [];
    return {
      ...this.size(),
      padding: [10, 8, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "page", setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 7 }, bind: { dblclick: () => () => { this.onReset(); return null; } } },
      scales: {
        x: { time: true, range: () => (this.range ? [this.range.start / 1000, this.range.end / 1000] : [null, null]) },
        y: { range: (_, low, high) => ends(this.unit, low, high) },
      },
      axes: [
        { ...axis, space: 80, size: 30, values: timeTicks },
        { ...axis, size: this.unit === "bytes/s" ? 76 : 62, gap: 6, space: this.figure.classList.contains("large") ? 52 : 36, ...(this.unit.startsWith("bytes") ? { incrs: BINARY } : {}), values: (chart, ticks, index, space, step) => valueTicks(ticks, this.unit, step) },
      ],
      series: [{}, ...lines, ...edges],
      bands,
      hooks: {
        setSelect: [(chart) => {
          if (chart.select.width < 4) return;
          const [start, end] = [chart.select.left, chart.select.left + chart.select.width].map((at) => Math.round(chart.posToVal(at, "x") * 1000));
          chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          if (end - start >= 5000) this.onZoom(start, end);
        }],
        setCursor: [(chart) => this.point(chart)],
      },
    };
  }

  /** Show the time under the pointer, and the highest values there. */
  point(chart) {
    const { idx, left, top } = chart.cursor;
    if (idx === null || idx === undefined || left < 0 || !(chart.over.matches(":hover") || this.keyed)) {
      this.tip.hidden = true;
      return;
    }
    const rows = this.names
      .map((name, index) => ({ name, index, value: chart.data[index + 1][idx] }))
      .filter((row) => row.value !== null && row.value !== undefined && !this.hidden.has(row.name))
      .sort((one, other) => other.value - one.value);
    const time = element("time", { textContent: new Date(chart.data[0][idx] * 1000).toLocaleString() });
    const lines = rows.slice(0, 8).map((row) => {
      const swatch = element("i");
      this.paint(swatch, row.index);
      return element("div", {}, swatch, element("span", { className: "name", textContent: row.name }), element("b", { textContent: shown(row.value, this.unit) }));
    });
    const further = rows.length - lines.length + (this.data.rest?.count ?? 0);
    const more = further > 0 ? [element("div", { textContent: `and ${further.toLocaleString()} more` })] : [];
    this.tip.replaceChildren(time, ...(lines.length ? lines : [element("div", { textContent: "no value" })]), ...more);
    this.tip.hidden = false;
    const box = chart.over.getBoundingClientRect();
    const own = this.area.getBoundingClientRect();
    const [x, y] = [left + box.left - own.left, top + box.top - own.top];
    this.tip.style.left = `${x + this.tip.offsetWidth + 24 > own.width ? Math.max(0, x - this.tip.offsetWidth - 14) : x + 14}px`;
    this.tip.style.top = `${Math.max(0, Math.min(y, own.height - this.tip.offsetHeight))}px`;
    if (this.keyed) this.spoken.textContent = this.tip.innerText;
  }

  /** Arrow keys move along the times, ten at once with Shift; Escape leaves; + and - zoom. */
  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (!this.chart || event.target !== this.area || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") { this.leave(); return; }
    if (!(event.key in moves)) return;
    event.preventDefault();
    const last = this.data.times.length - 1;
    const from = this.keyed ? this.chart.cursor.idx ?? last : moves[event.key] < 0 ? last + 1 : last;
    const at = Math.min(last, Math.max(0, from + moves[event.key] * (event.shiftKey ? 10 : 1)));
    const values = this.data.series.map(({ values }) => values[at]).filter((value) => value !== null);
    this.keyed = true;
    const top = this.chart.valToPos(values.length ? Math.max(...values) : 0, "y");
    this.chart.setCursor({ left: Math.max(0, this.chart.valToPos(this.data.times[at] / 1000, "x")), top: Math.max(0, top) });
  }

  leave() {
    if (!this.keyed) return;
    this.keyed = false;
    this.tip.hidden = true;
    this.chart?.setCursor({ left: -10, top: -10 }, false);
  }

  /** Draw a line's colour and dash into a swatch. */
  paint(swatch, index) {
    swatch.style.borderTopColor = index < this.coloured ? this.colour(index) : "var(--line-strong)";
    swatch.style.borderTopStyle = index < this.coloured ? ["solid", "dashed", "dotted"][Math.floor(index / COLOURS)] : "solid";
  }

  drawLegend() {
    const further = this.further ? [element("span", { className: "further", textContent: `+${this.further.toLocaleString()} more, as a grey band` })] : [];
    this.legend.replaceChildren(...this.data.series.slice(0, this.coloured).map((each, index) => {
      const name = this.names[index];
      const last = each.values.findLast((value) => value !== null);
      const swatch = element("i");
      this.paint(swatch, index);
      const entry = element("button", { type: "button", title: Object.entries(each.labels).map(([k, v]) => `${k}="${v}"`).join(", ") }, swatch,
        element("span", { className: "name", textContent: name }), element("span", { className: "value", textContent: shown(last, this.unit) }));
      entry.setAttribute("aria-pressed", String(!this.hidden.has(name)));
      entry.addEventListener("click", () => this.toggle(name, index, entry));
      return entry;
    }), ...further);
  }

  toggle(name, index, entry) {
    const show = this.hidden.has(name);
    if (show) this.hidden.delete(name);
    else this.hidden.add(name);
    this.chart.setSeries(index + 1, { show });
    entry.setAttribute("aria-pressed", String(show));
  }
}
