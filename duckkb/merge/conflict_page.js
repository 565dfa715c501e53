"use strict";
(() => {
  const { element, number, scrolled, noRoom, foldable, finding } = parts;
  const { button, searchField, themeButton, typeChoice, counter, helpDialog, onKeys } = parts;
  const data = JSON.parse(document.getElementById("data").textContent);
  const { summary, conflicts } = data;
  const CHOICES = [["ours", "Ours", "o"], ["theirs", "Theirs", "t"], ["base", "Base", "b"], ["edit", "Edited", "e"]];
  const UNSEEN = /[\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|\udb40[\udc00-\udfff]/g;
  const MOST_NAMES = 200;
  const taken = new Map(); // by the number of the conflict: ours, theirs, base or edit
  const edits = new Map(); // by the number of the conflict: what stands in its field
  const texts = new Array(conflicts.length);
  const chosen = { words: [], type: "", open: false };

  const escaped = (json) =>
    json.replace(UNSEEN, (some) => [...Array(some.length).keys()].map((at) => `\\u${some.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));

  // The JSON of an edit, or why it is none. The text is checked and passed on as it stands: numbers keep their digits.
  function edited(index) {
    const { as, begin } = conflicts[index].edit;
    const text = edits.has(index) ? edits.get(index) : begin;
    if (as === "text") return { json: escaped(JSON.stringify(text)) };
    try {
      const value = JSON.parse(text);
      const isRecord = typeof value === "object" && value !== null && !Array.isArray(value);
      if (as === "record" && !isRecord) return { wrong: "A record is an object: {\"field\": value, ...}" };
      return { json: escaped(text.trim().replace(/[\n\r\t]/g, " ")) };
    } catch (error) {
      return { wrong: `No JSON yet: ${error.message}` };
    }
  }

  const isSettled = (index) => taken.has(index) && (taken.get(index) !== "edit" || !edited(index).wrong);

  function answer(index) {
    const { head, edit } = conflicts[index];
    const side = taken.get(index);
    if (side !== "edit") return `{${head},"choose":"${side}"}`;
    return `{${head},"${edit.as === "record" ? "record" : "value"}":${edited(index).json}}`;
  }

  const quoted = (name) => (/^[\w.:@%+=,/-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`);

  // Flags where they name each conflict beyond doubt; else the answers go in with the command.
  function command(settled, lines) {
    const named = settled.map((index) => taken.get(index) !== "edit" && conflicts[index].selector);
    if (settled.length <= MOST_NAMES && named.every(Boolean)) {
      const flags = settled.map((index, at) => ` --${taken.get(index)} ${quoted(named[at])}`);
      return `duckkb resolve --stage${flags.join("")}`;
    }
    return `duckkb resolve --stage --with-file - <<'ANSWERS'\n${lines}\nANSWERS`;
  }

  const output = { command: box("command", "Command"), answers: box("answers", "Answers (JSON lines)") };
  const progress = element("p", { id: "progress" });
  progress.setAttribute("role", "status");
  const bar = element("progress", { id: "bar", max: Math.max(conflicts.length, 1), value: 0 });
  bar.setAttribute("aria-label", "Settled");

  function box(id, label) {
    const field = element("textarea", { id, readOnly: true, rows: 4, spellcheck: false });
    const copy = button("", "Copy", () => {
      field.select();
      document.execCommand("copy");
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
    copy.setAttribute("aria-label", `Copy: ${label}`);
    const title = element("label", { htmlFor: id }, label);
    const tools = element("div", { className: "row" }, title, copy);
    return { field, tools, whole: element("div", { className: "output" }, tools, field) };
  }

  function tell() {
    const settled = [...taken.keys()].filter(isSettled).sort((one, other) => one - other);
    const lines = settled.map(answer).join("\n");
    output.answers.field.value = lines && `${lines}\n`;
    output.command.field.value = settled.length ? command(settled, lines) : "";
    bar.value = settled.length;
    const open = conflicts.length - settled.length;
    progress.textContent = `${number(settled.length)} of ${number(conflicts.length)} settled${open ? "" : ": c leads to the command"}`;
  }

  let waiting = 0;
  function tellSoon() {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(tell);
  }

  function save() {
    const link = element("a", { download: "answers.jsonl" });
    link.href = URL.createObjectURL(new Blob([output.answers.field.value], { type: "application/jsonl" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function value(runs, conflict, name) {
    if (runs === null) return element("div", { className: "quiet" }, conflict.field ? "absent" : "no record");
    const made = element("div", { className: "value", dir: "auto" });
    for (const [kind, text] of runs) made.append(kind === 2 ? element("ins", {}, text) : text);
    if (made.textContent.length > 1500) {
      made.tabIndex = 0;
      made.setAttribute("role", "region");
      made.setAttribute("aria-label", `${name} of ${conflict.type} ${conflict.id} ${conflict.field}`);
    }
    return made;
  }

  function editor(index, made) {
    const conflict = conflicts[index];
    const field = element("textarea", { className: "value", rows: 3, spellcheck: false, dir: "auto" });
    field.value = edits.has(index) ? edits.get(index) : conflict.edit.begin;
    field.setAttribute("aria-label", `Edited ${conflict.type} ${conflict.id} ${conflict.field}`);
    const said = element("div", { className: "wrong" });
    said.setAttribute("role", "alert");
    field.addEventListener("input", () => {
      edits.set(index, field.value);
      take(index, "edit", made);
    });
    const hint = { text: "", json: "JSON; null leaves the field out", record: "JSON of the whole record" }[conflict.edit.as];
    return element("div", {}, field, said, element("div", { className: "quiet" }, hint));
  }

  function show(index, made) {
    const side = taken.get(index);
    for (const option of made.querySelectorAll("input[type=radio]")) {
      option.checked = option.value === side;
      option.closest(".choice").classList.toggle("taken", option.checked);
    }
    const wrong = side === "edit" ? edited(index).wrong || "" : "";
    made.querySelector(".wrong").textContent = wrong;
    made.querySelector("textarea").setAttribute("aria-invalid", String(Boolean(wrong)));
    made.classList.toggle("settled", isSettled(index));
    made.querySelector(".state").textContent = isSettled(index) ? "settled" : "open";
  }

  function take(index, side, made) {
    if (side) taken.set(index, side);
    else taken.delete(index);
    if (made) show(index, made);
    tellSoon();
  }

  function choice(index, [side, label, key], made) {
    const conflict = conflicts[index];
    const option = element("input", { type: "radio", name: `choice-${index}`, value: side });
    const name = element("span", { className: "grade" }, label, " ", element("kbd", {}, key));
    const at = { base: 0, ours: 1, theirs: 2 }[side];
    const isGone = at !== undefined && conflict.sides[at] === null;
    const does = isGone ? (conflict.field ? " leaves the field out" : " deletes the record") : "";
    option.setAttribute("aria-label", `${label}${does}`);
    option.addEventListener("change", () => take(index, side, made));
    const head = element("label", { className: "row" }, option, name, element("span", { className: "quiet" }, does));
    const body = side === "edit" ? editor(index, made) : value(conflict.sides[at], conflict, label);
    return element("div", { className: `choice ${side}` }, head, body);
  }

  function item(index) {
    const conflict = conflicts[index];
    const made = element("article", { tabIndex: -1 });
    const title = element("h3", { id: `conflict-${index}` });
    title.append(element("span", { className: "op state" }), ` ${conflict.type} `, element("code", {}, conflict.id), " ");
    title.append(conflict.field ? element("strong", {}, conflict.field) : "the whole record");
    made.setAttribute("aria-label", `${conflict.type} ${conflict.id} ${conflict.field}`);
    made.append(element("header", {}, title, element("div", { className: "place" }, conflict.path)));
    const choices = element("div", { className: "choices" });
    choices.setAttribute("role", "radiogroup");
    choices.setAttribute("aria-labelledby", title.id);
    choices.append(...CHOICES.map((one) => choice(index, one, made)));
    made.append(choices);
    show(index, made);
    return made;
  }

  const lost = noRoom(data.left, "settle these, then make it again.");
  const list = scrolled(item, "conflict", `No more conflicts.${lost}`);
  const count = counter();
  let listed = [];

  function textOf(index) {
    if (texts[index] === undefined) {
      const { type, id, field, path, sides } = conflicts[index];
      const values = sides.map((runs) => (runs || []).map((run) => run[1]).join(""));
      texts[index] = [type, id, field, path, ...values].join("\n").toLowerCase();
    }
    return texts[index];
  }

  function choose() {
    listed = [...conflicts.keys()].filter((index) => {
      if (chosen.type && conflicts[index].type !== chosen.type) return false;
      if (chosen.open && isSettled(index)) return false;
      return chosen.words.every((word) => textOf(index).includes(word));
    });
    const all = listed.length === conflicts.length ? "" : ` of ${number(conflicts.length)}`;
    count.textContent = `${number(listed.length)}${all} conflict${conflicts.length === 1 ? "" : "s"}`;
    list.fill(listed);
  }

  // The conflict that has the focus, or the first one.
  function takeHere(side) {
    if (list.here() === undefined) list.go(1);
    const index = list.here();
    if (index === undefined) return;
    const made = document.getElementById(`conflict-${index}`).closest("article");
    take(index, side, made);
    if (side === "edit") made.querySelector("textarea").focus();
  }

  function takeListed(side) {
    for (const index of listed) if (!side || !taken.has(index)) take(index, side, null);
    choose();
  }

  function tools() {
    const made = element("div", { className: "tools" });
    made.setAttribute("role", "search");
    const open = button("open", "Open only", () => {
      chosen.open = !chosen.open;
      open.setAttribute("aria-pressed", String(chosen.open));
      choose();
    });
    open.setAttribute("aria-pressed", "false");
    open.classList.add("switch");
    const search = searchField("conflicts", (words) => {
      chosen.words = words;
      choose();
    });
    made.append(search, typeChoice(summary.types, (type) => { chosen.type = type; choose(); }), open);
    made.append(button("all-ours", "Rest: ours", () => takeListed("ours")));
    made.append(button("all-theirs", "Rest: theirs", () => takeListed("theirs")));
    made.append(button("none", "Undo", () => takeListed("")));
    for (const one of made.querySelectorAll("#all-ours, #all-theirs, #none")) one.title = "Of the conflicts that are listed now";
    return made;
  }

  const places = (path) => element("li", { className: "warning" }, element("code", {}, path));

  function build() {
    const help = helpDialog([
      ["j", "next conflict"],
      ["k", "conflict before"],
      ["o", "ours"],
      ["t", "theirs"],
      ["b", "base: what both came from"],
      ["e", "edit; Escape leaves the field"],
      ["u", "undo the choice"],
      ["c", "to the command"],
      ["/", "search"],
      ["?", "this help"],
    ]);
    const said = element("p", {}, summary.sides, " Choose for each conflict; then run the command in the knowledge base, or give the answers to ", element("code", {}, "duckkb resolve --with-file"), ".");
    const title = summary.operation ? `Conflicts of a ${summary.operation}` : "Conflicts";
    const head = element("header", { className: "page" }, element("h1", {}, title), said);
    const bars = tools();
    bars.append(themeButton(), button("keys", "Keys", () => help.showModal()), progress, bar);
    const main = element("main", {});
    if (summary.violations.length) main.append(foldable("Rules that are broken", summary.violations, finding));
    if (summary.unreadable.length) main.append(foldable("Parts to mend by hand", summary.unreadable, places));
    if (summary.others.length) main.append(foldable("Files left to git", summary.others, places));
    const result = element("section", { id: "result" }, element("h2", { id: "result-title" }, "Carry it out"));
    result.setAttribute("aria-labelledby", "result-title");
    output.answers.tools.append(button("save", "Save as answers.jsonl", save));
    result.append(output.command.whole, output.answers.whole);
    main.append(element("h2", {}, "Conflicts"), count, list.list, list.end, result);
    document.body.replaceChildren(head, bars, main, help);
    const sides = Object.fromEntries(CHOICES.map(([side, , key]) => [key, () => takeHere(side)]));
    const walk = { j: () => list.go(1), k: () => list.go(-1), u: () => takeHere(""), c: () => output.command.field.focus() };
    onKeys(help, { ...walk, ...sides });
    choose();
    tell();
  }

  build();
})();
