// Results while the question is typed, and the fields of a type once it is chosen.
import { loaded, words } from "./parts.js";

const form = document.getElementById("question");
const results = document.getElementById("results");
const WAIT_MS = 250;
let waiting = 0;
let asked = new AbortController();

function address() {
  const given = [...new FormData(form)].filter(([, value]) => value !== "");
  return `${form.action}?${new URLSearchParams(given)}`;
}

async function ask() {
  asked.abort();
  asked = new AbortController();
  const signal = asked.signal;
  const wanted = address();
  results.setAttribute("aria-busy", "true");
  try {
    const part = await loaded(wanted, signal);
    if (signal.aborted) return;
    results.replaceChildren(part);
    history.replaceState(null, "", wanted);
    document.title = `${form.elements.q.value || form.querySelector("button").textContent} · duckkb`;
  } catch (problem) {
    if (signal.aborted) return;
    results.textContent = problem.message || words.failed;
  }
  results.removeAttribute("aria-busy");
}

form.addEventListener("input", (event) => {
  clearTimeout(waiting);
  if (event.target.matches("select[data-reload]")) return;
  waiting = setTimeout(ask, event.target.matches("select") ? 0 : WAIT_MS);
});
form.addEventListener("change", (event) => {
  if (event.target.matches("select[data-reload]")) location.assign(address());
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  ask().then(() => results.querySelector("[data-open]")?.focus());
});
