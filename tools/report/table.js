/* table.js - the table of the nodes, and the filters. */
"use strict";

const COLUMNS = [
  ["Node", "26%", (n) => n.name],
  ["Operator", "13%", (n) => n.op],
  ["List", "7%", (n) => n.colour],
  ["Precision", "11%", (n) => n.dtype],
  ["Casts", "6%", (n) => n.casts.size],
  ["Rule", "20%", (n) => n.rule],
  ["Cause", "17%", (n) => n.cause],
];
const ROW = 30;

const table = {
  nodes: [],
  rows: [],
  matching: new Set(),
  isFiltered: false,
  sort: -1, /* a column; -1: the order of the model */
  down: false,
  everything: false,
  columns: COLUMNS,

  start(nodes) {
    this.nodes = nodes;
    const head = byId("nodes").querySelector("thead tr");
    head.replaceChildren(...this.columns.map(
        ([name, width], i) =>
            h("th", {scope: "col", style: `width:${width}`},
              h("button", {type: "button", onclick: () => this.sortBy(i)}, name))));
    this.filter();
  },

  sortBy(column) {
    this.down = this.sort === column ? !this.down : this.columns[column][0] === "Casts";
    this.sort = column;
    this.filter();
  },

  filter() {
    const words = byId("search").value.toLowerCase().split(/\s+/u).filter((w) => w);
    const wanted = {
      dtype: byId("filter-dtype").value,
      colour: byId("filter-colour").value,
      op: byId("filter-op").value,
      change: byId("filter-change").value
    };
    const casts = byId("filter-casts").checked;
    const key = this.columns[this.sort]?.[2];
    this.isFiltered = words.length > 0 || casts || Object.values(wanted).some((w) => w);
    this.rows = this.nodes.filter((n) => {
      const text = n.text ||= `${n.name}\n${n.op}\n${n.rule}\n${n.cause}`.toLowerCase();
      return words.every((w) => text.includes(w)) && (!casts || n.casts.size) &&
          (!wanted.dtype || n.dtype === wanted.dtype) && (!wanted.colour || n.colour === wanted.colour) &&
          (!wanted.op || n.op === wanted.op) &&
          (!wanted.change || (wanted.change === "any" ? n.change : n.change === wanted.change));
    });
    if (this.sort >= 0) {
      const sign = this.down ? -1 : 1;
      this.rows.sort((a, b) => {
        const x = key(a), y = key(b);
        return sign * (typeof x === "number" ? x - y : x.localeCompare(y, "en", {numeric: true})) || a.id - b.id;
      });
    }
    this.matching = new Set(this.rows);
    for (const n of this.rows)
      if (n.part_of >= 0) this.matching.add(view.report.nodes[n.part_of]);
    byId("matches").value = this.isFiltered
        ? `${this.rows.length.toLocaleString("en")} of ${plural(this.nodes.length, "node")}`
        : plural(this.nodes.length, "node");
    byId("nodes").querySelectorAll("th").forEach((th, i) => {
      th.setAttribute("aria-sort", i !== this.sort ? "none" : this.down ? "descending" : "ascending");
      th.firstChild.textContent = this.columns[i][0] + (i !== this.sort ? "" : this.down ? " \u25be" : " \u25b4");
    });
    byId("nodes").scrollTop = 0;
    this.render();
    if (view.camera) markItems();
  },

  /* Only the rows that are visible exist, except in print. */
  render() {
    const box = byId("nodes"), all = this.rows.length;
    const from = this.everything ? 0 : Math.max(0, Math.floor(box.scrollTop / ROW) - 12);
    const to = this.everything ? all : Math.min(all, from + Math.ceil(box.clientHeight / ROW) + 30);
    const filler = (rows) =>
        h("tr", {class: "filler", "aria-hidden": "true"},
          h("td", {colspan: this.columns.length, style: `height:${rows * ROW}px`}));
    const body = this.rows.slice(from, to).map((n, i) => {
      const cells = this.columns.map(([name, , value], column) => {
        const text = String(value(n));
        if (column === 0) return h("td", {title: text}, h("button", {class: "link", type: "button"}, text));
        if (name === "Precision") return h("td", {}, tag(n.dtype), n.writes && ` \u2192 ${n.writes}`);
        return h("td", {title: text}, name === "Casts" && text === "0" ? "" : text);
      });
      const tr = h("tr", {class: n === view.selected && "selected", "aria-rowindex": from + i + 2}, cells);
      tr.node = n;
      return tr;
    });
    byId("nodes").querySelector("table").setAttribute("aria-rowcount", all + 1);
    box.querySelector("tbody").replaceChildren(filler(from), ...body, filler(all - to));
  },

  showSelected() {
    for (const tr of byId("nodes").querySelectorAll("tbody tr"))
      tr.classList.toggle("selected", tr.node === view.selected);
  },

  /* Moves the focus to the name of the next or previous row. */
  step(from, by) {
    const at = this.rows.indexOf(from) + by;
    if (at < 0 || at >= this.rows.length) return;
    const box = byId("nodes"), y = at * ROW;
    if (y < box.scrollTop) box.scrollTop = y;
    if (y + 3 * ROW > box.scrollTop + box.clientHeight) box.scrollTop = y + 3 * ROW - box.clientHeight;
    this.render();
    [...box.querySelectorAll("tbody tr")].find((tr) => tr.node === this.rows[at])?.querySelector("button").focus({
      preventScroll: true
    });
  },

  listen() {
    const box = byId("nodes"), body = box.querySelector("tbody");
    box.addEventListener("scroll", () => {
      if (!body.contains(document.activeElement))
        this.render();
      else if (!this.waiting)
        this.waiting = requestAnimationFrame(() => {
          this.waiting = 0;
          this.keepFocus(() => this.render());
        });
    });
    body.addEventListener("click", (e) => {
      const node = e.target.closest("tr")?.node;
      if (node && node.change !== "removed") revealNode(node);
    });
    body.addEventListener("keydown", (e) => {
      const by = {ArrowDown: 1, ArrowUp: -1}[e.key], node = e.target.closest("tr")?.node;
      if (!by || !node) return;
      e.preventDefault();
      this.step(node, by);
    });
    byId("filters").addEventListener("input", (e) => e.target !== byId("compare") && this.filter());
    byId("filters").addEventListener("reset", () => setTimeout(() => this.filter()));
    byId("filters").addEventListener("submit", (e) => {
      e.preventDefault();
      if (this.rows.length) revealNode(this.rows[0]);
    });
    addEventListener("keydown", (e) => {
      if (e.key !== "/" || /^(INPUT|SELECT)$/u.test(document.activeElement.tagName)) return;
      e.preventDefault();
      byId("search").focus();
    });
    addEventListener("beforeprint", () => {
      this.everything = true;
      this.render();
    });
    addEventListener("afterprint", () => {
      this.everything = false;
      this.render();
    });
  },

  keepFocus(change) {
    const node = document.activeElement.closest("tr")?.node;
    change();
    [...byId("nodes").querySelectorAll("tbody tr")].find((tr) => tr.node === node)?.querySelector("button").focus({
      preventScroll: true
    });
  },
};

function setChoices(id, all, values) {
  const chosen = byId(id).value;
  byId(id).replaceChildren(h("option", {value: ""}, all), ...values.map(([value, text]) => h("option", {value}, text)));
  byId(id).value = chosen;
}

function startFilters(nodes) {
  const choices = (key) =>
      countBy(nodes, key).filter(([value]) => value).map(([value, n]) => [value, `${value} (${n})`]);
  setChoices("filter-dtype", "all", choices((n) => n.dtype));
  setChoices("filter-colour", "all", choices((n) => n.colour));
  setChoices("filter-op", "all", choices((n) => n.op).sort((a, b) => a[0].localeCompare(b[0], "en")));
}
