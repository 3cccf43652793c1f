// The zone that a person reads times in, and the times of pages and forms in it; the server takes and writes UTC.

/** Times in one zone: the browser's, UTC, or a named one. */
export class Zone {
  constructor(name) {
    this.name = name || "browser";
    this.timeZone = name === "utc" ? "UTC" : !name || name === "browser" ? undefined : name;
    const form = (options) => new Intl.DateTimeFormat(undefined, { hourCycle: "h23", timeZone: this.timeZone, ...options });
    this.forms = {
      clock: form({ hour: "2-digit", minute: "2-digit" }),
      seconds: form({ hour: "2-digit", minute: "2-digit", second: "2-digit" }),
      day: form({ day: "numeric", month: "short" }),
      full: form({ dateStyle: "medium", timeStyle: "medium" }),
      short: form({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }),
    };
    this.parts = new Intl.DateTimeFormat("en-GB", { timeZone: this.timeZone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  }

  /** Whether a name is one of a zone. */
  static valid(name) {
    try {
      return Boolean(new Zone(name));
    } catch {
      return false;
    }
  }

  get title() {
    return this.timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone;
  }

  text(form, ms) {
    return this.forms[form].format(ms);
  }

  /** Year, month, day, hour, minute, second of a time in this zone. */
  fields(ms) {
    return Object.fromEntries(this.parts.formatToParts(ms).filter(({ type }) => type !== "literal").map(({ type, value }) => [type, Number(value)]));
  }

  /** The time of a date and clock in this zone; of a clock that occurs twice, the first. */
  time(year, month, day, hour = 0, minute = 0, second = 0) {
    const wanted = Date.UTC(year, month - 1, day, hour, minute, second);
    let ms = wanted;
    for (let round = 0; round < 3; round += 1) {
      const { year: y, month: m, day: d, hour: h, minute: min, second: s } = this.fields(ms);
      ms += wanted - Date.UTC(y, m - 1, d, h, min, s);
    }
    return ms;
  }

  /** The same clock some days earlier or later, over changes of the clock. */
  shiftDays(ms, days) {
    const { year, month, day, hour, minute, second } = this.fields(ms);
    return this.time(year, month, day + days, hour, minute, second) + (ms % 1000);
  }

  /** Whether nobody sees a date: a time of today. */
  isToday(ms) {
    return this.text("day", ms) === this.text("day", Date.now());
  }

  /** A time as people say it: the clock alone if it is today's. */
  moment(ms) {
    return this.text(this.isToday(ms) ? "seconds" : "full", ms);
  }
}

/** The zone of the address, else the one that the person chose last, else the browser's. */
export function chosenZone() {
  let kept = null;
  try { kept = JSON.parse(localStorage.getItem("spm.zone")); } catch { /* a browser without storage remembers nothing */ }
  const name = new URL(location.href).searchParams.get("tz") ?? kept ?? "browser";
  return new Zone(Zone.valid(name) ? name : "browser");
}

/** Rewrite what the server wrote in UTC, in a page or in what comes into it; how long, a time says by `data-form`. */
export function rewriteTimes(root = document, zone = chosenZone()) {
  for (const name of root.querySelectorAll("[data-zone-name]")) name.textContent = zone.title;
  for (const field of root.querySelectorAll("input[data-zone-value]")) field.value = zone.title;
  for (const time of root.querySelectorAll("time[data-ms]")) {
    time.textContent = zone.text(time.dataset.form, Number(time.dataset.ms));
    time.title = zone.title;
  }
  for (const title of root.querySelectorAll("title[data-ms]")) { // in a drawing, which holds no other element
    title.textContent = title.textContent.replace(/^[\d-]+ [\d:]+ UTC/, zone.text("short", Number(title.dataset.ms)));
  }
}

const two = (number) => String(number).padStart(2, "0");

/** A time as the browser's field of date and clock has it. */
function fieldText(zone, ms) {
  const { year, month, day, hour, minute, second } = zone.fields(ms);
  return `${year}-${two(month)}-${two(day)}T${two(hour)}:${two(minute)}:${two(second)}`;
}

/** The same instant in UTC; a text that is no time stays, and the server says what is wrong with it. */
function inUtc(zone, text) {
  const parts = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d))?/.exec(text);
  return parts ? new Date(zone.time(...parts.slice(1).map((part) => Number(part ?? 0)))).toISOString().slice(0, 19) : text;
}

const zone = chosenZone();
rewriteTimes(document, zone);
// What htmx brings is rewritten before it comes into the page, so that a refresh changes no text that stays.
document.addEventListener("htmx:before:swap", ({ detail }) => {
  for (const { fragment } of detail.tasks) rewriteTimes(fragment);
});
for (const field of document.querySelectorAll('form.draft input[type="datetime-local"]')) {
  if (field.value) field.value = fieldText(zone, Date.parse(`${field.value}Z`));
}
document.querySelector("form.draft")?.addEventListener("formdata", ({ target, formData }) => {
  for (const { name } of target.querySelectorAll('input[type="datetime-local"]')) formData.set(name, inUtc(zone, formData.get(name)));
});
