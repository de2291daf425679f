/* data.js - the data of a report (docs/report.md), and elements that show it. Names come from the model, which may come
 * from anywhere: they only ever become text nodes and attributes that are not interpreted. */
"use strict";

/* ---- data ---------------------------------------------------------------------------------------------------- */

const byId = (id) => document.getElementById(id);
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const LOW = new Set(["fp16", "bf16"]);
const precision = (dtype) => (LOW.has(dtype) ? "low" : dtype === "fp32" ? "fp32" : "other");

/* Which columns of a table are positions in `strings`. */
const TEXTS = {
  nodes: ["kind", "name", "op", "place", "type", "colour", "dtype", "writes", "rule", "cause", "alone_in"],
  edges: ["tensor", "type"],
  weights: ["tensor", "type"],
  casts: ["tensor", "from", "to"],
  tensors: [],
};

/* Characters that are not shown, or that turn the direction of a text, are shown as U+FFFD. */
const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "\uFFFD");

function readTable(raw, name) {
  const {columns, rows} = raw[name];
  const isText = columns.map((c) => TEXTS[name].includes(c));
  return rows.map((row, id) => {
    const item = {id};
    columns.forEach((c, i) => {
      item[c] = isText[i] ? (row[i] < 0 ? "" : raw.strings[row[i]]) : row[i];
    });
    return item;
  });
}

/* `order` of a node is a place after those of its operands. */
function readReport(raw) {
  if (!raw || raw.report !== 1) throw new Error("not a report of ampc, or of another version");
  raw.strings = raw.strings.map(visible);
  const r = {raw};
  for (const name of Object.keys(TEXTS)) r[name] = readTable(raw, name);
  for (const n of r.nodes)
    Object.assign(n, {inputs: [], outputs: [], weights: [], casts: new Set(), parts: [], change: ""});
  for (const n of r.nodes)
    if (n.part_of >= 0) r.nodes[n.part_of].parts.push(n);
  for (const e of r.edges) {
    r.nodes[e.from].outputs.push(e);
    r.nodes[e.to].inputs.push(e);
    if (e.cast >= 0)
      for (const end of [e.from, e.to]) r.nodes[end].casts.add(e.cast);
  }
  for (const w of r.weights) {
    r.nodes[w.node].weights.push(w);
    if (w.cast >= 0) r.nodes[w.node].casts.add(w.cast);
  }
  for (const t of r.tensors) Object.assign(t, {tensor: visible(t.tensor), node: visible(t.node)});
  let order = 0;
  const visit = (n) => {
    n.order = -1; /* being visited */
    for (const e of n.inputs)
      if (r.nodes[e.from].order === undefined) visit(r.nodes[e.from]);
    n.order = order++;
  };
  for (const n of r.nodes)
    if (n.order === undefined) visit(n);
  return r;
}

/* ---- elements ------------------------------------------------------------------------------------------------ */

/* Sets attributes and children; "on..." is a listener, what is false is left out. */
function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on"))
      element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false)
      element.setAttribute(key, value === true ? "" : value);
  }
  element.replaceChildren(...children.flat(Infinity).filter((c) => c));
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function bytesText(n) {
  if (n < 1e4) return plural(n, "byte");
  return n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}
const share = (x) => (x === 0 ? "0 %" : x < 0.0001 ? "< 0.01 %" : `${(100 * x).toPrecision(3)} %`);
const tag = (dtype) => h("span", {class: `tag is-${precision(dtype)}`}, dtype || "-");

/* A bar with a part for each precision, whose sizes are counts. */
function bar(counts) {
  const parts = ["low", "fp32", "other"].map((kind) => {
    const part = h("i", {class: kind});
    part.style.flexGrow = counts[kind] || 0;
    return part;
  });
  return h("div", {class: "bar", role: "presentation"}, parts);
}
