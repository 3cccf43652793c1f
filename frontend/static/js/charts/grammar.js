// The grammar of charts: numbers with units, names of lines, ranges as people write them; and,
// from `drawUnderLines` on, what stands on a chart beside its lines: how sure the numbers are, alerts, thresholds,
// events. It is drawn on uPlot's own canvas, below and above the lines; the same states stand as a strip under the time
// axis.

const RANGE_UNITS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const DAY = RANGE_UNITS.d;
export const BINARY = Array.from({ length: 56 }, (_, power) => 2 ** power);

/** Milliseconds of "15m", "6h", "7d". */
export function rangeMs(text) {
  const parts = /^(\d+)([smhdw])$/.exec(text);
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
  if (unit === "bits/s") return scaled(value, 1000, ["", "k", "M", "G", "T"], "bit/s");
  if (unit === "seconds") return secondsText(value);
  if (value !== 0 && Math.abs(value) < 0.01) return value.toPrecision(2);
  return Math.abs(value) < 10_000 ? steps[Math.abs(value) < 100 ? 2 : 1].format(value) : scaled(value, 1000, ["", "k", "M", "G", "T", "P"], "");
}

/** Seconds in the unit that suits them: 250 µs, 12 ms, 3 min. */
function secondsText(value) {
  const [size, unit] = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]].find(([each]) => Math.abs(value) >= each) ?? [1e-9, "ns"];
  return value === 0 ? "0\u202fs" : `${steps[Math.abs(value / size) >= 100 ? 0 : 2].format(value / size)}\u202f${unit}`;
}

/** Write the values of the grid lines, with enough digits to tell neighbours apart. */
export function valueTicks(ticks, unit, step) {
  if (unit.startsWith("bytes") || unit === "bits/s" || unit === "seconds" || ticks.some((value) => Math.abs(value) >= 10_000)) return ticks.map((value) => shown(value, unit));
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

export function durationText(ms) {
  const [size, unit] = [[DAY, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]].find(([each]) => ms >= each) ?? [1, "ms"];
  return `${steps[1].format(ms / size)} ${unit}`;
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

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/** Read a time: now-2h, yesterday, 22 Nov 20:00, 2026-11-22 20:00, seconds or ms since 1970. NaN if it is none. */
export function parseMoment(text, zone, now = Date.now()) {
  const given = text.trim().toLowerCase();
  const relative = /^(?:now)?\s*(?:([-+])\s*(\d+)\s*([smhdw]))?$/.exec(given);
  if (relative && given) return now + (relative[1] === "-" ? -1 : 1) * Number(relative[2] ?? 0) * (RANGE_UNITS[relative[3]] ?? 0);
  if (/^\d{9,10}$/.test(given)) return Number(given) * 1000;
  if (/^\d{12,14}$/.test(given)) return Number(given);
  if (/^\d{4}-\d\d-\d\dt.*(z|[+-]\d\d:?\d\d)$/.test(given)) return Date.parse(given.toUpperCase());
  const [, date = "", clock = ""] = /^(.*?)[t,\s]*(\d{1,2}:\d\d(?::\d\d)?)?$/.exec(given) ?? [];
  const [hour = 0, minute = 0, second = 0] = clock.split(":").filter(Boolean).map(Number);
  if (hour > 23 || minute > 59 || second > 59) return NaN;
  const today = zone.fields(now);
  const day = { "": 0, today: 0, yesterday: -1 }[date];
  if (day !== undefined && given) return zone.time(today.year, today.month, today.day + day, hour, minute, second);
  const iso = /^(\d{4})-(\d\d?)-(\d\d?)$/.exec(date);
  if (iso) return zone.time(...iso.slice(1).map(Number), hour, minute, second);
  const named = /^(\d{1,2})\.?\s+([a-z]{3})[a-z]*\.?,?(?:\s+(\d{4}))?$/.exec(date);
  const month = named ? MONTHS.indexOf(named[2]) + 1 : 0;
  if (!month) return NaN;
  const ms = zone.time(Number(named[3] ?? today.year), month, Number(named[1]), hour, minute, second);
  return named[3] || ms <= now + DAY ? ms : zone.time(today.year - 1, month, Number(named[1]), hour, minute, second);
}

/** Read a pasted pair of times: [from, to] in ms, or null. */
export function parsePair(text, zone) {
  const parts = text.trim().split(/\s+(?:to|until|bis)\s+|\s+[–—-]\s+|\n/);
  const [from, to] = parts.map((each) => parseMoment(each, zone));
  return parts.length === 2 && from < to ? [from, to] : null;
}

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : -Infinity);

/** Split lines into the ``highest`` ones by their mean, as the server chooses them, and the grey rest, if there are over ``most``. */
export function splitLines(lines, most, highest) {
  if (lines.length <= most) return [lines, []];
  const means = new Map(lines.map((each) => [each, mean(each.values.filter(Number.isFinite))]));
  const chosen = new Set([...lines].sort((one, other) => means.get(other) - means.get(one)).slice(0, highest));
  return [lines.filter((each) => chosen.has(each)), lines.filter((each) => !chosen.has(each))];
}

/** The lowest and highest value of several lines and bands at each time: {low, high}. */
export function bandOf(lines, rest) {
  const rows = [...lines.map(({ values }) => ({ low: values, high: values })), ...(rest ? [rest] : [])];
  if (!rows.length) return null;
  const outer = (side, choose) => rows[0][side].map((_, at) => rows.reduce((value, row) => (row[side][at] === null ? value : value === null ? row[side][at] : choose(value, row[side][at])), null));
  return { low: outer("low", Math.min), high: outer("high", Math.max) };
}

/** Put the later points of an answer after those that are there; columns that a browser has stay as they are. */
export function joined(held, answer) {
  if (answer.after === undefined || !held) return answer;
  const count = held.times.filter((time) => time <= answer.after).length;
  const column = (old, late) => [...old.slice(0, count), ...late];
  return {
    ...answer,
    times: column(held.times, answer.times),
    series: answer.series.map((each, at) => ({ ...each, values: column(held.series[at].values, each.values) })),
    ...(answer.rest ? { rest: { ...answer.rest, low: column(held.rest.low, answer.rest.low), high: column(held.rest.high, answer.rest.high) } } : {}),
  };
}

/** The columns without the points before a range. */
export function within(answer, { start }) {
  const first = answer.times.findIndex((time) => time > start - answer.step);
  if (first <= 0) return answer;
  const cut = (column) => column.slice(first);
  return {
    ...answer,
    times: cut(answer.times),
    series: answer.series.map((each) => ({ ...each, values: cut(each.values) })),
    ...(answer.rest ? { rest: { ...answer.rest, low: cut(answer.rest.low), high: cut(answer.rest.high) } } : {}),
  };
}

/** Move the lines of an earlier time to the times of a chart. */
export function moved(answer, times, shift) {
  const at = new Map(answer.times.map((time, index) => [time, index]));
  const half = answer.step / 2;
  const index = (time) => at.get(time - shift) ?? at.get(Math.round((time - shift) / (half || 1)) * (half || 1));
  return answer.series.map((each) => ({ labels: each.labels, values: times.map((time) => each.values[index(time)] ?? null) }));
}

const STRIP = 4; // px
const FLAG = 12; // px between two events; nearer ones are one flag with their number

/** What an overlay draws with: colours of the page, and the pixels of a chart. */
function frame(chart, figure) {
  const style = getComputedStyle(figure);
  const { left, top, width, height } = chart.bbox;
  const x = (ms) => Math.min(Math.max(chart.valToPos(ms / 1000, "x", true), left), left + width);
  return { ctx: chart.ctx, left, top, width, height, x, ratio: devicePixelRatio, colour: (name) => style.getPropertyValue(`--${name}`).trim(), font: style.fontFamily };
}

let hatches = new Map(); // by colour: a pattern of diagonal lines

function hatch(ctx, colour) {
  if (!hatches.has(colour)) {
    const tile = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
    const pen = tile.getContext("2d");
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    for (const at of [-8, 0, 8]) { pen.moveTo(at, 8); pen.lineTo(at + 8, 0); }
    pen.stroke();
    hatches.set(colour, ctx.createPattern(tile, "repeat"));
    if (hatches.size > 20) hatches = new Map();
  }
  return hatches.get(colour);
}

/** Unite spans that touch: of many alerts at once, the wash is no darker than that of one. */
export function united(spans) {
  const all = [];
  for (const { start, end } of [...spans].sort((one, other) => one.start - other.start)) {
    const last = all.at(-1);
    if (last && start <= last.end) last.end = Math.max(last.end, end);
    else all.push({ start, end });
  }
  return all;
}

/** Draw what lies behind the lines: alerts as a wash, what is not yet complete as hatching, retracted ranges. */
export function drawUnderLines(chart, { figure, data, range }) {
  const { ctx, left, top, width, height, x, ratio, colour } = frame(chart, figure);
  ctx.save();
  for (const { start, end } of united((data.alerts ?? []).map((each) => ({ start: each.start, end: each.end ?? range.end })))) {
    const [from, to] = [x(start), x(end)];
    ctx.globalAlpha = 0.08;
    ctx.fillStyle = colour("bad");
    ctx.fillRect(from, top, to - from, height);
    ctx.globalAlpha = 1;
    ctx.fillRect(from, top, Math.max(to - from, ratio), 2 * ratio);
  }
  for (const { start, end } of data.quality?.retractions ?? []) {
    ctx.globalAlpha = 0.08;
    ctx.fillStyle = colour("corrected");
    ctx.fillRect(x(start), top, x(end) - x(start), height);
  }
  ctx.globalAlpha = 1;
  const complete = x(data.quality?.complete_to ?? range.end);
  const now = x(Math.min(data.now ?? range.end, range.end));
  if (now - complete >= 2 * ratio) {
    ctx.globalAlpha = 0.25;
    ctx.fillStyle = hatch(ctx, colour("quiet"));
    ctx.fillRect(complete, top, Math.min(now, left + width) - complete, height);
  }
  ctx.restore();
}

/** Draw what lies on the lines: thresholds, brackets of retractions, late hours, resolutions, events, the strip. */
export function drawOverLines(chart, plot) {
  const { data, events } = plot;
  const view = frame(chart, plot.figure);
  const { ctx, left, top, width, height, x, ratio, colour } = view;
  ctx.save();
  ctx.setLineDash([]); // a line of an earlier time may have been the last one drawn
  ctx.font = `${11 * ratio}px ${view.font}`;
  for (const { value } of data.thresholds ?? []) {
    const y = chart.valToPos(value, "y", true);
    if (y < top || y > top + height) continue;
    line(ctx, [left, y, left + width, y], colour("bad"), ratio, [6 * ratio, 4 * ratio]);
    label(view, plot.written(value), left + width - 4 * ratio, y - 4 * ratio, "bad", "right");
  }
  const ranges = (data.quality?.resolutions ?? []).filter(({ end }, at, all) => at < all.length - 1 && x(end) > left + 4 * ratio && x(end) < left + width - 4 * ratio);
  for (const { name, end } of ranges) {
    const next = data.quality.resolutions.find(({ start }) => start >= end)?.name ?? "raw";
    if (next === name) continue;
    line(ctx, [x(end), top, x(end), top + height], colour("quiet"), ratio, []);
    label(view, `${name} │ ${next}`, x(end), top + 12 * ratio, "quiet", "center");
  }
  for (const { start, end } of data.quality?.retractions ?? []) bracket(view, x(start), x(end));
  for (const { start, end } of data.quality?.late ?? []) diamond(view, (x(start) + x(end)) / 2);
  if (chart.scales.y.min > 0) brokenAxis(view);
  for (const flag of flagsOf(events, chart, plot.range)) drawFlag(view, flag);
  drawStrip(view, chart, plot);
  ctx.restore();
}

function line(ctx, [x1, y1, x2, y2], colour, width, dash) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  ctx.lineTo(x2, y2);
  ctx.stroke();
  ctx.setLineDash([]);
}

function label({ ctx, colour, ratio, left, width }, text, x, y, name, align) {
  ctx.textAlign = align;
  const half = ctx.measureText(text).width / 2;
  const at = align === "center" ? Math.min(Math.max(x, left + half), left + width - half) : x;
  ctx.lineWidth = 3 * ratio;
  ctx.strokeStyle = colour("surface");
  ctx.strokeText(text, at, y);
  ctx.fillStyle = colour(name);
  ctx.fillText(text, at, y);
}

/** Draw a bracket over a retracted range; its middle is wide enough to be seen, however short the range. */
function bracket({ ctx, top, ratio, colour }, from, to) {
  const [y, drop] = [top + 3 * ratio, 6 * ratio];
  const end = Math.max(to, from + 4 * ratio);
  ctx.strokeStyle = colour("corrected");
  ctx.lineWidth = 2 * ratio;
  ctx.beginPath();
  ctx.moveTo(from, y + drop);
  ctx.lineTo(from, y);
  ctx.lineTo(end, y);
  ctx.lineTo(end, y + drop);
  ctx.stroke();
}

function diamond({ ctx, top, height, ratio, colour }, x) {
  const [y, size] = [top + height - 5 * ratio, 4 * ratio];
  ctx.beginPath();
  for (const [dx, dy] of [[0, -size], [size, 0], [0, size], [-size, 0]]) ctx.lineTo(x + dx, y + dy);
  ctx.closePath();
  ctx.fillStyle = colour("surface");
  ctx.fill();
  ctx.strokeStyle = colour("warn");
  ctx.lineWidth = 1.5 * ratio;
  ctx.stroke();
}

/** Say that the axis does not begin at 0: a zigzag at its foot. */
function brokenAxis({ ctx, left, top, height, ratio, colour }) {
  const y = top + height;
  ctx.strokeStyle = colour("quiet");
  ctx.lineWidth = ratio;
  ctx.beginPath();
  for (const [dx, dy] of [[0, -14], [4, -12], [-4, -8], [4, -4], [0, -2]]) ctx.lineTo(left + dx * ratio, y + dy * ratio);
  ctx.stroke();
}

/** Group events that are nearer to each other than a flag is wide: [{left, events}], left in CSS pixels. */
export function flagsOf(events, chart, range) {
  const flags = [];
  for (const event of [...(events ?? [])].sort((one, other) => one.at - other.at)) {
    if (event.at < range.start || event.at > range.end) continue;
    const left = chart.valToPos(event.at / 1000, "x");
    const last = flags.at(-1);
    if (last && left - last.left < FLAG) last.events.push(event);
    else flags.push({ left, events: [event] });
  }
  return flags;
}

function drawFlag(view, { left, events }) {
  const { ctx, top, ratio, colour } = view;
  const x = view.left + left * ratio;
  line(ctx, [x, top, x, top + 9 * ratio], colour("accent"), ratio, []);
  ctx.fillStyle = colour("accent");
  ctx.beginPath();
  ctx.moveTo(x, top - ratio);
  ctx.lineTo(x + 7 * ratio, top + 2.5 * ratio);
  ctx.lineTo(x, top + 6 * ratio);
  ctx.fill();
  if (events.length < 2) return;
  const text = String(events.length);
  const fits = x + 9 * ratio + ctx.measureText(text).width <= view.left + view.width;
  label(view, text, x + (fits ? 9 : -4) * ratio, top + 8 * ratio, "accent", fits ? "left" : "right");
}

/** The share of series that have a value at each time; 0 where none has. */
export function presence({ series, rest }, count) {
  const some = new Array(count).fill(0);
  for (const { values } of series) for (let at = 0; at < count; at += 1) if (values[at] !== null && values[at] !== undefined) some[at] += 1;
  if (rest) for (let at = 0; at < count; at += 1) if (rest.low[at] !== null) some[at] += rest.count;
  const all = series.length + (rest?.count ?? 0);
  return some.map((each) => (all ? each / all : 0));
}

function drawStrip(view, chart, plot) {
  const { ctx, left, width, x, ratio, colour } = view;
  const { data, range } = plot;
  const [y, height] = [ctx.canvas.height - (STRIP + 1) * ratio, STRIP * ratio];
  const shares = presence(data, data.times.length);
  const step = data.extremes ? data.step / 2 : data.step;
  ctx.fillStyle = colour("line-strong");
  const now = Math.min(data.now ?? range.end, range.end);
  let gap = null;
  const closeGap = (to) => {
    if (gap !== null && to - gap > 2 * ratio) {
      ctx.strokeStyle = colour("quiet");
      ctx.lineWidth = ratio;
      ctx.strokeRect(gap + ratio / 2, y + ratio / 2, to - gap - ratio, height - ratio);
    }
    gap = null;
  };
  data.times.forEach((time, at) => {
    const [from, to] = [x(time - step), x(Math.min(time, now))].map(Math.round);
    if (shares[at]) {
      closeGap(from);
      ctx.fillRect(from, y + height * (1 - shares[at]), to - from, height * shares[at]);
    } else gap ??= from;
  });
  closeGap(x(now));
  const cells = [
    ...(data.quality?.late ?? []).map(({ start, end }) => [start, end, colour("warn")]),
    ...(data.quality?.retractions ?? []).map(({ start, end }) => [start, end, colour("corrected")]),
  ];
  for (const [start, end, fill] of cells) {
    ctx.fillStyle = fill;
    ctx.fillRect(x(start), y, Math.max(x(Math.min(end, now)) - x(start), 2 * ratio), height);
  }
  const complete = x(data.quality?.complete_to ?? now);
  if (x(now) - complete >= 2 * ratio) {
    ctx.fillStyle = colour("surface");
    ctx.fillRect(complete, y, x(now) - complete, height);
    ctx.fillStyle = hatch(ctx, colour("quiet"));
    ctx.fillRect(complete, y, Math.min(x(now), left + width) - complete, height);
  }
}

/** Say what is special about a time of a chart, in sentences: [{text, kind}]; empty for one that is sure. */
export function remarksAt(plot, time) {
  const { data, zone } = plot;
  const { quality = {} } = data;
  const step = data.step;
  const within = ({ start, end }) => start < time && time - step <= end;
  const remarks = [];
  for (const each of (quality.retractions ?? []).filter(within)) remarks.push({ kind: "corrected", text: `retracted by ${each.by}: “${each.reason}”`, retraction: each });
  for (const each of (quality.late ?? []).filter(within)) remarks.push({ kind: "warn", text: `${each.samples.toLocaleString()} samples came late, by ${zone.moment(each.at)}` });
  if (time > (quality.complete_to ?? Infinity)) remarks.push({ kind: "", text: `so far · complete to ${zone.moment(quality.complete_to)}` });
  for (const each of (data.alerts ?? []).filter(({ start, end }) => start <= time && time < (end ?? Infinity))) remarks.push({ kind: "bad", text: `▲ ${each.name}${each.labels.host ? ` · ${each.labels.host}` : ""} since ${zone.moment(each.start)}`, rule: each.rule });
  return remarks;
}

/** Say since when nothing came, for a time without any value; empty where something has one. */
export function silence(plot, at) {
  const { times, series } = plot.data;
  if (series.some(({ values }) => values[at] !== null)) return "";
  let last = at;
  while (last >= 0 && series.every(({ values }) => values[last] === null)) last -= 1;
  return last >= 0 ? `no data since ${plot.zone.moment(times[last])}` : "no data";
}
