/* layout.js - the tree of scopes, and the places of what is visible of it. */
"use strict";

/* ---- the tree of scopes -------------------------------------------------------------------------------------- */

const MANY = 40, CHUNK = 24; /* a group with more children gets groups of consecutive ones */

function scopesOf(node) {
  if (node.kind === "input" || node.kind === "output") return [node.name];
  const separator = node.name.includes("/") ? "/" : ".";
  const names = node.name.split(separator).filter((part) => part);
  return [...node.place.split("/").filter((part) => part), ...(names.length ? names : [node.name])];
}

function makeGroup(label, parent) { return {label, parent, children: [], isGroup: true, open: false}; }

function addLeaf(root, node) {
  const scopes = scopesOf(node);
  let group = root;
  for (const label of scopes.slice(0, -1)) {
    group.scopes ||= new Map();
    if (!group.scopes.has(label)) {
      const inner = makeGroup(label, group);
      group.scopes.set(label, inner);
      group.children.push(inner);
    }
    group = group.scopes.get(label);
  }
  group.children.push({node, label: scopes.at(-1), parent: group});
}

/* Consecutive children become groups until there are few. Inputs and outputs of the model stay where they are. */
function cutGroup(group) {
  const isEnd = (child) => child.node && (child.node.kind === "input" || child.node.kind === "output");
  const ends = group.children.filter(isEnd);
  let inner = ends.length > MANY ? group.children : group.children.filter((child) => !isEnd(child));
  while (inner.length > MANY) {
    const chunks = [];
    for (let i = 0; i < inner.length; i += CHUNK) {
      const chunk = makeGroup("", group), last = inner[Math.min(i + CHUNK, inner.length) - 1];
      chunk.children = inner.slice(i, i + CHUNK);
      chunk.names = [(inner[i].names || [inner[i].label])[0], (last.names || [last.label]).at(-1)];
      chunk.label = chunk.names.join(" \u2026 ");
      if (chunk.children.length > 1)
        for (const child of chunk.children) child.parent = chunk;
      chunks.push(chunk.children.length > 1 ? chunk : inner[i]);
    }
    inner = chunks;
  }
  group.children = ends.length > MANY ? inner : [...inner, ...ends].sort((a, b) => firstOf(a) - firstOf(b));
}

/* A scope with one thing in it is shown as that thing; a long row of things is cut into groups. */
function tidyGroup(group) {
  group.children = group.children.map((child) => {
    if (!child.isGroup) return child;
    tidyGroup(child);
    if (child.children.length > 1) return child;
    const only = child.children[0];
    only.label = `${child.label}/${only.label}`;
    only.parent = group;
    return only;
  });
  group.children.sort((a, b) => firstOf(a) - firstOf(b));
  cutGroup(group);
}

/* The place of an item in the order of computation: that of its first node. */
function firstOf(item) {
  item.first ??=
      !item.isGroup ? (item.node.kind === "input" ? -1 : item.node.order) : Math.min(...item.children.map(firstOf));
  return item.first;
}

/* Counts what is in each group, and remembers the item of each node. */
function countGroup(item, itemOf, depth = 0) {
  item.depth = depth;
  if (!item.isGroup) {
    itemOf.set(item.node.id, item);
    item.nodes = [item.node];
  } else {
    for (const child of item.children) countGroup(child, itemOf, depth + 1);
    item.nodes = item.children.flatMap((child) => child.nodes);
  }
  item.counts = {low: 0, fp32: 0, other: 0, casts: new Set()};
  for (const n of item.nodes) {
    if (n.kind === "node") item.counts[precision(n.dtype)]++;
    for (const cast of n.casts) item.counts.casts.add(cast);
  }
}

function makeTree(report) {
  const root = makeGroup("", null), itemOf = new Map();
  for (const n of report.nodes)
    if (n.kind !== "part") addLeaf(root, n);
  tidyGroup(root);
  countGroup(root, itemOf);
  root.open = true;
  return {root, itemOf};
}

/* Opens the groups of one depth after the other, while there is room for what is in them. */
function openSome(root, room) {
  for (let groups = [root]; groups.length;) {
    const inner = groups.flatMap((group) => group.children);
    if (inner.length > room && groups[0] !== root) return;
    for (const group of groups) group.open = true;
    groups = inner.filter((child) => child.isGroup);
  }
}

/* ---- layout: layers by longest path, ordered by barycentres, within each open group -------------------------- */

const GAP = 22, LAYER = 44, TITLE = 24, PAD = 14, ITEM = 44;

function pathTo(item, root) {
  const path = [];
  for (let at = item; at !== root; at = at.parent) path.unshift(at);
  return path;
}

/* The edges to draw in each open group: between its children, from its top (IN) and to its bottom (OUT). */
function collectEdges(report, tree) {
  const edges = new Map();
  const add = (group, from, to, edge) => {
    if (!edges.has(group)) edges.set(group, new Map());
    const ends = edges.get(group);
    if (!ends.has(from)) ends.set(from, new Map());
    if (!ends.get(from).has(to)) ends.get(from).set(to, []);
    ends.get(from).get(to).push(edge);
  };
  for (const e of report.edges) {
    const from = pathTo(tree.itemOf.get(e.from), tree.root), to = pathTo(tree.itemOf.get(e.to), tree.root);
    let level = 0, group = tree.root;
    while (from[level] === to[level]) group = from[level++];
    if (!isShown(group)) continue;
    add(group, from[level], to[level], e);
    for (let i = level; from[i].isGroup && from[i].open; i++) add(from[i], from[i + 1], "out", e);
    for (let i = level; to[i].isGroup && to[i].open; i++) add(to[i], "in", to[i + 1], e);
  }
  return edges;
}

function isShown(group) {
  for (; group; group = group.parent)
    if (!group.open) return false;
  return true;
}

function sizeOf(item) {
  const text =
      Math.max(item.label.length * (item.isGroup ? 7 : 6) + 34, (item.node ? item.node.op.length : 0) * 7 + 76);
  return {w: Math.min(Math.max(text, item.isGroup ? 136 : 104), 220), h: ITEM};
}

/* Boxes in their order, then lines: a line is cut at each layer that it crosses. */
function makeBoxes(group, edges, layouts) {
  const boxes = group.children.map((item, order) => ({item, order, ...(layouts.get(item) || sizeOf(item))}));
  const boxOf = new Map(boxes.map((b) => [b.item, b]));
  const lines = [];
  for (const [from, targets] of edges) {
    for (const [to, list] of targets) {
      for (const [end, order] of [[from, -1], [to, boxes.length]])
        if (!boxOf.has(end)) {
          const port = {port: end, order: end === "in" ? -1 : group.children.length, w: 1, h: 1};
          boxOf.set(end, port);
          boxes.push(port);
        }
      const a = boxOf.get(from), b = boxOf.get(to);
      lines.push({from: a, to: b, list, back: a.order > b.order});
    }
  }
  return {boxes, lines};
}

function assignLayers(boxes, lines) {
  const sorted = [...boxes].sort((a, b) => a.order - b.order);
  for (const b of boxes) Object.assign(b, {layer: 0, above: [], below: []});
  for (const l of lines) {
    const [top, bottom] = l.back ? [l.to, l.from] : [l.from, l.to];
    top.below.push(bottom);
    bottom.above.push(top);
  }
  for (const b of sorted)
    for (const next of b.below) next.layer = Math.max(next.layer, b.layer + 1);
  for (const b of sorted) /* what has no producer is placed next to its consumer */
    if (!b.above.length && b.below.length && b.port !== "in")
      b.layer = Math.min(...b.below.map((next) => next.layer)) - 1;
  const last = Math.max(...boxes.map((b) => b.layer));
  for (const b of boxes)
    if (b.port === "out") b.layer = Math.max(last, b.layer);
}

function splitLines(boxes, lines) {
  const layers = [];
  const place = (b) => (layers[b.layer] ||= []).push(b);
  for (const b of boxes) {
    b.up = [];
    b.down = [];
    place(b);
  }
  for (const l of lines) {
    const [top, bottom] = l.back ? [l.to, l.from] : [l.from, l.to];
    l.via = [top];
    for (let layer = top.layer + 1; layer < bottom.layer; layer++) {
      const bend = {layer, w: 8, h: 0, order: (top.order + bottom.order) / 2, up: [], down: [], bend: true};
      place(bend);
      l.via.push(bend);
    }
    l.via.push(bottom);
    for (let i = 1; i < l.via.length; i++) {
      l.via[i - 1].down.push(l.via[i]);
      l.via[i].up.push(l.via[i - 1]);
    }
  }
  return Array.from(layers, (layer) => layer || []);
}

function orderLayers(layers) {
  for (const layer of layers)
    layer.sort((a, b) => a.order - b.order).forEach((b, i) => {
      b.at = i;
    });
  for (let sweep = 0; sweep < 8; sweep++) {
    const downwards = sweep % 2 === 0;
    for (const layer of downwards ? layers : [...layers].reverse()) {
      for (const b of layer) {
        const near = downwards ? b.up : b.down;
        b.centre = near.length ? near.reduce((sum, n) => sum + n.at, 0) / near.length : b.at;
      }
      layer.sort((a, b) => a.centre - b.centre || a.order - b.order).forEach((b, i) => {
        b.at = i;
      });
    }
  }
}

/* Places the boxes of a layer as near to the wanted centres as their order allows (pool adjacent violators). */
function placeLayer(layer) {
  const runs = [];
  let offset = 0;
  for (const b of layer) {
    b.offset = offset + b.w / 2;
    offset += b.w + GAP;
    const weight = b.bend ? 4 : 1; /* lines are straight rather than boxes centred */
    let run = {sum: weight * (b.wanted - b.offset), weight, boxes: [b]};
    while (runs.length && runs.at(-1).sum / runs.at(-1).weight > run.sum / run.weight) {
      const left = runs.pop();
      run = {sum: left.sum + run.sum, weight: left.weight + run.weight, boxes: left.boxes.concat(run.boxes)};
    }
    runs.push(run);
  }
  for (const run of runs)
    for (const b of run.boxes) b.x = run.sum / run.weight + b.offset;
}

function placeBoxes(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const b of layer) {
      b.x = x + b.w / 2;
      x += b.w + GAP;
    }
  }
  for (let sweep = 0; sweep < 10; sweep++) {
    const downwards = sweep % 2 === 0;
    for (const layer of downwards ? layers : [...layers].reverse()) {
      for (const b of layer) {
        const near = sweep < 8 ? (downwards ? b.up : b.down) : [...b.up, ...b.down];
        b.wanted = near.length ? near.reduce((sum, n) => sum + n.x, 0) / near.length : b.x;
      }
      placeLayer(layer);
    }
  }
  let y = 0;
  layers.forEach((layer, i) => {
    const height = Math.max(...layer.map((b) => b.h), 0);
    for (const b of layer) Object.assign(b, {top: y, end: y + height});
    const isPort = (at) => at?.every((b) => b.port || b.bend);
    y += height + (isPort(layer) || isPort(layers[i + 1]) ? LAYER * 0.6 : i + 1 < layers.length ? LAYER : 0);
  });
  return y;
}

/* The layout of an open group, with those of the open groups in it. */
function layOut(group, edges, layouts = new Map()) {
  for (const child of group.children)
    if (child.isGroup && child.open) layOut(child, edges, layouts);
  const {boxes, lines} = makeBoxes(group, edges.get(group) || new Map(), layouts);
  assignLayers(boxes, lines);
  const layers = splitLines(boxes, lines);
  orderLayers(layers);
  const height = placeBoxes(layers), all = layers.flat();
  const left = Math.min(...all.map((b) => b.x - b.w / 2)), right = Math.max(...all.map((b) => b.x + b.w / 2));
  for (const b of all) {
    b.x += PAD - left;
    for (const edge of ["top", "end"]) b[edge] += PAD + TITLE;
  }
  const layout = {w: Math.max(right - left + 2 * PAD, 120), h: height + 2 * PAD + TITLE, boxes, lines};
  layouts.set(group, layout);
  return layouts;
}
