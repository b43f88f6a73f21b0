// A button in each block of commands that copies its text. Output is not copied.
addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return;
  const blocks = ":is(.highlight-sh, .highlight-bash, .highlight-text, .highlight-python, .highlight-toml, .highlight-yaml) .highlight";
  for (const block of document.querySelectorAll(blocks)) {
    const text = block.textContent;
    const button = Object.assign(document.createElement("button"), { className: "copy", type: "button", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    block.append(button);
  }
});
