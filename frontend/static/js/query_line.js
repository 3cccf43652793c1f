// One query of the page Explore: a letter, the fields of the query builder, and the text, which stay in step.
//
// The server reads a text as fields and writes fields as a text; this file knows no PromQL. A text that the fields
// cannot show stays a text, and the sentence of the server says why. A formula has a text alone.

import { completes } from "./complete.js";

const COUNTERS = /(_bytes|_recv|_sent|_total|_count|_reads|_writes|_bucket)$/;
const GAUGES = /^(mem|disk|cpu|processes)_/;
const GROWTHS = ["rate", "increase", "irate", "delta", "idelta", "deriv"];
const RANKS = ["topk", "bottomk"];

export async function ask(address, parameters = {}) {
  const url = new URL(address, location.href);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const answer = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  const body = await answer.json().catch(() => ({}));
  return answer.ok ? body : { error: body.error ?? body.expr?.[0] ?? `The server answered ${answer.status}.` };
}

const made = (tag, properties, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

const numberOf = (field) => (field.closest("label").hidden || field.value === "" ? null : Number(field.value));

export class QueryLine {
  /** `run` draws the chart; `form` has the addresses. */
  constructor(element, { form, letter, formula = false, text, drawn = true, run, remove, offerMetrics }) {
    Object.assign(this, { element, form, letter, formula, run, turn: 0, known: {} });
    this.field = element.querySelector("textarea");
    this.parts = element.querySelector("[data-parts]");
    this.filters = element.querySelector("[data-filters]");
    this.reason = element.querySelector("[data-reason]");
    element.dataset.line = letter;
    element.querySelector("legend").textContent = letter;
    const name = element.querySelector("[data-field-name]");
    if (name) name.textContent = formula ? `Formula ${letter}` : `PromQL of ${letter}`;
    if (formula) this.field.placeholder = "A / B";
    if (text !== undefined) this.field.value = text;
    this.choice("drawn").checked = drawn;
    this.groupLabels = [];
    completes(this.field, { metrics: form.dataset.metrics, series: form.dataset.series, app: form.dataset.app, functions: form.dataset.functions.split(" ") });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      this.typed();
    });
    this.field.addEventListener("change", () => this.read());
    this.choice("drawn").addEventListener("change", run);
    element.querySelector("[data-remove]").addEventListener("click", remove);
    this.metric.addEventListener("input", () => offerMetrics(this.metric.value.trim()));
    this.metric.addEventListener("focus", () => offerMetrics(""), { once: true });
    this.metric.addEventListener("change", () => this.chooseMetric());
    this.filters.addEventListener("focusin", () => this.learnLabels());
    this.choice("function").addEventListener("change", () => this.chooseFunction());
    for (const part of ["number", "window", "aggregation", "parameter", "grouping", "percentile"]) this.choice(part).addEventListener("change", () => { this.isOwn = true; this.showParts(); this.write(); });
    this.read();
  }

  choice(name) {
    return this.element.querySelector(`[data-${name}]`);
  }

  get metric() {
    return this.choice("metric");
  }

  get text() {
    return this.field.value;
  }

  set text(value) {
    if (value === this.field.value) return;
    this.field.value = value;
    this.read();
  }

  get drawn() {
    return this.choice("drawn").checked;
  }

  /** Only one of several lines can be hidden or removed. */
  set alone(value) {
    for (const each of [this.choice("drawn-choice"), this.choice("remove")]) each.hidden = value;
  }

  typed() {
    this.isOwn = true;
    this.read();
    this.run();
  }

  // --- from the text to the fields

  async read() {
    const turn = ++this.turn;
    if (this.formula) return this.show(false, "A formula computes with queries by their letters: A / B, 100 * A / (A + B), sum(A).");
    if (!this.text.trim()) { this.fill({ metric: "", filters: [], labels: [] }); return this.show(true, ""); }
    const { builder, reason, error } = this.given() ?? await ask(this.form.dataset.builder, { expr: this.text });
    if (turn !== this.turn) return;
    if (!builder) return this.show(false, reason ?? `The builder waits for an expression that is complete: ${error}`);
    this.fill(builder);
    this.show(true, "");
    if (this.filters.contains(document.activeElement)) this.learnLabels();
  }

  /** The parts that came with the page, if they are those of the text. */
  given() {
    const given = JSON.parse(this.form.dataset.given ?? "{}");
    return given.expr === this.text ? given : null;
  }

  show(isShown, reason) {
    this.parts.hidden = this.filters.hidden = !isShown;
    this.reason.hidden = !reason;
    this.reason.textContent = reason;
  }

  fill(builder) {
    this.metric.value = builder.metric;
    for (const part of ["function", "window", "number", "aggregation", "parameter", "grouping", "percentile"]) this.choice(part).value = builder[part] ?? "";
    this.groupLabels = [...builder.labels];
    this.filters.replaceChildren();
    for (const each of builder.filters) this.addFilter(each);
    this.showParts();
  }

  /** Show the fields that the chosen function and aggregation have. */
  showParts() {
    const [form, aggregation, grouping] = ["function", "aggregation", "grouping"].map((name) => this.choice(name).value);
    const shows = (name, isShown) => { this.choice(name).closest("label").hidden = !isShown; };
    shows("window", form !== "");
    shows("number", form === "quantile_over_time");
    shows("parameter", ["quantile", ...RANKS].includes(aggregation));
    shows("grouping", aggregation !== "");
    shows("percentile", this.choice("percentile").value !== "" || this.metric.value.endsWith("_bucket"));
    this.choice("parameter-name").textContent = RANKS.includes(aggregation) ? "How many" : "Quantile";
    for (const [name, value] of [["number", "0.95"], ["parameter", RANKS.includes(aggregation) ? "5" : "0.95"]]) if (this.choice(name).value === "" && !this.choice(name).closest("label").hidden) this.choice(name).value = value;
    this.drawAdders(aggregation !== "" && grouping !== "");
  }

  drawAdders(isGrouped) {
    for (const old of this.filters.querySelectorAll("[data-adder]")) old.remove();
    const adder = made("button", { type: "button", className: "quiet-button small", textContent: "+ Filter", onclick: () => this.addFilter({ name: "", op: "=", value: "" }).querySelector("input").focus() });
    adder.dataset.adder = "";
    this.filters.append(adder);
    if (!isGrouped) return;
    const names = this.groupLabels.map((name) => made("button", { type: "button", className: "chip", textContent: `${name} ✕`, ariaLabel: `Do not group by ${name}`, onclick: () => { this.groupLabels = this.groupLabels.filter((each) => each !== name); this.showParts(); this.write(); } }));
    const field = made("input", { type: "text", placeholder: "label", ariaLabel: `Label to group by, of ${this.letter}`, autocomplete: "off" });
    field.setAttribute("list", this.listOf("names", Object.keys(this.known)));
    field.addEventListener("change", () => {
      if (field.value && !this.groupLabels.includes(field.value)) this.groupLabels.push(field.value);
      this.showParts();
      this.write();
    });
    const group = made("span", { className: "filter-line" }, `${this.choice("grouping").value} `, ...names, field);
    group.dataset.adder = "";
    this.filters.append(group);
  }

  /** Make or change a list of offers; returns its id. */
  listOf(name, values) {
    const id = `offers-${this.letter}-${name}`;
    const list = this.element.querySelector(`#${CSS.escape(id)}`) ?? this.element.appendChild(made("datalist", { id }));
    list.replaceChildren(...values.map((value) => made("option", { value })));
    return id;
  }

  addFilter({ name, op, value }) {
    const at = this.filters.querySelectorAll("[data-filter]").length;
    const fields = [
      made("input", { type: "text", value: name, placeholder: "label", ariaLabel: `Label of filter ${at + 1} of ${this.letter}`, autocomplete: "off", spellcheck: false, autocapitalize: "none" }),
      made("select", { ariaLabel: `Comparison of filter ${at + 1} of ${this.letter}` }, ...["=", "!=", "=~", "!~"].map((text) => made("option", { textContent: text, selected: text === op }))),
      made("input", { type: "text", value, placeholder: "value", ariaLabel: `Value of filter ${at + 1} of ${this.letter}`, autocomplete: "off", spellcheck: false, autocapitalize: "none" }),
    ];
    const [label, , content] = fields;
    label.setAttribute("list", this.listOf("names", Object.keys(this.known)));
    content.addEventListener("focus", () => content.setAttribute("list", this.listOf(`values-${at}`, this.known[label.value] ?? [])));
    const line = made("span", { className: "filter-line" }, ...fields, made("button", { type: "button", className: "quiet-button small", textContent: "✕", ariaLabel: `Remove filter ${at + 1} of ${this.letter}`, onclick: () => { line.remove(); this.write(); } }));
    line.dataset.filter = "";
    for (const field of fields) field.addEventListener("change", () => this.write());
    this.filters.insertBefore(line, this.filters.querySelector("[data-adder]"));
    return line;
  }

  async learnLabels() {
    const metric = this.metric.value;
    if (!metric || this.knownOf === metric) return;
    const { labels = {} } = await ask(this.form.dataset.labels, { metric });
    if (metric !== this.metric.value) return;
    [this.known, this.knownOf] = [labels, metric];
    this.listOf("names", Object.keys(labels));
  }

  // --- from the fields to the text

  /** Another metric begins with each of its series, unless a person has chosen the aggregation. */
  async chooseMetric() {
    const name = this.metric.value;
    const before = this.filters.querySelectorAll("[data-filter]"); // a filter that a person adds meanwhile stays
    await this.learnLabels();
    for (const line of before) if (!(line.querySelector("input").value in this.known)) line.remove();
    this.groupLabels = this.groupLabels.filter((label) => label in this.known);
    if (!this.isOwn) for (const part of ["aggregation", "grouping", "percentile"]) this.choice(part).value = "";
    this.choice("function").value = COUNTERS.test(name) && !GAUGES.test(name) ? "rate" : "last_over_time";
    this.chooseFunction();
  }

  chooseFunction() {
    const [name, window] = [this.choice("function").value, this.choice("window")];
    if (!name) window.value = "";
    else if (!window.value || window.value.startsWith("$")) window.value = GROWTHS.includes(name) ? "$__rate_interval" : "$window";
    this.showParts();
    this.write();
  }

  builder() {
    const [name, aggregation] = [this.choice("function").value, this.choice("aggregation").value];
    const grouping = aggregation ? this.choice("grouping").value : "";
    const labels = grouping ? this.groupLabels : [];
    const filters = [...this.filters.querySelectorAll("[data-filter]")].map((line) => [...line.querySelectorAll("input, select")].map((field) => field.value))
      .filter(([label]) => label).map(([label, op, value]) => ({ name: label, op, value }));
    return {
      metric: this.metric.value, filters, function: name, window: name ? this.choice("window").value.trim() : "", number: numberOf(this.choice("number")),
      aggregation, parameter: numberOf(this.choice("parameter")), grouping: grouping === "by" && !labels.length ? "" : grouping, labels, percentile: numberOf(this.choice("percentile")),
    };
  }

  /** Write the fields as a text, and draw it; what the server refuses is said below the fields. */
  async write() {
    if (!this.metric.value) return;
    const turn = ++this.turn;
    const token = document.querySelector("[name=csrfmiddlewaretoken]")?.value ?? "";
    const headers = { "Content-Type": "application/json", "X-CSRFToken": token, Accept: "application/json" };
    const answer = await fetch(this.form.dataset.builder, { method: "POST", body: JSON.stringify(this.builder()), headers, credentials: "same-origin" });
    const body = await answer.json().catch(() => ({}));
    if (turn !== this.turn) return;
    this.reason.hidden = answer.ok;
    this.reason.textContent = answer.ok ? "" : body.error ?? Object.entries(body).map(([name, text]) => `${name}: ${text}`).join(" ");
    if (!answer.ok) return;
    this.field.value = body.expr;
    this.run();
  }
}
