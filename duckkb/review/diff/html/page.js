"use strict";
(() => {
  const STEP = 40;
  const data = JSON.parse(document.getElementById("data").textContent);
  const { summary, changes } = data;
  const chosen = { ops: new Set(Object.keys(summary.ops)), type: "", words: [] };
  const texts = new Array(changes.length);
  let listed = [];
  let shown = 0;
  let current = -1;

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

  // Runs are [kind, text]: 0 stands on both sides, 1 on the old alone, 2 on the new alone.
  function side(runs, kind, whole) {
    const cell = element("div", { className: whole ? "value whole" : "value", dir: "auto" });
    for (const [which, text] of runs) {
      if (which === 0) cell.append(text);
      else if (which === kind) cell.append(element(kind === 1 ? "del" : "ins", {}, text));
    }
    return cell;
  }

  function cell(runs, kind, sides, name) {
    const made = element("td");
    if (!(sides & kind)) {
      made.append(element("span", { className: "quiet" }, "absent"));
      return made;
    }
    const value = side(runs, kind, sides !== 3);
    if (value.textContent.length > 1500) {
      value.tabIndex = 0;
      value.setAttribute("role", "region");
      value.setAttribute("aria-label", `${name}, ${kind === 1 ? "before" : "after"}`);
    }
    made.append(value);
    return made;
  }

  function fieldTable(change) {
    const columns = change.op === "insert" ? [2] : change.op === "delete" ? [1] : [1, 2];
    const heads = columns.map((kind) => element("th", { scope: "col" }, kind === 1 ? "Before" : "After"));
    const rows = change.fields.map(([name, sides, runs]) =>
      element("tr", {}, element("th", { scope: "row" }, name), ...columns.map((kind) => cell(runs, kind, sides, name))),
    );
    return element(
      "table",
      {},
      element("caption", {}, `Fields of ${change.type} ${change.id}`),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Field"), ...heads)),
      element("tbody", {}, ...rows),
    );
  }

  function record(index, place) {
    const change = changes[index];
    const was = change.was === undefined ? "" : ` (was ${change.was})`;
    const title = element("h3", { id: `record-${index}` });
    title.append(element("span", { className: `op ${change.op}` }, summary.words[change.op]), ` ${change.type} `);
    title.append(element("code", {}, change.id), was);
    const [before, after] = change.places;
    const where = before && after && before.split(":")[0] !== after.split(":")[0] ? `${before} → ${after}` : after || before;
    const made = element("article", { tabIndex: -1 });
    made.dataset.place = String(place);
    made.setAttribute("aria-label", title.textContent);
    made.append(element("header", {}, title, element("div", { className: "place" }, where)));
    if (change.fields.length) made.append(fieldTable(change));
    return made;
  }

  function textOf(index) {
    if (texts[index] === undefined) {
      const change = changes[index];
      const fields = change.fields.flatMap(([name, , runs]) => [name, runs.map((run) => run[1]).join("")]);
      texts[index] = [change.type, change.id, change.was || "", ...change.places, ...fields].join("\n").toLowerCase();
    }
    return texts[index];
  }

  function isChosen(change, index) {
    if (!chosen.ops.has(change.op) || (chosen.type && change.type !== chosen.type)) return false;
    return chosen.words.every((word) => textOf(index).includes(word));
  }

  const list = element("div", { id: "records" });
  const end = element("p", { className: "quiet", id: "end" });
  const count = element("p", { className: "quiet", id: "count" });
  count.setAttribute("role", "status");

  function showMore(until = shown + STEP) {
    const some = document.createDocumentFragment();
    for (; shown < Math.min(until, listed.length); shown += 1) some.append(record(listed[shown], shown));
    list.append(some);
    const left = Object.entries(data.left).map(([type, lost]) => `${number(lost)} ${type}`);
    const lost = left.length ? ` The page has no room for ${left.join(", ")} more.` : "";
    end.textContent = shown < listed.length ? `${many(listed.length - shown, "record")} more below` : `No more records.${lost}`;
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

  function choose() {
    listed = [];
    changes.forEach((change, index) => {
      if (isChosen(change, index)) listed.push(index);
    });
    shown = 0;
    current = -1;
    list.replaceChildren();
    const all = listed.length === changes.length ? "" : ` of ${number(changes.length)}`;
    count.textContent = `${number(listed.length)}${all} changed ${changes.length === 1 ? "record" : "records"}`;
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

  function opButtons() {
    return Object.entries(summary.ops)
      .filter(([, number]) => number)
      .map(([op, total]) => {
        const button = element("button", { type: "button" }, `${summary.words[op]} ${number(total)}`);
        button.setAttribute("aria-pressed", "true");
        button.addEventListener("click", () => {
          const isOn = !chosen.ops.delete(op);
          if (isOn) chosen.ops.add(op);
          button.setAttribute("aria-pressed", String(isOn));
          choose();
        });
        return button;
      });
  }

  function typeChoice() {
    const options = Object.entries(summary.types).map(([type, total]) =>
      element("option", { value: type }, `${type} (${number(total)})`),
    );
    const select = element("select", { id: "type" }, element("option", { value: "" }, "All types"), ...options);
    select.setAttribute("aria-label", "Type");
    select.addEventListener("change", () => {
      chosen.type = select.value;
      choose();
    });
    return select;
  }

  function searchField() {
    const field = element("input", { type: "search", id: "search", placeholder: "Search records  ( / )" });
    field.setAttribute("aria-label", "Search records");
    let waiting = 0;
    field.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        chosen.words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
        choose();
      }, 120);
    });
    return field;
  }

  function themeButton() {
    const button = element("button", { type: "button", id: "theme" }, "Dark / light");
    button.addEventListener("click", () => {
      const root = document.documentElement;
      const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    });
    return button;
  }

  function helpDialog() {
    const keys = [
      ["j", "next record"],
      ["k", "record before"],
      ["/", "search"],
      ["Escape", "leave the search"],
      ["?", "this help"],
    ];
    const rows = keys.flatMap(([key, what]) => [
      element("dt", {}, element("kbd", {}, key)),
      element("dd", {}, what),
    ]);
    const close = element("button", { type: "button" }, "Close");
    const title = element("h2", { id: "help-title" }, "Keyboard");
    const made = element("dialog", { id: "help" }, title, element("dl", {}, ...rows), close);
    made.setAttribute("aria-labelledby", title.id);
    close.addEventListener("click", () => made.close());
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
      const more = element("button", { type: "button" }, `Show ${number(items.length - STEP)} more`);
      more.addEventListener("click", () => {
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

  function configured([what, runs]) {
    const said = element("div", { className: "value" });
    for (const [kind, text] of runs) said.append(kind ? element(kind === 1 ? "del" : "ins", {}, text) : text);
    return element("li", {}, element("code", {}, what), said);
  }

  function onKey(event) {
    const help = document.getElementById("help");
    const isTyping = event.target.closest && event.target.closest("input, select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (help.open && event.key !== "?") return;
    const act = {
      j: () => go(1),
      k: () => go(-1),
      "/": () => document.getElementById("search").focus(),
      "?": () => (help.open ? help.close() : help.showModal()),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  }

  function build() {
    const help = helpDialog();
    const helpButton = element("button", { type: "button", id: "keys" }, "Keys");
    helpButton.addEventListener("click", () => help.showModal());
    const from = element("p", {}, "From ", element("code", {}, summary.base), " to ", element("code", {}, summary.head));
    const respelled = summary.respelled ? `${many(summary.respelled, "line")} only written otherwise` : "";
    const head = element("header", { className: "page" }, element("h1", {}, "Knowledge that changed"), from);
    if (respelled) head.append(element("p", { className: "quiet" }, respelled));
    const tools = element("div", { className: "tools" });
    tools.setAttribute("role", "search");
    tools.append(searchField(), typeChoice(), ...opButtons(), themeButton(), helpButton);
    const main = element("main", {});
    if (summary.findings.length) main.append(foldable("Findings", summary.findings, finding));
    if (summary.ontology.length) main.append(foldable("Configuration", summary.ontology, configured));
    const title = element("h2", {}, "Records");
    main.append(title, count, list, end);
    document.body.replaceChildren(head, tools, main, help);
    document.addEventListener("keydown", onKey);
    list.addEventListener("focusin", (event) => {
      const article = event.target.closest("article");
      if (article) current = Number(article.dataset.place);
    });
    choose();
  }

  build();
})();
