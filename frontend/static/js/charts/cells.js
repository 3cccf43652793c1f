// Panels with a row for each series, in cells of time: a heat map, whose colours are values, and states, each value of
// which has a colour and is written into its bar. Of a histogram each row is what its bucket alone holds. Enter by `Cells`.

import { shown } from "./grammar.js";
import { Plot } from "./plot.js";

const ROWS = 60; // a row has a few pixels then
const SHADES = 7; // of a heat map, of one hue
const STATES = 8; // colours of values
const ROW_TEXT = 14; // pixels between names of rows
const NAME_MAX = 150; // pixels of the names of rows

const element = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

const boundOf = ({ labels }) => (labels.le === "+Inf" ? Infinity : Number(labels.le ?? NaN));

/** The rows of a histogram from the lowest bucket on, without what lies in those below; null for other series. */
export function bucketRows(series) {
  const others = new Set(series.map(({ labels: { le, ...rest } }) => JSON.stringify(rest)));
  if (!series.length || others.size > 1 || series.some((each) => Number.isNaN(boundOf(each)))) return null;
  const rows = [...series].sort((one, other) => boundOf(one) - boundOf(other));
  const own = (value, below) => (value === null ? null : Math.max(0, value - (below ?? 0)));
  return rows.map((row, at) => ({ ...row, name: row.labels.le, values: row.values.map((value, when) => own(value, rows[at - 1]?.values[when])) }));
}

/** The stretches of a row that have one value: [{from, to, value}] in ms; a value stands from the step before it. */
export function stretchesOf(times, values, step) {
  const stretches = [];
  values.forEach((value, at) => {
    if (value === null || value === undefined) return;
    const from = Math.max(times[at - 1] ?? -Infinity, times[at] - 3 * step, at ? -Infinity : times[at] - step);
    const last = stretches.at(-1);
    if (last && last.value === value && last.to === from) last.to = times[at];
    else stretches.push({ from, to: times[at], value });
  });
  return stretches;
}

export class Cells extends Plot {
  get isHeat() {
    return this.figure.dataset.kind === "heatmap";
  }

  draw(data, range) {
    const rows = data.hasRows ? null : this.isHeat && bucketRows(data.series);
    const { rest, ...own } = data;
    this.absent = data.absent ?? rest?.count ?? 0;
    super.draw({ ...own, absent: this.absent, hasRows: true, thresholds: [], series: rows || data.series }, range);
  }

  /** The order of buckets stays; other rows are read from top to bottom. */
  sort(named) {
    if (!named.every((each) => !Number.isNaN(boundOf(each)))) { super.sort(named); named.reverse(); }
  }

  split(named) {
    this.absent += Math.max(named.length - ROWS, 0);
    const values = named.flatMap(({ values: row }) => row.filter((value) => value !== null));
    [this.low, this.high] = values.length ? [Math.min(0, values.reduce((a, b) => Math.min(a, b))), values.reduce((a, b) => Math.max(a, b))] : [0, 1];
    this.known = [...new Set(values)].sort((a, b) => a - b);
    return [named.slice(-ROWS), []];
  }

  earlierLines() {
    return [];
  }

  columns() {
    return this.data.series.map(({ values }, index) => values.map((value) => (value === null ? null : index + 0.5)));
  }

  lines() {
    return { series: [{}, ...this.names.map((label) => ({ label, scale: "y", width: 0, points: { show: false } }))], bands: [] };
  }

  options(earlier) {
    const options = super.options(earlier);
    const rows = this.names.length;
    const [times, heights] = options.axes;
    const longest = Math.max(...this.names.map((name) => name.length));
    const every = (chart) => Math.max(1, Math.ceil((rows * ROW_TEXT) / Math.max(chart.bbox.height / devicePixelRatio, 1)));
    const size = Math.min(NAME_MAX, this.area.clientWidth / 3, longest * 7 + 14);
    const short = (name) => (name.length * 7 > size ? `${name.slice(0, Math.max(Math.floor(size / 7) - 1, 1))}…` : name);
    return {
      ...options,
      cursor: { ...options.cursor, points: { show: false } },
      scales: { ...options.scales, y: { range: () => [0, rows] } },
      axes: [times, { ...heights, grid: { show: false }, size, incrs: undefined, splits: (chart) => this.names.map((_, at) => at + 0.5).filter((at) => Math.floor(at) % every(chart) === 0), values: (_, splits) => splits.map((at) => short(this.names[Math.floor(at)])) }],
      hooks: { ...options.hooks, drawAxes: [...options.hooks.drawAxes, (chart) => this.paintCells(chart)] },
    };
  }

  /** The colour of a value, mixed with the surface: of a heat map by its size, of states by its place among them. */
  shade(value) {
    const style = getComputedStyle(this.figure);
    const surface = style.getPropertyValue("--surface").trim();
    const at = this.isHeat ? Math.ceil(((value - this.low) / (this.high - this.low || 1)) * SHADES) : this.known.indexOf(value) % STATES;
    const hue = style.getPropertyValue(`--s${this.isHeat ? 1 : at + 1}`).trim();
    return `color-mix(in srgb, ${hue} ${this.isHeat ? Math.max(5, (at / SHADES) * 100) : 40}%, ${surface})`;
  }

  paintCells(chart) {
    const { ctx, bbox } = chart;
    const ratio = devicePixelRatio;
    const style = getComputedStyle(this.figure);
    const shades = new Map();
    const shadeOf = (value) => { if (!shades.has(value)) shades.set(value, this.shade(value)); return shades.get(value); };
    const x = (ms) => Math.min(Math.max(chart.valToPos(ms / 1000, "x", true), bbox.left), bbox.left + bbox.width);
    ctx.save();
    ctx.font = `${11 * ratio}px ${style.fontFamily}`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left"; // the names of rows were written to the right
    this.data.series.forEach(({ values }, index) => {
      const [top, bottom] = [index + 1, index].map((at) => Math.round(chart.valToPos(at, "y", true)));
      const gap = bottom - top > 6 * ratio ? ratio : 0;
      for (const { from, to, value } of stretchesOf(this.data.times, values, this.data.step)) {
        const [left, right] = [x(from), x(to)];
        ctx.fillStyle = shadeOf(value);
        ctx.fillRect(left, top + gap, Math.max(right - left - (this.isHeat ? 0 : ratio), ratio), bottom - top - 2 * gap);
        const text = this.isHeat ? "" : this.written(value);
        if (!text || bottom - top < 13 * ratio || ctx.measureText(text).width + 8 * ratio > right - left) continue;
        ctx.fillStyle = style.getPropertyValue("--ink");
        ctx.fillText(text, left + 4 * ratio, (top + bottom) / 2);
      }
    });
    ctx.restore();
  }

  nearest(rows, near) {
    return rows.find(({ index }) => index === Math.floor(near));
  }

  moveTo(at) {
    const row = Math.min(this.keyedSeries ?? this.names.length - 1, this.names.length - 1);
    this.keyedSeries = row;
    this.pinned = false;
    this.tip.classList.remove("pinned");
    this.keyed = true;
    this.chart.setCursor({ left: Math.max(0, this.chart.valToPos(this.data.times[at] / 1000, "x")), top: this.chart.valToPos(row + 0.5, "y") });
  }

  moveSeries(step) {
    this.keyedSeries = Math.min(this.names.length - 1, Math.max(0, (this.keyedSeries ?? this.names.length - 1 - step) + step));
    this.moveTo(this.chart.cursor.idx ?? this.data.times.length - 1);
  }

  drawLegend() {
    const swatch = (value) => { const box = element("i", { className: "cell" }); box.style.background = this.shade(value); return box; };
    const shades = Array.from({ length: SHADES }, (_, at) => this.low + ((at + 0.5) / SHADES) * (this.high - this.low));
    const entries = this.isHeat
      ? [element("span", {}, `${shown(this.low, this.unit)} `, ...shades.map(swatch), ` ${shown(this.high, this.unit)}`)]
      : this.known.slice(0, STATES).map((value) => element("span", {}, swatch(value), ` ${this.written(value)}`));
    const more = this.known.length - STATES;
    this.legend.replaceChildren(...entries, ...(!this.isHeat && more > 0 ? [element("span", { className: "further", textContent: `+${more.toLocaleString()} values` })] : []), ...this.furtherEntry());
  }

  furtherEntry() {
    return this.absent ? [element("span", { className: "further", textContent: `+${this.absent.toLocaleString()} rows that have no room` })] : [];
  }
}
