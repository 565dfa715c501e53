// What a reviewer has viewed and says of a change. All of it is kept in this browser; nothing is sent.
import { element, onKey, words } from "./parts.js";

const review = document.getElementById("review");
const { room, tenant, change, base, head, prefix } = review.dataset;
const items = [...review.querySelectorAll(".changed")];
const place = (what, of) => ["duckkb", room, what, tenant, of].join("\n");

function kept(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function keep(key, value) {
  try {
    if (Object.keys(value).length) localStorage.setItem(key, JSON.stringify(value));
    else localStorage.removeItem(key);
    return true;
  } catch {
    said(words.full);
    return false;
  }
}

// A mark is of both versions of a record, since a commit: where the record changes again it has another one.
const VIEWED = place("viewed", base);
const markOf = (item) => `${item.dataset.type}\n${item.dataset.identity}\n${item.dataset.mark}`;

function show(item, isViewed) {
  item.classList.toggle("is-viewed", isViewed);
  item.querySelector(".viewed input").checked = isViewed;
  item.querySelector(".difference").hidden = isViewed;
}

function count() {
  const done = items.filter((item) => item.classList.contains("is-viewed")).length;
  const told = words.viewed_count.replace("{done}", done).replace("{all}", items.length);
  document.getElementById("viewed-count").textContent = items.length ? `· ${told}` : "";
}

function mark(item, isViewed) {
  const marks = kept(VIEWED, {});
  if (isViewed) marks[markOf(item)] = 1;
  else delete marks[markOf(item)];
  keep(VIEWED, marks);
  show(item, isViewed);
  count();
}

const COMMENTS = place("comments", change);
const isOf = (one, item) => one.type === item.dataset.type && one.identity === item.dataset.identity;
const number = () => `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;

function said(text) {
  document.getElementById("comment-said").textContent = text;
}

function change_comments(make) {
  const isKept = keep(COMMENTS, make(kept(COMMENTS, [])));
  draw();
  return isKept;
}

function write(item, field, old) {
  const about = `${old?.number ?? ""}\n${field}`;
  const begun = [...item.querySelectorAll("form.writing")].find((one) => one.dataset.about === about);
  if (begun) {
    begun.querySelector("textarea").focus();
    return;
  }
  const text = element("textarea", { rows: 3, dir: "auto", value: old?.text ?? "", "aria-label": field ? `${words.comment}: ${field}` : words.comment });
  const save = element("button", { type: "submit", className: "primary" }, words.save);
  const cancel = element("button", { type: "button" }, words.cancel);
  const form = element("form", { className: "writing" }, ...(field ? [element("code", {}, field)] : []), text, element("p", { className: "buttons" }, save, cancel));
  form.dataset.about = about;
  const back = document.activeElement;
  const done = () => {
    form.remove();
    (back && back.isConnected ? back : item.querySelector("[data-open]")).focus();
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const { type, identity, path, line, side, etag } = item.dataset;
    const made = { number: old?.number ?? number(), type, identity, field, path: prefix + path, line: Number(line), side, etag, text: text.value.trim() };
    if (change_comments((all) => [...all.filter((one) => one.number !== made.number), ...(made.text ? [made] : [])])) done();
  });
  cancel.addEventListener("click", done);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") done();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  item.querySelector(".comments").append(form);
  text.focus();
}

function drawn(one, item) {
  const about = [one.field, item && one.etag !== item.dataset.etag ? words.earlier : ""].filter(Boolean).join(" · ");
  const edit = element("button", { type: "button" }, words.edit);
  const remove = element("button", { type: "button" }, words.remove);
  edit.addEventListener("click", () => write(item, one.field, one));
  remove.addEventListener("click", () => change_comments((all) => all.filter((other) => other.number !== one.number)));
  return element("div", { className: "said" }, ...(about ? [element("p", { className: "about" }, about)] : []),
    element("p", { className: "words", dir: "auto" }, one.text), element("p", { className: "buttons" }, edit, remove));
}

function draw() {
  const all = kept(COMMENTS, []);
  for (const item of items) {
    for (const old of item.querySelectorAll(".said")) old.remove();
    item.querySelector(".comments").prepend(...all.filter((one) => isOf(one, item)).map((one) => drawn(one, item)));
  }
  const list = document.getElementById("comment-list");
  list.replaceChildren(...all.map((one) => {
    const item = items.find((other) => isOf(one, other));
    const name = `${one.type} ${one.identity}`.slice(0, 120);
    const title = item ? element("a", { href: `#${item.id}` }, name) : element("span", {}, `${name} (${words.elsewhere})`);
    return element("li", {}, title, element("p", { className: "words", dir: "auto" }, one.text));
  }));
  document.getElementById("comment-export").hidden = !all.length;
}

// Backticks inside are outnumbered by those around; a line end would end the span.
function span(text) {
  const runs = text.match(/`+/g) ?? [];
  const fence = "`".repeat(Math.max(0, ...runs.map((run) => run.length)) + 1);
  const gap = runs.length ? " " : "";
  return fence + gap + text.replace(/\s+/g, " ") + gap + fence;
}

function asMarkdown() {
  const title = `## ${words.review_of} ${span(change || "HEAD")}${head ? ` (${head.slice(0, 12)})` : ""}`;
  const told = kept(COMMENTS, []).map((one) => {
    const about = `- ${span(`${one.path}:${one.line}`)} ${span(`${one.type} ${one.identity}`)}${one.field ? ` ${span(one.field)}` : ""}`;
    return `${about}\n\n${one.text.split("\n").map((line) => `  ${line}`).join("\n")}\n`;
  });
  return [title, "", ...told].join("\n");
}

// As https://docs.github.com/en/rest/pulls/reviews takes it; a record is one line of its file.
function asReview() {
  const comments = kept(COMMENTS, []).map(({ path, line, side, field, text }) => (
    { path, line, side, body: field ? `${span(field)}: ${text}` : text }
  ));
  return JSON.stringify({ ...(head ? { commit_id: head } : {}), event: "COMMENT", comments }, null, 1);
}

function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

const taken = {
  copy: () => navigator.clipboard.writeText(asMarkdown()).then(() => said(words.copied), () => download("review.md", asMarkdown(), "text/markdown")),
  markdown: () => download("review.md", asMarkdown(), "text/markdown"),
  json: () => download("review.json", asReview(), "application/json"),
  clear: () => confirm(words.sure) && change_comments(() => []),
};

const marks = kept(VIEWED, {});
for (const item of items) {
  const label = item.querySelector(".viewed");
  label.hidden = false;
  label.querySelector("input").addEventListener("change", (event) => mark(item, event.target.checked));
  for (const button of item.querySelectorAll("button.comment")) {
    button.hidden = false;
    button.addEventListener("click", () => write(item, button.dataset.field));
  }
  show(item, markOf(item) in marks);
}
document.getElementById("comments").hidden = false;
document.getElementById("comment-export").addEventListener("click", (event) => taken[event.target.dataset.export]?.());
window.addEventListener("storage", (event) => event.key === COMMENTS && draw());

const focused = () => items.find((item) => item.contains(document.activeElement));
onKey(["v"], words["key.viewed"], () => {
  const item = focused();
  if (!item) return false;
  mark(item, !item.classList.contains("is-viewed"));
  const next = items[items.indexOf(item) + 1];
  if (next && item.classList.contains("is-viewed")) next.querySelector("[data-open]").focus();
  return true;
});
onKey(["c"], words["key.comment"], () => {
  const item = focused();
  if (!item) return false;
  write(item, "");
  return true;
});
draw();
count();
