// The neighborhood of a record as a picture: placed by forces, moved and scaled by pointer, wheel and keys; each node is a link.
import { element, onKey, words } from "./parts.js";

const SVG = "http://www.w3.org/2000/svg";
const ROUNDS = 300;
const NEAR = 2; // from this scale on every node has its label; before, those that would cover another have none
const MOST_LABELLED = 30; // edges; of more the names come with that scale
const LABEL = { letter: 7, height: 15 };

const section = document.getElementById("neighborhood");
const box = section.querySelector(".drawing");
const WIDTH = box.clientWidth < 560 ? 480 : 900; // of a phone less, so that labels stay as large as text
const HEIGHT = 560;
const said = section.querySelector(".said");
const tools = section.querySelector(".tools");
const view = { x: 0, y: 0, scale: 1 };
let unit = 1; // how much larger dots and labels are drawn, to be as large as text once all of the picture is shown
let stage = null;
let nodes = [];

function shape(name, given = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// What is joined is placed by forces, what is not stands in rows below.
function place(nodes, edges) {
  const lines = edges.filter(({ from, to }) => from !== to).map(({ from, to }) => [nodes[from], nodes[to]]);
  const joined = new Set(lines.flat());
  const bound = nodes.filter((node) => joined.has(node));
  const step = relax(bound, lines);
  const loose = nodes.filter((node) => !joined.has(node));
  const columns = Math.max(WIDTH < 900 ? 3 : 5, Math.ceil(Math.sqrt(1.6 * loose.length)));
  const top = Math.max(0, ...bound.map((node) => node.y)) + (bound.length ? 0.7 * step : 0);
  loose.forEach((node, number) => {
    const row = Math.floor(number / columns);
    const inRow = Math.min(columns, loose.length - row * columns);
    node.x = ((number % columns) - (inRow - 1) / 2) * step;
    node.y = top + 0.6 * row * step;
  });
}

// Fruchterman and Reingold: https://doi.org/10.1002/spe.4380211102
function relax(nodes, lines) {
  const weight = nodes[0]?.size ? 0.2 : 0.02; // types may fall into groups that nothing joins, which must not fly apart

  const wanted = 0.9 * Math.sqrt((WIDTH * HEIGHT) / Math.max(nodes.length, 8));
  nodes.forEach((node, number) => {
    const angle = number * 2.399963; // the golden angle: nobody starts where another does
    const radius = number ? wanted * (0.6 * Math.sqrt(number)) : 0;
    node.x = 1.4 * radius * Math.cos(angle);
    node.y = radius * Math.sin(angle);
  });
  for (let round = 0; round < ROUNDS; round += 1) {
    const heat = 0.5 * wanted * (1 - round / ROUNDS) ** 2 + 0.01;
    for (const node of nodes) {
      node.dx = -weight * node.x;
      node.dy = -2 * weight * node.y; // the picture is wider than high
    }
    for (let at = 0; at < nodes.length; at += 1) {
      const node = nodes[at];
      for (let before = 0; before < at; before += 1) {
        const other = nodes[before];
        const dx = node.x - other.x;
        const dy = node.y - other.y;
        const push = (wanted * wanted) / (dx * dx + dy * dy || 0.01);
        node.dx += dx * push;
        node.dy += dy * push;
        other.dx -= dx * push;
        other.dy -= dy * push;
      }
    }
    for (const [a, b] of lines) {
      const dx = b.x - a.x;
      const dy = b.y - a.y;
      const pull = Math.hypot(dx, dy) / wanted;
      a.dx += dx * pull;
      a.dy += dy * pull;
      b.dx -= dx * pull;
      b.dy -= dy * pull;
    }
    for (const [number, node] of nodes.entries()) {
      if (!number) continue; // the record itself stays in the middle
      const length = Math.hypot(node.dx, node.dy) || 1;
      node.x += (node.dx / length) * Math.min(length, heat);
      node.y += (node.dy / length) * Math.min(length, heat);
    }
  }
  return wanted;
}

function show() {
  if (!stage) return;
  stage.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  stage.classList.toggle("near", view.scale * unit >= NEAR);
}

function fit() {
  const xs = nodes.map((node) => node.x);
  const ys = nodes.map((node) => node.y);
  const [left, right, top, bottom] = [Math.min(...xs) - 70, Math.max(...xs) + 160, Math.min(...ys) - 30, Math.max(...ys) + 30];
  view.scale = Math.min(2, WIDTH / (right - left), HEIGHT / (bottom - top));
  view.x = WIDTH / 2 - (view.scale * (left + right)) / 2;
  view.y = HEIGHT / 2 - (view.scale * (top + bottom)) / 2;
  show();
}

function zoom(by, x = WIDTH / 2, y = HEIGHT / 2) {
  const scale = Math.max(0.05, Math.min(8, view.scale * by));
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  show();
}

// Which labels have room, those nearest to the record first.
function labelled() {
  const [letter, half, dot] = [LABEL.letter * unit, (LABEL.height * unit) / 2, 6 * unit];
  const taken = nodes.map(({ x, y }) => ({ left: x - dot, right: x + dot, top: y - dot, bottom: y + dot }));
  for (const [number, one] of nodes.entries()) {
    const left = one.x + 8 * unit;
    const box = { left, right: left + letter * short(one.title).length, top: one.y - half, bottom: one.y + half };
    const isFree = taken.every((other, at) => at === number || box.left > other.right || other.left > box.right || box.top > other.bottom || other.top > box.bottom);
    one.isLabelled = isFree || !number || Boolean(one.size && nodes.length < MOST_LABELLED);
    if (one.isLabelled) taken.push(box);
  }
}

const short = (text) => (text.length > 28 ? `${text.slice(0, 27)}…` : text);

const radiusOf = (one) => (one.size ?? (one.depth ? 6 : 10)) * unit;

function node(one, number, hues) {
  const radius = radiusOf(one);
  const place = one.size ? { x: 0, y: radius + 13 * unit, "text-anchor": "middle" } : { x: radius + 4 * unit, y: 4 * unit };
  const label = shape("text", { ...place, "font-size": 12 * unit, "stroke-width": 3 * unit });
  label.textContent = short(one.title);
  const title = shape("title");
  title.textContent = `${one.type}: ${one.title}`;
  const dot = shape("circle", { r: radius, class: `hue${hues.get(one.type) % 8}` });
  const link = shape("a", { href: one.link, transform: `translate(${one.x.toFixed(1)} ${one.y.toFixed(1)})` }, title, dot, label);
  link.classList.add("node");
  if (!one.isLabelled) link.classList.add("covered");
  if (!one.depth) link.classList.add("itself");
  return link;
}

// A line ends at the rim of its dot; one to the same dot is a loop, and of two between the same dots each is a bow.
function line(a, b, isBow) {
  if (a === b) {
    const size = radiusOf(a) + 22 * unit;
    const path = shape("path", { class: "loop", d: `M${a.x - 4 * unit} ${a.y} C${a.x - size} ${a.y - 1.7 * size} ${a.x + size} ${a.y - 1.7 * size} ${a.x + 4 * unit} ${a.y}` });
    return [path, { x: a.x, y: a.y - 1.3 * size }];
  }
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const [x, y] = [(b.x - a.x) / length, (b.y - a.y) / length];
  const cut = Math.max(0, radiusOf(b) - 6 * unit);
  const end = { x: b.x - x * cut, y: b.y - y * cut };
  const [middle, side] = [{ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 }, isBow ? 0.14 * length : 0];
  const through = { x: middle.x - y * side, y: middle.y + x * side };
  const made = isBow
    ? shape("path", { class: "bow", d: `M${a.x.toFixed(1)} ${a.y.toFixed(1)} Q${through.x.toFixed(1)} ${through.y.toFixed(1)} ${end.x.toFixed(1)} ${end.y.toFixed(1)}`, "marker-end": "url(#arrow)" })
    : shape("line", { x1: a.x.toFixed(1), y1: a.y.toFixed(1), x2: end.x.toFixed(1), y2: end.y.toFixed(1), "marker-end": "url(#arrow)" });
  return [made, { x: (middle.x + through.x) / 2, y: (middle.y + through.y) / 2 }];
}

function edge({ type, label, from, to }, pairs) {
  const [a, b] = [nodes[from], nodes[to]];
  const [made, at] = line(a, b, pairs.has(`${to} ${from}`));
  const title = shape("title");
  title.textContent = `${a.title} ${type} ${b.title}`;
  made.append(title);
  if (!label) return [made];
  const text = shape("text", { x: at.x.toFixed(1), y: at.y.toFixed(1), "font-size": 10.5 * unit, "stroke-width": 3 * unit, "text-anchor": "middle" });
  text.textContent = short(label);
  return [made, text];
}

function legend(hues) {
  const list = element("ul", { className: "legend" });
  for (const [type, hue] of hues) list.append(element("li", {}, element("span", { className: `dot hue${hue % 8}` }), type));
  return list;
}

function draw(found) {
  nodes = found.nodes;
  stage = null;
  place(nodes, found.edges);
  fit();
  unit = 1 / view.scale;
  labelled();
  const hues = new Map([...new Set(nodes.map((one) => one.type))].map((type, hue) => [type, hue]));
  const arrow = shape("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7 + 7 * 1.3, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, shape("path", { d: "M0 1 L7 4 L0 7 z" }));
  const pairs = new Set(found.edges.filter(({ label }) => label).map(({ from, to }) => `${from} ${to}`));
  const edges = shape("g", { class: found.edges.length > MOST_LABELLED ? "edges many" : "edges" }, ...found.edges.flatMap((one) => edge(one, pairs)));
  stage = shape("g", {}, edges, shape("g", { class: "nodes" }, ...nodes.map((one, number) => node(one, number, hues))));
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": section.dataset.label ?? words.picture, tabindex: "0" }, shape("defs", {}, arrow), stage);
  box.replaceChildren(picture, ...(hues.size > 1 ? [legend(hues)] : []));
  follow(picture);
  fit();
  const told = words.drawn.replace("{nodes}", nodes.length.toLocaleString()).replace("{edges}", found.edges.length.toLocaleString());
  said.textContent = found.said ?? told + (found.cut ? words.cut : "");
}

// Where a pointer is in the units of the picture.
function point(picture, event) {
  const frame = picture.getBoundingClientRect();
  return [((event.clientX - frame.left) * WIDTH) / frame.width, ((event.clientY - frame.top) * HEIGHT) / frame.height];
}

function follow(picture) {
  let held = null;
  let moved = false;
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== picture) return; // the page scrolls
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, ...point(picture, event));
  }, { passive: false });
  picture.addEventListener("pointerdown", (event) => {
    held = point(picture, event);
    moved = false;
  });
  picture.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [x, y] = point(picture, event);
    if (Math.hypot(x - held[0], y - held[1]) < 3 && !moved) return;
    if (!moved) picture.setPointerCapture(event.pointerId);
    moved = true;
    view.x += x - held[0];
    view.y += y - held[1];
    held = [x, y];
    show();
  });
  for (const name of ["pointerup", "pointercancel"]) picture.addEventListener(name, () => (held = null));
  picture.addEventListener("click", (event) => moved && event.preventDefault(), true);
  picture.addEventListener("dragstart", (event) => event.preventDefault());
  // A node that has the focus is brought into view.
  picture.addEventListener("focusin", (event) => {
    const number = [...stage.lastChild.children].indexOf(event.target.closest(".node"));
    if (number < 0 || !event.target.matches(":focus-visible")) return;
    const [x, y] = [view.x + view.scale * nodes[number].x, view.y + view.scale * nodes[number].y];
    if (x < 20 || y < 20 || x > WIDTH - 20 || y > HEIGHT - 20) {
      view.x += WIDTH / 2 - x;
      view.y += HEIGHT / 2 - y;
      show();
    }
  });
}

const within = (act) => (event) => {
  if (!stage || !box.contains(document.activeElement)) return false;
  act(event);
  return true;
};
const STEPS = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
onKey(["+", "-", "0"], words["key.zoom"], within((event) => (event.key === "0" ? fit() : zoom(event.key === "+" ? 1.25 : 0.8))));
onKey(Object.keys(STEPS), words["key.pan"], within((event) => {
  view.x += STEPS[event.key][0];
  view.y += STEPS[event.key][1];
  show();
}));

async function ask() {
  const address = new URL(section.dataset.picture, location.href);
  for (const one of tools.querySelectorAll("select")) address.searchParams.set(one.name, one.value);
  section.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(answer.status);
    draw(await answer.json());
  } catch {
    said.textContent = words.failed;
  }
  section.removeAttribute("aria-busy");
}

tools.hidden = false;
tools.addEventListener("change", ask);
tools.addEventListener("click", (event) => {
  const by = event.target.dataset.zoom;
  if (by === "0") fit();
  else if (by) zoom(Number(by));
});
await ask();
