"use strict";
// What the scripts of all pages are made of. Text goes onto a page as text, never as markup.
const parts = (() => {
  const STEP = 40;

  function element(name, properties = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (key in made) made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  const number = (count) => count.toLocaleString("en");
  const many = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

  // A list whose items are made as they are scrolled to. `make(item, place)` gives an element that can take the focus.
  function scrolled(make, noun, last) {
    const list = element("div", { id: "records" });
    const end = element("p", { className: "quiet", id: "end" });
    let listed = [];
    let shown = 0;
    let current = -1;

    function showMore(until = shown + STEP) {
      const some = document.createDocumentFragment();
      for (; shown < Math.min(until, listed.length); shown += 1) {
        const made = make(listed[shown], shown);
        made.dataset.place = String(shown);
        some.append(made);
      }
      list.append(some);
      end.textContent = shown < listed.length ? `${many(listed.length - shown, noun)} more below` : last;
    }

    const watcher = new IntersectionObserver((seen) => {
      if (!seen.some((one) => one.isIntersecting) || shown >= listed.length) return;
      showMore();
      watch();
    }, { rootMargin: "1500px" });

    // It tells of changes alone: what is still near after more was shown must be seen anew.
    function watch() {
      watcher.unobserve(end);
      watcher.observe(end);
    }

    function fill(items) {
      listed = items;
      shown = 0;
      current = -1;
      list.replaceChildren();
      showMore();
      watch();
    }

    function go(step) {
      const next = Math.max(0, Math.min(listed.length - 1, current + step));
      if (!listed.length) return;
      if (next >= shown) showMore(next + STEP);
      current = next;
      const target = list.children[next];
      target.focus({ preventScroll: true });
      target.scrollIntoView({ block: "start" });
    }

    list.addEventListener("focusin", (event) => {
      const item = event.target.closest("article");
      if (item) current = Number(item.dataset.place);
    });
    return { list, end, fill, go, here: () => listed[current] };
  }

  function searchField(what, search) {
    const field = element("input", { type: "search", id: "search", placeholder: `Search ${what}  ( / )` });
    field.setAttribute("aria-label", `Search ${what}`);
    let waiting = 0;
    field.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => search(field.value.toLowerCase().split(/\s+/).filter(Boolean)), 120);
    });
    return field;
  }

  function button(id, text, act) {
    const made = element("button", { type: "button" }, text);
    if (id) made.id = id;
    made.addEventListener("click", act);
    return made;
  }

  function themeButton() {
    return button("theme", "Dark / light", () => {
      const root = document.documentElement;
      const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    });
  }

  // One type or, as "", all of them; `types` has how many there are of each.
  function typeChoice(types, choose) {
    const options = Object.entries(types).map(([type, total]) => element("option", { value: type }, `${type} (${number(total)})`));
    const select = element("select", { id: "type" }, element("option", { value: "" }, "All types"), ...options);
    select.setAttribute("aria-label", "Type");
    select.addEventListener("change", () => choose(select.value));
    return select;
  }

  // How many items are listed, which is read aloud as it changes.
  function counter() {
    const made = element("p", { className: "quiet", id: "count" });
    made.setAttribute("role", "status");
    return made;
  }

  // What the page leaves out, by type, and what to do about it.
  function noRoom(left, advice) {
    const lost = Object.entries(left).map(([type, count]) => `${number(count)} ${type}`);
    return lost.length ? ` The page has no room for ${lost.join(", ")} more: ${advice}` : "";
  }

  function helpDialog(keys) {
    const rows = keys.flatMap(([key, what]) => [
      element("dt", {}, element("kbd", {}, key)),
      element("dd", {}, what),
    ]);
    const title = element("h2", { id: "help-title" }, "Keyboard");
    const made = element("dialog", { id: "help" }, title, element("dl", {}, ...rows), button("", "Close", () => made.close()));
    made.setAttribute("aria-labelledby", title.id);
    return made;
  }

  function foldable(title, items, make) {
    const box = element("section", {});
    const heading = element("h2", { id: `title-${title}` }, `${title} (${number(items.length)})`);
    const rows = element("ul", { className: "findings" });
    box.setAttribute("aria-labelledby", heading.id);
    box.append(heading, rows);
    rows.append(...items.slice(0, STEP).map(make));
    if (items.length > STEP) {
      const more = button("", `Show ${number(items.length - STEP)} more`, () => {
        rows.append(...items.slice(STEP).map(make));
        more.remove();
      });
      box.append(more);
    }
    return box;
  }

  function finding(one) {
    const isError = one.code.startsWith("E_");
    const row = element("li", { className: isError ? "error" : "warning" });
    row.append(element("span", { className: "grade" }, isError ? "error " : "warning "), element("code", {}, one.code));
    for (const name of ["record", "place", "field"]) if (one[name]) row.append(" ", element("code", {}, one[name]));
    row.append(element("div", { dir: "auto" }, one.message));
    if (one.remedy) row.append(element("div", { className: "quiet" }, one.remedy));
    return row;
  }

  // One key each, where nothing is being typed; / and ? are every page's.
  function onKeys(help, own) {
    const acts = {
      "/": () => document.getElementById("search").focus(),
      "?": () => (help.open ? help.close() : help.showModal()),
      ...own,
    };
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target.closest && event.target.closest("input:not([type=radio]), select, textarea");
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (isTyping) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      if (help.open && event.key !== "?") return;
      const act = Object.hasOwn(acts, event.key) && acts[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    });
  }

  const tools = { button, searchField, themeButton, typeChoice, counter, helpDialog, onKeys };
  return { element, number, many, scrolled, noRoom, foldable, finding, ...tools };
})();
