// Parts of a page that refresh themselves: nothing is asked for while nobody looks, and a part that cannot be refreshed
// stays as it is and says since when. Parts are morphed by the ids of their rows, so focus and selection stay.

import "./shell.js";
import htmx from "../vendor/htmx/htmx.esm.js";

const PART = "[hx-trigger*=every]";
const FIRST = "[data-first]";
const first = document.querySelector(FIRST) !== null;
const refreshed = new WeakMap(); // by part: the time of its last answer

document.addEventListener("htmx:before:request", (event) => {
  if (document.hidden && event.target.matches(PART)) event.preventDefault();
});

document.addEventListener("htmx:before:response", (event) => {
  if (!event.target.matches(PART)) return;
  const { raw } = event.detail.ctx.response;
  if (raw.redirected) location.reload(); // the session has ended: the page leads to the login, and back
  if (raw.ok && !raw.redirected) refreshed.set(event.target, Date.now());
  else {
    event.preventDefault();
    mark(event.target);
  }
});

// A part that was empty has no charts beside it: with its first row the whole page is another one.
document.addEventListener("htmx:after:swap", () => {
  if (first && document.querySelector(FIRST) === null) location.reload();
});

document.addEventListener("htmx:error", (event) => {
  if (event.target.matches?.(PART)) mark(event.target);
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  for (const part of document.querySelectorAll(PART)) htmx.trigger(part, "every");
});

/** Say how old the part is; the next answer replaces the mark. */
function mark(part) {
  const seconds = Math.round((Date.now() - (refreshed.get(part) ?? performance.timeOrigin)) / 1000);
  const chip = part.querySelector(":scope > .stale") ?? document.createElement("span");
  chip.className = "badge warning stale";
  chip.setAttribute("role", "status");
  chip.textContent = `not refreshed for ${seconds} s`;
  part.prepend(chip);
}
