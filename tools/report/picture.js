/* picture.js - the graph as a picture: drawing, zooming, selecting. */
"use strict";

/* ---- the picture --------------------------------------------------------------------------------------------- */

const LETTERS = {
  white: ["W", "#ffffff", "#111"],
  black: ["B", "#222222", "#fff"],
  gray: ["G", "#b4bac2", "#111"],
  clear: ["C", "none", ""],
  keep: ["\u2013", "none", ""],
};
const cut = (text, width, letter = 6.9) =>
    (text.length * letter > width ? `${text.slice(0, Math.max(1, Math.floor(width / letter) - 1))}\u2026` : text);

function letterBox(colour) {
  const [letter, back, front] = LETTERS[colour] || LETTERS.keep;
  const text = s("text", {class: "letter-text", x: 8, y: 11.5}, letter);
  if (front) text.style.fill = front;
  const dashes = colour === "clear" ? "2 2" : undefined;
  return s(
      "g", {},
      s("rect", {class: "letter", width: 16, height: 16, rx: 3, "stroke-dasharray": dashes, style: `fill:${back}`}),
      text);
}

const picture = byId("picture");
const view = {
  report: null,
  tree: null,
  selected: null,
  camera: null,
  x: 0,
  y: 0,
  zoom: 1,
  shown: [],
  elements: new Map()
};

function describeItem(item) {
  if (!item.isGroup)
    return `${item.node.name}, ${item.node.op}, ${item.node.dtype || item.node.kind}, ${item.node.colour}`;
  const c = item.counts;
  return `${item.label}: ${plural(item.nodes.length, "node")}, ${c.low} low precision, ${c.fp32} fp32, ${
      plural(c.casts.size, "cast")}`;
}

function itemClass(item) {
  const c = item.counts;
  if (item.isGroup) return c.low && !c.fp32 ? "is-low" : c.fp32 && !c.low ? "is-fp32" : "is-mixed";
  return item.node.kind === "node" ? `is-${precision(item.node.dtype)}` : "end";
}

function drawShares(item, w) {
  const c = item.counts, total = c.low + c.fp32 + c.other || 1;
  let x = 8;
  return ["low", "fp32", "other"].map((kind) => {
    const width = ((w - 16) * c[kind]) / total;
    x += width;
    return s("rect", {class: `share-${kind}`, x: x - width, y: 36, width, height: 4});
  });
}

function drawNode(item, w) {
  const n = item.node, isNode = n.kind === "node", casts = n.weights.filter((w) => w.cast >= 0).length;
  const letter = isNode && letterBox(n.colour);
  if (letter) letter.setAttribute("transform", "translate(7 6)");
  return [
    letter,
    s("text", {x: isNode ? 29 : 10, y: 18.5},
      cut(isNode                   ? n.op
              : n.kind === "added" ? n.op
                                   : n.kind,
          w - 66)),
    s("text", {class: "type", x: w - 8, y: 18}, n.dtype),
    s("text", {class: "name", x: 10, y: 35}, cut(item.label, w - (casts ? 42 : 16), 6)),
    casts > 0 && s("text", {class: "type", x: w - 8, y: 35}, `\u25c7 ${casts}`),
  ];
}

function drawClosed(item, w) {
  const c = item.counts, casts = c.casts.size ? `, ${plural(c.casts.size, "cast")}` : "";
  return [
    s("text", {x: 10, y: 16}, `\u25b8 ${cut(item.label, w - 28)}`),
    s("text", {class: "name", x: 10, y: 30}, cut(`${plural(item.nodes.length, "node")}${casts}`, w - 12, 6)),
    drawShares(item, w),
  ];
}

function drawItem(box, x, y, layouts, into) {
  const item = box.item, open = item.isGroup && item.open;
  const g = s("g", {
    class: `item ${itemClass(item)}${open ? " open" : ""}`,
    tabindex: -1,
    role: "button",
    transform: `translate(${x} ${y})`,
    "aria-label": describeItem(item),
    "aria-expanded": item.isGroup ? String(open) : undefined,
  });
  if (item.isGroup && !open) g.append(s("rect", {class: "under", x: 4, y: 4, width: box.w, height: box.h, rx: 6}));
  const round = item.node && item.node.kind !== "node" ? box.h / 2 : 6;
  g.append(s("rect", {class: "body", width: box.w, height: box.h, rx: round}));
  if (open)
    g.append(s("text", {x: 10, y: 17}, `\u25be ${cut(item.label, box.w - 24)}`));
  else
    g.append(...(item.isGroup ? drawClosed(item, box.w) : drawNode(item, box.w)).flat().filter((part) => part));
  g.append(s("title", {}, describeItem(item)));
  into.append(g);
  view.elements.set(item, g);
  view.shown.push({item, x: x + box.w / 2, y: y + (open ? 10 : box.h / 2), box: {x, y, w: box.w, h: box.h}});
  if (open) drawLayout(item, x, y, layouts, into);
}

function linePath(points) {
  let d = "";
  points.forEach(({x, top, bottom}, i) => {
    if (i) {
      const from = points[i - 1], middle = (from.end + top) / 2;
      d += `V${from.end}C${from.x} ${middle} ${x} ${middle} ${x} ${top}`;
    } else
      d = `M${x} ${bottom}`;
  });
  return d;
}

/* A diamond for the casts of an edge, with the type that they convert to. */
function drawCasts(line, x, y, into) {
  const casts = new Map();
  for (const e of line.list)
    if (e.cast >= 0) casts.set(e.cast, view.report.casts[e.cast]);
  if (!casts.size) return;
  const types = [...new Set([...casts.values()].map((c) => c.to))];
  const g = s("g", {transform: `translate(${x} ${y})`});
  g.append(s("path", {class: `cast ${types.some((t) => LOW.has(t)) ? "to-low" : "to-fp32"}`, d: "M0-7 7 0 0 7-7 0Z"}));
  g.append(s(
      "text", {class: "cast-text", x: 10, y: 3.5}, types.join(", ") + (casts.size > 1 ? ` \u00d7${casts.size}` : "")));
  const tip = [...casts.values()]
                  .slice(0, 12)
                  .map((c) => `${c.tensor}: ${c.from} to ${c.to}, ${bytesText(c.bytes)}`)
                  .join("\n");
  g.append(s("title", {}, tip));
  into.append(g);
}

function drawLine(line, x, y, edges, casts) {
  const points = line.via.map((b) => ({
                                x: x + b.x,
                                top: y + b.top,
                                bottom: y + b.top + b.h,
                                end: y + b.end,
                              }));
  const path = s("path", {class: `edge${line.back ? " back" : ""}`, d: linePath(points)});
  const tensors = [...new Set(line.list.map((e) => `${e.tensor}: ${e.type}`))];
  path.append(s("title", {}, tensors.slice(0, 12).join("\n")));
  path.edges = line.list;
  edges.append(path);
  const end = points.at(-1), before = points.at(-2);
  if (!line.via.at(-1).port) edges.append(s("path", {class: "arrow", d: `M${end.x} ${end.top}l-3.5-7h7Z`}));
  if (!line.via.at(-1).port) drawCasts(line, (end.x + before.x) / 2, (end.top + before.end) / 2, casts);
}

function drawLayout(group, x, y, layouts, into) {
  const layout = layouts.get(group);
  const edges = s("g"), casts = s("g");
  into.append(edges);
  for (const line of layout.lines) drawLine(line, x, y, edges, casts);
  for (const box of layout.boxes)
    if (box.item) drawItem(box, x + box.x - box.w / 2, y + box.top, layouts, into);
  into.append(casts);
}

function drawPicture() {
  const layouts = layOut(view.tree.root, collectEdges(view.report, view.tree));
  view.size = layouts.get(view.tree.root);
  view.shown = [];
  view.elements.clear();
  view.camera = s("g", {class: "camera"});
  drawLayout(view.tree.root, 0, -TITLE, layouts, view.camera);
  picture.replaceChildren(view.camera);
  moveCamera();
  markItems();
}

/* ---- the camera ---------------------------------------------------------------------------------------------- */

function moveCamera() { view.camera.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.zoom})`); }

function fitPicture() {
  const {width, height} = picture.getBoundingClientRect(), {w, h: tall} = view.size;
  view.zoom = Math.min(Math.max(Math.min(width / (w + 20), height / (tall - TITLE + 20)), 0.04), 1.25);
  const readable = Math.max(view.zoom, Math.min(0.75, width / (w + 20))); /* tall graphs start at their inputs */
  const top = readable > view.zoom;
  view.zoom = readable;
  view.x = (width - w * view.zoom) / 2;
  view.y = top ? 10 : (height - (tall - TITLE) * view.zoom) / 2;
  moveCamera();
}

function zoomAt(x, y, factor) {
  const zoom = Math.min(Math.max(view.zoom * factor, 0.03), 4);
  view.x = x - ((x - view.x) * zoom) / view.zoom;
  view.y = y - ((y - view.y) * zoom) / view.zoom;
  view.zoom = zoom;
  moveCamera();
}

function zoomCentre(factor) {
  const {width, height} = picture.getBoundingClientRect();
  zoomAt(width / 2, height / 2, factor);
}

/* Moves the camera so that the item is visible. */
function centreOn(item) {
  const shown = view.shown.find((at) => at.item === item);
  if (!shown) return;
  const {width, height} = picture.getBoundingClientRect();
  if (view.zoom < 0.5) view.zoom = 0.8;
  view.x = width / 2 - shown.x * view.zoom;
  view.y = height / 2 - shown.y * view.zoom;
  moveCamera();
}

/* ---- selection ----------------------------------------------------------------------------------------------- */

/* The item that shows the node: its own, or the closed group around it. */
function shownItem(node) {
  const whole = node.part_of >= 0 ? view.report.nodes[node.part_of] : node;
  let at = view.tree.itemOf.get(whole.id), best = at;
  for (; at; at = at.parent)
    if (at.isGroup && !at.open) best = at;
  return best;
}

function markItems() {
  const filtered = table.isFiltered, matching = table.matching;
  for (const [item, element] of view.elements) {
    const c = element.classList;
    c.toggle("selected", item === view.item);
    c.toggle("changed", item.nodes.some((n) => n.change) && !(item.isGroup && item.open));
    c.toggle("dim", filtered && !item.nodes.some((n) => matching.has(n)));
  }
  for (const path of view.camera.querySelectorAll(".edge")) {
    const node = view.selected;
    path.classList.toggle("near", Boolean(node) && path.edges.some((e) => e.from === node.id || e.to === node.id));
  }
}

/* Opens the groups around the node, selects it and shows its details. */
function revealNode(node) {
  const whole = node.part_of >= 0 ? view.report.nodes[node.part_of] : node;
  let opened = false;
  for (let at = view.tree.itemOf.get(whole.id)?.parent; at; at = at.parent)
    if (!at.open) opened = at.open = true;
  if (opened) drawPicture();
  selectNode(node);
  centreOn(view.item);
}

function selectNode(node) {
  view.selected = node;
  view.item = shownItem(node);
  markItems();
  showNode(node);
  table.showSelected();
}

function toggleGroup(group) {
  const before = view.shown.find((at) => at.item === group);
  const {x, y} = {x: before.box.x * view.zoom + view.x, y: before.box.y * view.zoom + view.y};
  group.open = !group.open;
  view.item = group;
  drawPicture();
  const after = view.shown.find((at) => at.item === group);
  view.x = x - after.box.x * view.zoom; /* its corner stays where it was */
  view.y = y - after.box.y * view.zoom;
  moveCamera();
  showGroup(group);
  focusItem(group);
}

function activate(item) {
  view.item = item;
  if (item.isGroup)
    toggleGroup(item);
  else
    selectNode(item.node);
}

function focusItem(item) {
  const element = view.elements.get(item);
  if (element) element.focus({preventScroll: true});
}

/* The nearest item in the direction of an arrow key. */
function neighbour(item, key) {
  const here = view.shown.find((at) => at.item === item);
  if (!here) return view.shown[0]?.item;
  const [dx, dy] = {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]}[key];
  let best = null, least = Infinity;
  for (const at of view.shown) {
    const x = at.x - here.x, y = at.y - here.y, along = x * dx + y * dy, across = Math.abs(x * dy) + Math.abs(y * dx);
    if (along > 1 && along + 2 * across < least) [best, least] = [at.item, along + 2 * across];
  }
  return best;
}

/* Opens all groups that are visible, or as many as stay usable; closes all. */
function openLevel() {
  let shown = view.shown.length;
  for (const {item} of [...view.shown]) {
    if (!item.isGroup || item.open || shown + item.children.length > 1500) continue;
    item.open = true;
    shown += item.children.length;
  }
  drawPicture();
  fitPicture();
}

function closeAll(group = view.tree.root) {
  for (const child of group.children)
    if (child.isGroup) closeAll(child);
  group.open = group === view.tree.root;
}

function listenToPicture() {
  let from = null, moved = false;
  const itemAt = (target) => {
    const element = target.closest?.(".item");
    return element && [...view.elements].find(([, e]) => e === element)?.[0];
  };
  picture.addEventListener("pointerdown", (e) => {
    from = {x: e.clientX - view.x, y: e.clientY - view.y, startX: e.clientX, startY: e.clientY};
    moved = false;
  });
  addEventListener("pointermove", (e) => {
    if (!from) return;
    moved ||= Math.hypot(e.clientX - from.startX, e.clientY - from.startY) > 4;
    if (!moved) return;
    picture.classList.add("moving");
    view.x = e.clientX - from.x;
    view.y = e.clientY - from.y;
    moveCamera();
  });
  addEventListener("pointerup", () => {
    from = null;
    picture.classList.remove("moving");
  });
  picture.addEventListener("click", (e) => {
    const item = !moved && itemAt(e.target);
    if (item) activate(item);
  });
  picture.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && !picture.contains(document.activeElement)) return; /* else the page scrolls */
    e.preventDefault();
    const {left, top} = picture.getBoundingClientRect();
    zoomAt(e.clientX - left, e.clientY - top, Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.0015)));
  }, {passive: false});
  picture.addEventListener("keydown", (e) => {
    const item = itemAt(document.activeElement);
    if (e.key.startsWith("Arrow")) {
      const next = neighbour(item || view.item, e.key);
      if (next) {
        focusItem(next);
        centreOn(next);
      }
    } else if ((e.key === "Enter" || e.key === " ") && item)
      activate(item);
    else if (e.key === "+" || e.key === "=")
      zoomCentre(1.25);
    else if (e.key === "-")
      zoomCentre(0.8);
    else if (e.key === "0")
      fitPicture();
    else
      return;
    e.preventDefault();
  });
  byId("zoom-in").onclick = () => zoomCentre(1.25);
  byId("zoom-out").onclick = () => zoomCentre(0.8);
  byId("zoom-fit").onclick = fitPicture;
  byId("expand").onclick = openLevel;
  byId("collapse").onclick = () => {
    closeAll();
    drawPicture();
    fitPicture();
  };
  new ResizeObserver(() => view.camera && !picture.contains(document.activeElement) && !view.selected && fitPicture())
      .observe(picture);
}

function drawLegend() {
  const letter = (colour) =>
      h("span", {}, s("svg", {viewBox: "0 0 16 16", "aria-hidden": "true"}, letterBox(colour)), colour);
  const sample = (name) => s("svg", {viewBox: "0 0 16 16", "aria-hidden": "true"}, name);
  byId("legend").append(
      h("span", {}, tag("fp32")), h("span", {}, tag(view.report.raw.dtype)), letter("white"), letter("black"),
      letter("gray"), letter("clear"),
      h("span", {}, sample(s("path", {class: "cast to-low", d: "M8 1 15 8 8 15 1 8Z"})), "cast"));
}
