// The chart page: builds an expression from a metric, its labels and a function, or takes one as it is typed. The
// address holds the state.

import { completes } from "./complete.js";
import { start } from "./panels.js";

const form = document.querySelector("[data-explore]");
const [metric, shape, expr] = [form.querySelector("[data-metric]"), form.querySelector("[data-shape]"), form.elements.expr];
const filters = form.querySelector("[data-filters]");
const complaint = form.querySelector("[data-expr-error]");
const page = start({
  onRefusal(text) {
    complaint.hidden = text === null;
    complaint.textContent = text ?? "";
    if (text === null) expr.removeAttribute("aria-invalid");
    else expr.setAttribute("aria-invalid", "true");
  },
});
const OFFERED = 50;
const TYPING_MS = 120;

async function ask(address, parameters = {}) {
  const url = new URL(address, location.href);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const answer = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  return answer.ok ? answer.json() : {};
}

function choice(value, text = value) {
  return Object.assign(document.createElement("option"), { value, textContent: text });
}

/** Offer the metrics whose names contain what is typed; an app has thousands. */
async function offerMetrics() {
  const text = metric.value.trim();
  const { metrics = [] } = await ask(form.dataset.metrics, { limit: OFFERED, ...(text ? { q: text } : {}) });
  if (text === metric.value.trim()) form.querySelector("datalist").replaceChildren(...metrics.map((name) => choice(name)));
}

let typing = 0;
metric.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(offerMetrics, TYPING_MS);
});

/** Offer one picker per label of the metric. */
async function offerLabels() {
  const { labels = {} } = await ask(form.dataset.labels, { metric: metric.value });
  for (const old of filters.querySelectorAll("[data-filter]")) old.remove();
  for (const [name, values] of Object.entries(labels)) {
    const picker = document.createElement("select");
    picker.dataset.name = name;
    picker.append(choice("", "any"), ...values.map((value) => choice(value)));
    picker.addEventListener("change", build);
    const label = document.createElement("label");
    label.dataset.filter = "";
    label.append(`${name} `, picker);
    filters.append(label);
  }
}

function selector() {
  const name = metric.value.trim();
  const plain = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(name);
  const matchers = [...filters.querySelectorAll("select[data-name]")].filter((each) => each.value)
    .map((each) => `${/^[a-zA-Z_][a-zA-Z0-9_]*$/.test(each.dataset.name) ? each.dataset.name : JSON.stringify(each.dataset.name)}=${JSON.stringify(each.value)}`);
  if (!plain) matchers.unshift(`__name__=${JSON.stringify(name)}`);
  return `${plain ? name : ""}${matchers.length ? `{${matchers.join(",")}}` : ""}`;
}

function build() {
  if (!metric.value.trim()) return;
  const window = shape.value === "rate" || shape.value === "increase" ? "$__rate_interval" : "$window";
  expr.value = `${shape.value}(${selector()}[${window}])`;
  draw();
}

function draw() {
  page.plots[0].figure.dataset.expr = expr.value;
  page.go({ expr: expr.value });
}

metric.addEventListener("change", async () => {
  shape.value = /(_bytes|_recv|_sent|_total|_count|_reads|_writes)$/.test(metric.value) && !/^(mem|disk|cpu|processes)_/.test(metric.value) ? "rate" : "last_over_time";
  await offerLabels();
  build();
});
shape.addEventListener("change", build);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  draw();
});
completes(expr, { metrics: form.dataset.metrics, series: form.dataset.series, app: form.dataset.app, functions: form.dataset.functions.split(" ") });
expr.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey) return;
  event.preventDefault();
  draw();
});
window.addEventListener("popstate", () => {
  const query = new URL(location.href).searchParams.get("expr") ?? expr.defaultValue;
  if (query === expr.value) return;
  expr.value = query;
  page.plots[0].figure.dataset.expr = query;
  page.show();
});
offerMetrics();
