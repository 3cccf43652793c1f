// Times of pages and forms in the zone that charts have; the server takes and writes UTC.

import { chosenZone } from "./grammar.js";

const zone = chosenZone();
const two = (number) => String(number).padStart(2, "0");

/** A time as the browser's field of date and clock has it. */
function fieldText(ms) {
  const { year, month, day, hour, minute, second } = zone.fields(ms);
  return `${year}-${two(month)}-${two(day)}T${two(hour)}:${two(minute)}:${two(second)}`;
}

/** The same instant in UTC; a text that is no time stays, and the server says what is wrong with it. */
function inUtc(text) {
  const parts = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d))?/.exec(text);
  return parts ? new Date(zone.time(...parts.slice(1).map((part) => Number(part ?? 0)))).toISOString().slice(0, 19) : text;
}

/** Rewrite what the server wrote in UTC, also where htmx put it later. */
function rewrite() {
  for (const name of document.querySelectorAll("[data-zone-name]")) name.textContent = zone.title;
  for (const time of document.querySelectorAll("time[data-ms]")) time.textContent = zone.text("full", Number(time.dataset.ms));
}

rewrite();
document.addEventListener("htmx:after:swap", rewrite);
for (const field of document.querySelectorAll('input[type="datetime-local"]')) {
  if (field.value) field.value = fieldText(Date.parse(`${field.value}Z`));
}
document.querySelector("form.draft")?.addEventListener("formdata", ({ target, formData }) => {
  for (const { name } of target.querySelectorAll('input[type="datetime-local"]')) formData.set(name, inUtc(formData.get(name)));
});
