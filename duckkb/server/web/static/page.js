// What every page has: keys, moving through what it lists, parts that come later, and what single pages load besides.
import { help, loaded, onKey, words } from "./parts.js";

const items = () => [...document.querySelectorAll("[data-item]")];

function move(step) {
  const all = items();
  const here = all.findIndex((one) => one.contains(document.activeElement));
  const next = all[Math.max(0, Math.min(all.length - 1, here + step))];
  const link = next && next.querySelector("[data-open]");
  if (!link) return;
  link.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

onKey(["/"], words["key.search"], () => {
  const field = document.getElementById("search");
  if (!field) location.assign(document.querySelector("a.home").href);
  else field.select();
});
onKey(["j", "k"], words["key.move"], (event) => move(event.key === "j" ? 1 : -1));
onKey(["Enter"], words["key.open"], () => false); // what has the focus is opened by the browser
onKey(["?"], words["key.help"], help);

// <details data-part="ADDRESS"> and <section data-part="ADDRESS"> hold a link for those without scripts, in whose place the part comes.
async function fill(box) {
  const address = box.dataset.part;
  if (!address) return;
  delete box.dataset.part;
  const place = box.querySelector("[data-place]");
  place.setAttribute("aria-busy", "true");
  try {
    place.replaceChildren(await loaded(address));
    place.dispatchEvent(new CustomEvent("filled", { bubbles: true }));
  } catch {
    place.textContent = words.failed;
    box.dataset.part = address;
  }
  place.removeAttribute("aria-busy");
}

document.addEventListener("toggle", (event) => {
  if (event.target.open && event.target.dataset.part) fill(event.target);
}, true);
for (const box of document.querySelectorAll("section[data-part]")) fill(box);

// Links within a part lead to another page of the same part.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-within]");
  const place = link && link.closest("[data-place]");
  if (!place || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  place.setAttribute("aria-busy", "true");
  try {
    place.replaceChildren(await loaded(link.href));
  } catch {
    location.assign(link.href);
  }
  place.removeAttribute("aria-busy");
});

for (const box of document.querySelectorAll("details[open][data-part]")) fill(box);
if (document.getElementById("neighborhood")) await import("./graph.js");
if (document.getElementById("question")) await import("./search.js");
if (document.getElementById("conflicts")) await import("./conflicts.js");
if (document.getElementById("review")) await import("./review.js");
if (document.getElementById("quality")) await import("./quality.js");
