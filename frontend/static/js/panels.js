// The charts of a page and their common time range, which is in the address: ?range=1h follows the clock, ?from=&to= is
// fixed. ?asof= (seconds) asks for the data accepted by that time.

import { Plot, rangeMs } from "./plot.js";

const REFRESH_MS = 10_000;
const AT_ONCE = 4; // the server runs this many queries of an organisation at a time; more would only wait

/** Load the plots in order, a few at a time; a newer call cancels the plots that an older one has not started. */
let newest = 0;
async function loadEach(plots, range, quiet) {
  const mine = ++newest;
  const waiting = [...plots];
  const next = async () => {
    while (waiting.length && mine === newest) await waiting.shift().load(range, quiet);
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, plots.length) }, next));
}

/** Draw every figure of the page; returns what the page's own script needs. */
export function start({ onRefusal } = {}) {
  const plots = [...document.querySelectorAll("[data-chart]")].map((figure) => new Plot(figure, { onZoom: zoom, onReset: reset, onRefusal }));
  const { ranges: usual, until } = document.querySelector("[data-ranges]").dataset;
  const buttons = [...document.querySelectorAll("[data-ranges] button")];
  const text = document.querySelector("[data-range-text]");

  const parameters = () => new URL(location.href).searchParams;
  const fixed = () => parameters().has("from") && parameters().has("to");
  const named = () => (rangeMs(parameters().get("range") ?? "") ? parameters().get("range") : usual);

  /** A host that is down is shown up to its last sample, until somebody chooses a range. */
  const ended = () => until !== undefined && !parameters().has("range");

  function range() {
    if (fixed()) return { start: Number(parameters().get("from")), end: Number(parameters().get("to")) };
    const end = ended() ? Number(until) + 60_000 : Date.now();
    return { start: end - rangeMs(named()), end };
  }

  function go(changes, { replace = false } = {}) {
    const address = new URL(location.href);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) address.searchParams.delete(name);
      else address.searchParams.set(name, value);
    }
    history[replace ? "replaceState" : "pushState"](null, "", address);
    show();
  }

  function zoom(from, to) {
    go({ from, to });
  }

  function reset() {
    go({ from: null, to: null });
  }

  function show(quiet = false) {
    const { start: from, end: to } = range();
    const moment = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    const live = !fixed() && !ended() && !parameters().has("asof");
    if (text) text.textContent = fixed() || ended() ? `${moment(from)} – ${moment(to)}` : live ? "live" : "";
    text?.classList.toggle("badge", live);
    text?.classList.toggle("live", live);
    for (const button of buttons) button.setAttribute("aria-pressed", String(!fixed() && button.dataset.range === named()));
    for (const link of document.querySelectorAll("a[data-keep-range]")) keepRange(link);
    return loadEach(plots, { start: from, end: to, asof: parameters().get("asof") }, quiet);
  }

  function keepRange(link) {
    const address = new URL(link.href);
    for (const name of ["range", "from", "to", "asof"]) {
      const value = parameters().get(name);
      if (value === null) address.searchParams.delete(name);
      else address.searchParams.set(name, value);
    }
    link.href = address;
  }

  for (const button of buttons) button.addEventListener("click", () => go({ range: button.dataset.range, from: null, to: null }));
  window.addEventListener("popstate", () => show());
  async function follow() {
    try {
      if (!fixed() && !document.hidden) await show(true);
    } finally {
      setTimeout(follow, REFRESH_MS);
    }
  }
  setTimeout(follow, REFRESH_MS);
  show();
  return { plots, go, show };
}

if (document.querySelector("[data-explore]") === null) start();
