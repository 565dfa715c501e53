// What the scripts of all pages are made of.
export const words = JSON.parse(document.body.dataset.words);

const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("duckkb", { createHTML: (text) => text })
  : { createHTML: (text) => text };

// A part of a page as this server made it, where all that is of records is escaped already: the one place where text becomes markup.
export async function loaded(address, signal) {
  const url = new URL(address, location.href);
  url.searchParams.set("part", "1");
  const answer = await fetch(url, { signal, credentials: "same-origin", redirect: "manual" });
  if (answer.type === "opaqueredirect") {
    location.reload(); // you are not signed in any more
    throw new Error(words.failed);
  }
  const box = document.createElement("template");
  box.innerHTML = policy.createHTML(await answer.text());
  return box.content;
}

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const isTyping = (target) => target.closest && target.closest("input, select, textarea, [contenteditable]");

// Keys that act where nothing is being typed; a page adds its own, which the help lists.
const acts = new Map();
const told = [];

export function onKey(keys, what, act) {
  told.push([keys, what]);
  for (const key of keys) acts.set(key, act);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = acts.get(event.key);
  if (!act || (document.querySelector("dialog[open]") && event.key !== "?")) return;
  if (act(event) !== false) event.preventDefault();
});

export function help() {
  const open = document.querySelector("dialog#keys");
  if (open) {
    open.close();
    return;
  }
  const rows = told.flatMap(([keys, what]) => [
    element("dt", {}, ...keys.flatMap((key, place) => [place ? " " : "", element("kbd", {}, key)])),
    element("dd", {}, what),
  ]);
  const title = element("h2", { id: "keys-title" }, words.keys);
  const close = element("button", { type: "button" }, words.close);
  const made = element("dialog", { id: "keys", "aria-labelledby": "keys-title" }, title, element("dl", {}, ...rows), close);
  close.addEventListener("click", () => made.close());
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  made.showModal();
}
