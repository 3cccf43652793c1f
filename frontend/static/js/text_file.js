// A file field that sends no file: what is chosen is read here and put into a text field of the form, JSON without its
// spaces, which count against the bound of forms.

for (const field of document.querySelectorAll("[data-file-of]")) {
  field.addEventListener("change", async () => {
    const text = await (field.files[0]?.text() ?? "");
    let short = text;
    try { short = JSON.stringify(JSON.parse(text)); } catch { /* the server says what is wrong with it */ }
    field.form.elements[field.dataset.fileOf].value = short;
  });
}
