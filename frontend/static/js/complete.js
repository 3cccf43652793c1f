// Completion of PromQL in a text field: metrics and functions, labels inside braces and after "by", values after "=".
//
// The answer comes from the server, fifty offers at a time; typing never waits for it, and an answer that is late is
// dropped. `contextOf` is pure: it says what may stand at the caret, and which part of the text an offer replaces.

const OFFERED = 50;
const TYPING_MS = 80;
let made = 0; // lists of offers, each with an id of its own
const NAME = /[a-zA-Z_:][\w:]*$/;

/** What may stand at the caret: {kind: "value" | "label" | "name", from, text, metric, label}; null inside a string. */
export function contextOf(text, caret) {
  const before = text.slice(0, caret);
  const value = /([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)$/.exec(before);
  const brace = before.lastIndexOf("{") > before.lastIndexOf("}") ? before.lastIndexOf("{") : -1;
  const metric = brace < 0 ? "" : NAME.exec(before.slice(0, brace).trimEnd())?.[0] ?? "";
  if (brace >= 0 && value && value.index > brace) return { kind: "value", from: caret - value[2].length, text: value[2], metric, label: value[1] };
  if ((before.match(/(?<!\\)"/g) ?? []).length % 2) return null;
  const word = NAME.exec(before)?.[0] ?? "";
  const from = caret - word.length;
  if (brace >= 0) return /[{,]\s*$/.test(before.slice(0, from)) ? { kind: "label", from, text: word, metric } : null;
  if (/\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*$/.test(before)) return { kind: "label", from, text: word, metric: "" };
  return word && !/[\d\])]\s*$/.test(before.slice(0, from)) ? { kind: "name", from, text: word } : null;
}

const quoted = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

async function namesOf(address, parameters) {
  const url = new URL(address, location.href);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const answer = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" }).catch(() => null);
  return answer?.ok ? answer.json() : {};
}

/** Ask for what fits: [{text, hint, insert}]. */
async function offersFor(context, { metrics, series, app, functions }) {
  const limits = { app, limit: OFFERED };
  const among = context.metric && !/\W/.test(context.metric.replaceAll(":", "")) ? context.metric : "";
  if (context.kind === "value") {
    const matcher = `{${among ? `__name__="${among}",` : ""}${context.label}=~"(?i:.*${quoted(context.text).replaceAll("\\", "\\\\")}.*)"}`;
    const { data = [] } = await namesOf(`${series}/label/${context.label}/values`, { ...limits, "match[]": matcher });
    return data.map((text) => ({ text, insert: `${text.replace(/["\\]/g, "\\$&")}"` }));
  }
  if (context.kind === "label") {
    const { data = [] } = await namesOf(`${series}/labels`, { ...limits, limit: 500, ...(among ? { "match[]": among } : {}) });
    return data.filter((text) => text !== "__name__" && text.includes(context.text)).slice(0, OFFERED).map((text) => ({ text, insert: text }));
  }
  const folded = context.text.toLowerCase();
  const known = functions.filter((text) => text.startsWith(folded)).slice(0, 8).map((text) => ({ text: `${text}()`, hint: "function", insert: `${text}(` }));
  const { metrics: names = [] } = await namesOf(metrics, { q: context.text, limit: OFFERED });
  return [...known, ...names.map((text) => ({ text, hint: "metric", insert: text }))].slice(0, OFFERED);
}

/** Offer completions below a text field; returns nothing. Enter and Tab take the chosen one, Escape closes the list. */
export function completes(field, source) {
  const list = Object.assign(document.createElement("ul"), { id: `${field.name}-offers-${made += 1}`, className: "offers", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Completions");
  field.closest("label").after(list);
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id })) field.setAttribute(name, value);
  let [turn, timer, chosen, shown] = [0, 0, -1, null];

  const close = () => {
    turn += 1;
    shown = null;
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const choose = (at) => {
    const rows = [...list.children];
    chosen = (at + rows.length) % rows.length;
    rows.forEach((row, index) => row.setAttribute("aria-selected", String(index === chosen)));
    field.setAttribute("aria-activedescendant", rows[chosen].id);
    rows[chosen].scrollIntoView({ block: "nearest" });
  };
  const take = (offer) => {
    const { selectionStart: caret, value } = field;
    const rest = value.slice(caret);
    const after = offer.insert.endsWith('"') && rest.startsWith('"') ? rest.slice(1) : rest;
    field.value = value.slice(0, shown.from) + offer.insert + after;
    field.selectionStart = field.selectionEnd = shown.from + offer.insert.length;
    close();
    field.focus();
  };
  const offer = async () => {
    const context = contextOf(field.value, field.selectionStart);
    const mine = ++turn;
    const offers = context ? await offersFor(context, source) : [];
    if (mine !== turn) return;
    const useful = offers.filter(({ insert }) => insert !== context.text);
    if (!useful.length || document.activeElement !== field) return close();
    shown = context;
    list.replaceChildren(...useful.map((each, index) => {
      const row = Object.assign(document.createElement("li"), { id: `${list.id}-${index}`, textContent: each.text });
      row.setAttribute("role", "option");
      if (each.hint) row.append(Object.assign(document.createElement("small"), { textContent: each.hint }));
      row.addEventListener("pointerdown", (event) => { event.preventDefault(); take(each); });
      row.offer = each;
      return row;
    }));
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    chosen = -1;
  };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(offer, TYPING_MS); });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); offer(); return; }
    if (!shown) return;
    const steps = { ArrowDown: chosen + 1, ArrowUp: chosen < 0 ? -1 : chosen - 1 };
    if (event.key in steps) { event.preventDefault(); choose(steps[event.key]); }
    else if ((event.key === "Enter" && chosen >= 0) || event.key === "Tab") {
      event.preventDefault();
      event.stopImmediatePropagation();
      take(list.children[Math.max(chosen, 0)].offer);
    } else if (event.key === "Escape") { event.stopPropagation(); close(); } else if (event.key === "Enter") close();
  });
}
