// Commits of the history are evaluated one after the other, and shown as they come, until all are or somebody stops it.
import { loaded, words } from "./parts.js";

const section = document.getElementById("quality");
const place = section.querySelector("[data-place]");
let isRunning = false;

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("#evaluate");
  if (!form) return;
  event.preventDefault();
  isRunning = !isRunning;
  if (!isRunning) return;
  let left = Number(form.dataset.left);
  section.setAttribute("aria-busy", "true");
  while (isRunning && left) {
    const button = place.querySelector("#evaluate button");
    button.textContent = `${button.dataset.stop} (${left.toLocaleString()})`;
    try {
      const answer = await fetch(form.action, { method: "POST", credentials: "same-origin", redirect: "manual", headers: { "x-proof": document.body.dataset.proof } });
      if (answer.type !== "opaqueredirect") throw new Error(answer.status);
      place.replaceChildren(await loaded(section.dataset.report));
    } catch {
      button.textContent = words.failed;
      break;
    }
    const before = left;
    left = Number(place.querySelector("#evaluate")?.dataset.left ?? 0);
    if (left >= before) break; // what cannot be evaluated is not asked for again and again
  }
  isRunning = false;
  section.removeAttribute("aria-busy");
  place.querySelector("#evaluate button")?.focus();
});
