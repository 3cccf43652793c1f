// The grid of a dashboard: puts its panels in their places, and asks again when a variable is chosen. The key e edits.

for (const panel of document.querySelectorAll("[data-place]")) {
  const [x, y, w, h] = panel.dataset.place.split(" ");
  for (const [name, value] of Object.entries({ x, y, w, h })) panel.style.setProperty(`--${name}`, value);
}
document.querySelector("[data-grid]")?.classList.add("placed");

const form = document.querySelector("[data-variables]");
form?.addEventListener("change", ({ target }) => {
  if (target.type !== "checkbox") { form.requestSubmit(); return; }
  const all = target.value === "$__all";
  for (const box of form.querySelectorAll(`input[type=checkbox][name="${target.name}"]`)) if (box !== target && (all || box.value === "$__all")) box.checked = false;
});
form?.addEventListener("submit", () => {
  const now = new URL(location.href).searchParams;
  for (const field of form.querySelectorAll("input[type=hidden]")) field.remove();
  const asked = new Set([...form.elements].map(({ name }) => name)); // all else of the address stays: hidden variables, too
  for (const [name, value] of now) if (!asked.has(name)) form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
});

document.addEventListener("spm:edit", () => document.querySelector("[data-edit]")?.click());
