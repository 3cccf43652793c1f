// The search of the documents as files: sections in which every word stands, those with the words in their titles first,
// then those that have the most of them for their length.

const MOST = 30;
const AROUND = 160;
const form = document.querySelector("form[data-root]");
const field = form.querySelector("input");
const box = document.getElementById("hits");

function hits(words) {
  const found = [];
  for (const [href, title, text] of globalThis.searchIndex) {
    const [head, body] = [title.toLowerCase(), text.toLowerCase()];
    if (!words.every((word) => head.includes(word) || body.includes(word))) continue;
    const missing = words.filter((word) => !head.includes(word)).length;
    const density = words.reduce((sum, word) => sum + body.split(word).length - 1, 0) / Math.sqrt(body.length + 200);
    found.push({ href, title, text, missing, density, at: Math.max(0, body.indexOf(words[0])) });
  }
  return found.sort((a, b) => a.missing - b.missing || b.density - a.density).slice(0, MOST);
}

function row({ href, title, text, at }) {
  const begin = Math.max(0, at - AROUND / 3);
  const [item, link, around] = ["li", "a", "p"].map((name) => document.createElement(name));
  link.href = `${form.dataset.root}/${href}`;
  link.textContent = title;
  around.textContent = `${begin ? "… " : ""}${text.slice(begin, begin + AROUND)}`;
  item.append(link, around);
  return item;
}

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  box.hidden = words.length === 0;
  if (box.hidden) return;
  const list = document.createElement("ul");
  list.className = "hits";
  list.append(...hits(words).map(row));
  box.replaceChildren(list.children.length ? list : "No document has these words.");
}

field.addEventListener("input", show);
form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
