/* details.js - the panel that shows a node: reason, operands, histograms. */
"use strict";

/* Exponents of numbers: smaller ones are rounded to zero; the smallest normal number; larger ones are infinite. */
const LIMITS = {
  fp16: [-25, -14, 15],
  bf16: [-134, -126, 127]
};

/* The exponents of a tensor, and what the low type does to them. */
function drawHistogram(t, dtype) {
  const [zero, normal, largest] = LIMITS[dtype] || LIMITS.fp16;
  const counts = t.exponents, total = counts.reduce((a, b) => a + b, 0);
  if (!total) return h("p", {class: "quiet"}, t.count ? "all zero" : "no values");
  const first = Math.min(t.first, normal) - 2, last = Math.max(t.first + counts.length, 4) + 2;
  const W = 340, H = 96, x = (e) => ((e - first) / (last - first)) * W, most = Math.max(...counts);
  const part = (test) => counts.reduce((sum, n, i) => sum + (test(t.first + i) ? n : 0), 0) / total;
  const band = (from, to, name) =>
      to > from && s("rect", {class: name, x: x(from), y: 0, width: x(to) - x(from), height: H});
  const column = (n, i) => {
    const place = {x: x(t.first + i) + 0.5, width: Math.max(x(1) - x(0) - 1, 1), y: H * (1 - n / most)};
    const title = s("title", {}, `2^${t.first + i}: ${n.toLocaleString("en")}`);
    return n > 0 && s("rect", {class: "count", height: (H * n) / most, ...place}, title);
  };
  const tick = (e) =>
      s("text", {x: x(e), y: H + 13}, "2", s("tspan", {dy: -4, "font-size": 7.5}, String(e).replace("-", "\u2212")));
  const step = last - first > 60 ? 20 : 10, ticks = [];
  for (let e = Math.ceil(first / step) * step; e < last; e += step) ticks.push(e);
  const shares = [(e) => e < zero, (e) => e >= zero && e<normal, (e) => e>largest].map((test) => share(part(test)));
  const text = `in ${dtype}: ${shares[0]} become zero, ${shares[1]} subnormal, ${shares[2]} infinite`;
  return [
    s("svg", {
      class: "histogram",
      viewBox: `0 -4 ${W} ${H + 20}`,
      role: "img",
      "aria-label": `Exponents of ${t.tensor}; ${text}`
    },
      band(first, Math.max(zero, first), "lost"), band(Math.max(zero, first), normal, "coarse"),
      band(largest + 1, last, "lost"), counts.map(column), s("path", {d: `M0 ${H}H${W}`}), ticks.map(tick)),
    h("p", {class: "quiet"}, text),
  ];
}

const number = (x) => (typeof x === "number" ? String(Number(x.toPrecision(4))) : "-");

function showTensor(t, dtype) {
  const count = (n, what) => n > 0 && `${n.toLocaleString("en")} ${what}`;
  const facts = [
    plural(t.count, "value"), count(t.zero, "zero"), count(t.nan, "NaN"), count(t.inf, "infinite"),
    t.min !== null && `${number(t.min)} to ${number(t.max)}`
  ];
  return [
    h("h3", {}, `${t.kind} ${t.tensor}`), h("div", {class: "quiet"}, facts.filter((f) => f).join(", ")),
    drawHistogram(t, dtype)
  ];
}

function nodeLink(node) {
  return h("button", {class: "link", type: "button", onclick: () => revealNode(node)}, node.name);
}

function castText(number) {
  if (number < 0) return null;
  const c = view.report.casts[number];
  return h("span", {class: "tag is-mark", title: bytesText(c.bytes)}, `cast ${c.from} \u2192 ${c.to}`);
}

function ends(title, edges, end) {
  const most = 60, more = edges.length > most && h("p", {class: "quiet"}, `and ${edges.length - most} more`);
  const show = (e) =>
      [nodeLink(view.report.nodes[e[end]]), " ", castText(e.cast), h("br"), h("small", {}, `${e.tensor}: ${e.type}`)];
  return [listOf(title, edges.slice(0, most), show), more];
}

/* The node that the cause "NAME (OP)" names. */
function causeOf(node) {
  const match = /^(.*) \([^()]*\)$/u.exec(node.cause);
  return match && view.report.nodes.find((n) => n.name === match[1] && n.place === node.place);
}

function tensorsOf(node) {
  const weights = new Set(node.weights.map((w) => w.tensor)), results = new Set(node.outputs.map((e) => e.tensor));
  const isOfNode = (t) => (t.node ? t.node === node.name : results.has(t.tensor));
  return view.report.tensors.filter((t) => (t.kind === "weight" ? weights.has(t.tensor) : isOfNode(t)));
}

/* The rows of the list of facts; those without a value are left out. */
function facts(rows) {
  const shown = Object.entries(rows).filter(([, value]) => value);
  return h("dl", {}, shown.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function listOf(title, items, show) {
  return items.length > 0 && [h("h3", {}, title), h("ul", {}, items.map((item) => h("li", {}, show(item))))];
}

function showNode(n) {
  const {nodes, raw} = view.report, cause = causeOf(n);
  const weight = (w) => [w.tensor, " ", castText(w.cast), h("br"), h("small", {}, w.type)];
  const low = LOW.has(raw.dtype) ? raw.dtype : "fp16";
  const reason = facts({
    list: n.colour,
    writes: n.writes,
    rule: n.rule,
    cause: cause ? nodeLink(cause) : n.cause,
    otherwise: n.alone_in,
    result: n.type,
    inside: n.place,
    "part of": n.part_of >= 0 && nodeLink(nodes[n.part_of]),
  });
  const change = n.change && h("span", {class: "tag is-mark"}, n.change);
  fill(byId("details"), {}, [
    h("h2", {}, n.name),
    h("div", {}, n.op, " ", n.dtype && tag(n.dtype), " ", change),
    reason,
    listOf("fused from", n.parts, (part) => [nodeLink(part), ` ${part.op}`]),
    ends("operands", n.inputs, "from"),
    listOf("weights", n.weights, weight),
    ends("read by", n.outputs, "to"),
    tensorsOf(n).map((t) => showTensor(t, low)),
  ]);
  byId("details").scrollTop = 0;
}

function countBy(list, key) {
  const counts = new Map();
  for (const item of list) counts.set(key(item), (counts.get(key(item)) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

function showGroup(group) {
  const nodes = group.nodes.filter((n) => n.kind === "node");
  const ops = countBy(nodes, (n) => `${n.op}, ${n.dtype || "no float"}`);
  fill(byId("details"), {}, [
    h("h2", {}, group.label),
    h("p", {class: "quiet"}, describeItem(group)),
    bar(group.counts),
    listOf("operators", ops, ([op, count]) => `${count} \u00d7 ${op}`),
  ]);
}

function showHelp() {
  fill(byId("details"), {}, [
    h("h2", {}, "Details"),
    h("p", {},
      "Select a node in the graph or in the table: this panel shows its precision, the reason, its operands and",
      " its histograms."),
    h("p", {class: "quiet"},
      "Groups open and close on click. Drag moves the graph; the wheel zooms after a click into it,",
      " or with Ctrl. Keys: / search, arrows move, Enter opens, + \u2212 0 zoom."),
  ]);
}
