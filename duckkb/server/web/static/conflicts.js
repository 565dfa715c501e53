// Who types a value chooses it.
document.getElementById("conflicts").addEventListener("input", ({ target }) => {
  if (target.matches("textarea")) target.closest("details").querySelector("input[type=radio]").checked = true;
});
