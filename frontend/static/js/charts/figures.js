// Panels that show one value of each series instead of its line: stat, gauge, top list and table. Enter by `Figures`.

import { lineNames } from "./grammar.js";
import { Plot } from "./plot.js";

const STATS = 12; // values of one stat panel
const ROWS = { toplist: 25, table: 200 };
const LABELS = 6; // columns of a table
const SVG = "http://www.w3.org/2000/svg";

const calculations = {
  last: (values) => values.at(-1),
  first: (values) => values[0],
  min: (values) => Math.min(...values),
  max: (values) => Math.max(...values),
  sum: (values) => values.reduce((sum, value) => sum + value, 0),
  avg: (values) => values.reduce((sum, value) => sum + value, 0) / values.length,
};

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

const drawing = (name, attributes, ...children) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

export class Figures extends Plot {
  constructor(figure, page) {
    super(figure, page);
    this.area.removeAttribute("tabindex");
    this.area.removeAttribute("aria-roledescription");
    this.area.setAttribute("role", "group");
    this.body = element("div", { className: "figures" });
    this.area.prepend(this.body);
  }

  get kind() {
    return this.figure.dataset.kind;
  }

  draw(data, range) {
    this.data = data;
    this.range = range;
    this.names = this.named(data.series, lineNames(data.series.map(({ labels }) => labels)));
    this.drawnAt = Date.now();
    const figure = calculations[this.figure.dataset.calculation] ?? calculations.last;
    const rows = data.series.map(({ labels, values }, at) => {
      const present = values.filter((value) => value !== null);
      return { labels, name: this.names[at], value: present.length ? figure(present) : null };
    });
    rows.sort((one, other) => (other.value ?? -Infinity) - (one.value ?? -Infinity));
    this.drawNote();
    this.body.className = `figures ${this.kind}`;
    this.body.replaceChildren(...(rows.length ? this[this.kind](rows) : []));
    if (this.body.scrollHeight > this.body.clientHeight) this.body.tabIndex = 0; // not all browsers let keys scroll it
    else this.body.removeAttribute("tabindex");
    this.area.setAttribute("aria-label", `${this.title}: ${rows.slice(0, 3).map(({ name, value }) => `${name} ${this.written(value)}`).join(", ") || "no data"}`);
    this.state(rows.length ? "drawn" : "empty", rows.length ? "" : this.emptyText());
    this.figure.dataset.points = rows.length;
  }

  stat(rows) {
    const alone = rows.length === 1;
    return [
      ...rows.slice(0, STATS).map(({ name, value }) => element("div", {}, element("b", { textContent: this.written(value) }), ...(alone ? [] : [element("span", { textContent: name, title: name })]))),
      ...this.others(rows, STATS),
    ];
  }

  gauge(rows) {
    const most = this.unit === "percent" ? 100 : Math.max(...rows.map(({ value }) => value ?? 0), 0) || 1;
    return rows.slice(0, STATS).map(({ name, value }) => {
      const share = Math.min(Math.max((value ?? 0) / most, 0), 1);
      const arc = (className, length) => drawing("path", { class: className, d: "M 8 50 A 42 42 0 0 1 92 50", pathLength: 100, "stroke-dasharray": `${length} 200` });
      const picture = drawing("svg", { viewBox: "0 0 100 56", "aria-hidden": "true" }, arc("track", 100), arc("share", share * 100));
      return element("div", {}, picture, element("b", { textContent: this.written(value) }), ...(rows.length > 1 ? [element("span", { textContent: name, title: name })] : []));
    });
  }

  toplist(rows) {
    const most = Math.max(...rows.map(({ value }) => Math.abs(value ?? 0))) || 1;
    return [
      ...rows.slice(0, ROWS.toplist).map(({ name, value }) => {
        const bar = drawing("svg", { class: "share", "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 6" }, drawing("rect", { width: (Math.abs(value ?? 0) / most) * 100, height: 6 }));
        return element("div", {}, element("span", { textContent: name, title: name }), element("b", { textContent: this.written(value) }), bar);
      }),
      ...this.others(rows, ROWS.toplist),
    ];
  }

  table(rows) {
    const keys = [...new Set(rows.flatMap(({ labels }) => Object.keys(labels)))].filter((key) => !key.startsWith("__")).slice(0, LABELS);
    const cells = ({ labels, name, value }) => element("tr", {}, ...(keys.length ? keys.map((key) => element("td", { textContent: labels[key] ?? "" })) : [element("td", { textContent: name })]), element("td", { className: "number", textContent: this.written(value) }));
    const head = element("tr", {}, ...(keys.length ? keys : ["series"]).map((key) => element("th", { scope: "col", textContent: key })), element("th", { scope: "col", className: "number", textContent: this.figure.dataset.calculation }));
    const box = element("div", { className: "chart-table", tabIndex: 0, role: "region", ariaLabel: this.title }, element("table", { className: "tight" }, element("thead", {}, head), element("tbody", {}, ...rows.slice(0, ROWS.table).map(cells))));
    return [box, ...this.others(rows, ROWS.table)];
  }

  others(rows, shown) {
    const count = rows.length - shown + (this.data.rest?.count ?? 0);
    return count > 0 ? [element("small", { textContent: `and ${count.toLocaleString()} more` })] : [];
  }
}
