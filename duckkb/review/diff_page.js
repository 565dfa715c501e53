"use strict";
(() => {
  const { element, number, many, scrolled, noRoom, foldable, finding } = parts;
  const { button, searchField, themeButton, typeChoice, counter, helpDialog, onKeys } = parts;
  const data = JSON.parse(document.getElementById("data").textContent);
  const { summary, changes } = data;
  const chosen = { ops: new Set(Object.keys(summary.ops)), type: "", words: [] };
  const texts = new Array(changes.length);

  // An address is made of ours and of a commit; a page that opens another tells it nothing.
  function linked(text, address) {
    return address ? element("a", { href: address, rel: "noreferrer" }, text) : element("span", {}, text);
  }

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

  function record(index) {
    const change = changes[index];
    const was = change.was === undefined ? "" : ` (was ${change.was})`;
    const title = element("h3", { id: `record-${index}` });
    title.append(element("span", { className: `op ${change.op}` }, summary.words[change.op]), ` ${change.type} `);
    title.append(element("code", {}, change.id), was);
    const [name, ...context] = change.shown;
    if (name !== undefined) title.append(element("span", { className: "name", dir: "auto" }, ` ${name}`));
    const [before, after] = change.places;
    const [wasAt, isAt] = change.places.map((text, side) => linked(text, change.links[side]));
    const where = before && after && before.split(":")[0] !== after.split(":")[0] ? [wasAt, " → ", isAt] : [after ? isAt : wasAt];
    const made = element("article", { tabIndex: -1 });
    made.setAttribute("aria-label", title.textContent);
    const about = context.map((text) => element("span", { dir: "auto" }, ` · ${text}`));
    made.append(element("header", {}, title, element("div", { className: "place" }, ...where, ...about)));
    if (change.fields.length) made.append(fieldTable(change));
    return made;
  }

  function textOf(index) {
    if (texts[index] === undefined) {
      const change = changes[index];
      const fields = change.fields.flatMap(([name, , runs]) => [name, runs.map((run) => run[1]).join("")]);
      texts[index] = [change.type, change.id, change.was || "", ...change.shown, ...change.places, ...fields].join("\n").toLowerCase();
    }
    return texts[index];
  }

  function isChosen(change, index) {
    if (!chosen.ops.has(change.op) || (chosen.type && change.type !== chosen.type)) return false;
    return chosen.words.every((word) => textOf(index).includes(word));
  }

  const count = counter();
  const records = scrolled(record, "record", `No more records.${noRoom(data.left, data.next)}`);

  function choose() {
    const listed = [...changes.keys()].filter((index) => isChosen(changes[index], index));
    const all = listed.length === changes.length ? "" : ` of ${number(changes.length)}`;
    count.textContent = `${number(listed.length)}${all} changed ${changes.length === 1 ? "record" : "records"}`;
    records.fill(listed);
  }

  function opButtons() {
    return Object.entries(summary.ops)
      .filter(([, number]) => number)
      .map(([op, total]) => {
        const made = button("", `${summary.words[op]} ${number(total)}`, () => {
          const isOn = !chosen.ops.delete(op);
          if (isOn) chosen.ops.add(op);
          made.setAttribute("aria-pressed", String(isOn));
          choose();
        });
        made.setAttribute("aria-pressed", "true");
        return made;
      });
  }

  function configured([what, runs]) {
    const said = element("div", { className: "value" });
    for (const [kind, text] of runs) said.append(kind ? element(kind === 1 ? "del" : "ins", {}, text) : text);
    return element("li", {}, element("code", {}, what), said);
  }

  function build() {
    const help = helpDialog([
      ["j", "next record"],
      ["k", "record before"],
      ["/", "search"],
      ["Escape", "leave the search"],
      ["?", "this help"],
    ]);
    const sides = [summary.base, summary.head].map((text, side) => element("code", {}, linked(text, summary.commits[side])));
    const from = element("p", {}, "From ", sides[0], " to ", sides[1]);
    const respelled = summary.respelled ? `${many(summary.respelled, "line")} only written otherwise` : "";
    const head = element("header", { className: "page" }, element("h1", {}, "Knowledge that changed"));
    if (summary.headline) head.append(element("p", { id: "headline" }, element("strong", {}, summary.headline)));
    head.append(from);
    if (respelled) head.append(element("p", { className: "quiet" }, respelled));
    const tools = element("div", { className: "tools" });
    tools.setAttribute("role", "search");
    const search = searchField("records", (words) => { chosen.words = words; choose(); });
    const types = typeChoice(summary.types, (type) => { chosen.type = type; choose(); });
    tools.append(search, types, ...opButtons(), themeButton(), button("keys", "Keys", () => help.showModal()));
    const main = element("main", {});
    if (summary.findings.length) main.append(foldable("Findings", summary.findings, finding));
    if (summary.ontology.length) main.append(foldable("Configuration", summary.ontology, configured));
    const title = element("h2", {}, "Records");
    main.append(title, count, records.list, records.end);
    if (summary.impact.length) {
      const impact = element("section", { id: "impact" }, element("h2", {}, "What this does to search"));
      main.append(impact);
      impact.append(element("pre", { dir: "auto", tabIndex: 0 }, summary.impact.join("\n")));
    }
    document.body.replaceChildren(head, tools, main, help);
    onKeys(help, { j: () => records.go(1), k: () => records.go(-1) });
    choose();
  }

  build();
})();
