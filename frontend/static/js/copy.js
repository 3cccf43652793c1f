// Buttons that copy the text beside them.

for (const button of document.querySelectorAll("[data-copy]")) {
  const text = button.textContent;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source); // without permission: select it, ready for Ctrl-C
      button.textContent = "Press Ctrl-C";
    }
    setTimeout(() => { button.textContent = text; }, 1500);
  });
}
