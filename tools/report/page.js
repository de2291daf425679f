/* page.js - the summary, differences from another report, and the start of the page. */
"use strict";

/* ---- the summary --------------------------------------------------------------------------------------------- */

function card(title, value, ...more) {
  return h("div", {class: "card"}, h("h2", {}, title), h("strong", {}, value), more);
}

function showSummary(report) {
  const {counts, stats, predicted, level, dtype, profile} = report.raw;
  const fp32 = counts.float_ops - counts.low, low = Math.round((100 * counts.low) / (counts.float_ops || 1));
  const reasons = [["black", counts.fp32_black], ["gray", counts.fp32_gray], ["as written", counts.fp32_as_written]];
  byId("model").textContent = visible(report.raw.model).split("/").at(-1);
  byId("precision").textContent =
      [`level ${level}`, dtype, profile && `profile ${profile}`].filter((x) => x).join(", ");
  byId("command").querySelector("code").textContent =
      ["ampc", report.raw.model, ...report.raw.options].map(visible).join(" ");
  const cards = [
    card(
        `Operators in ${LOW.has(dtype) ? dtype : "low precision"}`, `${counts.low} of ${counts.float_ops}`,
        bar({low: counts.low, fp32}), h("p", {}, `${low} % of those with float results`)),
    card(
        "Operators in fp32", String(fp32),
        h("p", {}, reasons.filter((r) => r[1]).map((r) => `${r[1]} ${r[0]}`).join(", ") || "none")),
    card(
        "Casts", String(stats.casts),
        h("p", {},
          `${bytesText(stats.cast_bytes)} per step${counts.symbolic ? ", symbolic dimensions counted as 1" : ""}`),
        h("p", {}, `${counts.casts_inserted} inserted, ${counts.casts_removed} removed`)),
  ];
  if (predicted) {
    const {placed, greedy, fp32: without} = predicted;
    const percent = without.cost ? 100 * (placed.cost / without.cost - 1) : 0;
    const change = without.cost ? ` (${percent > 0 ? "+" : "\u2212"}${Math.abs(percent).toFixed(1)} %)` : "";
    const notes = [`${without.text} in fp32${change}`, `${greedy.text} with greedy placement`];
    cards.push(card(`Predicted on ${visible(predicted.device)}`, placed.text, notes.map((note) => h("p", {}, note))));
  }
  byId("summary").replaceChildren(...cards);
  byId("footer").textContent = `ampc ${visible(report.raw.ampc)}: ${report.raw.summary}`;
}

function showOperators(stats) {
  const types = ["fp16", "bf16", "fp32", "other"].filter((t) => Object.values(stats.ops).some((o) => o[t]));
  const total = (o) => types.reduce((sum, t) => sum + o[t], 0);
  const rows = Object.entries(stats.ops).sort((a, b) => total(b[1]) - total(a[1]));
  byId("operators")
      .querySelector("thead")
      .replaceChildren(
          h("tr", {}, h("th", {scope: "col"}, "Operator"),
            types.map((t) => h("th", {scope: "col", class: "number"}, t)), h("th", {scope: "col"}, "Share")));
  byId("operators")
      .querySelector("tbody")
      .replaceChildren(...rows.map(
          ([op, o]) =>
              h("tr", {}, h("td", {}, visible(op)),
                types.map((t) => h("td", {class: "number"}, o[t] ? String(o[t]) : "")),
                h("td", {}, bar({low: o.fp16 + o.bf16, fp32: o.fp32, other: o.other})))));
}

/* ---- differences --------------------------------------------------------------------------------------------- */

const nodeKey = (n) => `${n.kind}\u001f${n.place}\u001f${n.name}`;
const castKey = (c) => `${c.tensor}: ${c.from} \u2192 ${c.to}`;

/* What changed from the other report to this one. */
function compareReports(before, after) {
  const isNode = (n) => n.kind === "node" || n.kind === "part";
  const old = new Map(before.nodes.filter(isNode).map((n) => [nodeKey(n), n]));
  const d = {added: [], removed: [], changed: [], casts: {added: [], removed: []}};
  for (const n of after.nodes) n.change = "";
  for (const n of after.nodes.filter(isNode)) {
    const o = old.get(nodeKey(n));
    old.delete(nodeKey(n));
    if (!o)
      n.change = "added";
    else if (o.dtype !== n.dtype)
      n.change = `${o.dtype || "-"} \u2192 ${n.dtype || "-"}`;
    else if (o.colour !== n.colour)
      n.change = `${o.colour} \u2192 ${n.colour}`;
    if (n.change) d[o ? "changed" : "added"].push(n);
  }
  d.removed = [...old.values()];
  for (const n of d.removed) n.change = "removed";
  const left = countBy(before.casts, castKey), right = countBy(after.casts, castKey);
  const differ = (a, b) => a.flatMap(([key, n]) => Array(Math.max(0, n - (new Map(b).get(key) || 0))).fill(key));
  d.casts.added = differ(right, left);
  d.casts.removed = differ(left, right);
  return d;
}

function showDifferences(name, before, after, d) {
  const b = before.raw, a = after.raw;
  const row = (what, from, to, lessIsBetter, text = String) => {
    const change = to - from, look = !change ? "quiet" : change < 0 === lessIsBetter ? "better" : "worse";
    return h(
        "tr", {}, h("td", {}, what), h("td", {class: "number"}, text(from)), h("td", {class: "number"}, text(to)),
        h("td", {class: `number ${look}`},
          !change ? "same" : `${change > 0 ? "+" : "\u2212"}${text(Math.abs(change))}`));
  };
  const list = (title, items, show) =>
      h("div", {}, h("h3", {}, `${title}: ${items.length}`),
        h("ul", {}, items.slice(0, 500).map((i) => h("li", {}, show(i)))));
  const cost = (r) => r.raw.predicted && r.raw.predicted.placed.cost;
  const section = byId("differences");
  section.hidden = false;
  section.replaceChildren(
      h("h2", {}, `Differences from ${visible(name)}`),
      h("p", {class: "quiet"}, `${visible(b.model)}: level ${b.level}, ${b.dtype}, ampc ${visible(b.ampc)}`),
      h("div", {class: "columns"},
        h("div", {},
          h("table", {},
            h("thead", {},
              h("tr", {},
                ["", "before", "after", "change"].map((t) => h("th", {scope: "col", class: t && "number"}, t)))),
            h("tbody", {}, row("operators in low precision", b.counts.low, a.counts.low, false),
              row("operators in fp32", b.counts.float_ops - b.counts.low, a.counts.float_ops - a.counts.low, true),
              row("casts", b.stats.casts, a.stats.casts, true),
              row("bytes of casts", b.stats.cast_bytes, a.stats.cast_bytes, true, bytesText),
              cost(before) && cost(after) && b.predicted.unit === a.predicted.unit &&
                  row(`predicted, in ${a.predicted.unit}`, cost(before), cost(after), true,
                      (x) => x.toLocaleString("en"))))),
        list("Changed nodes", d.changed, (n) => [nodeLink(n), ` ${n.change}`]), list("Added nodes", d.added, nodeLink),
        list("Removed nodes", d.removed, (n) => `${n.name} (${n.op})`), list("Added casts", d.casts.added, String),
        list("Removed casts", d.casts.removed, String)));
}

/* A report as JSON, or a page that has one in it. The page is parsed as text, so nothing in it runs or loads. */
function parseReport(text) {
  if (!text.trimStart().startsWith("<")) return readReport(JSON.parse(text));
  const script = new DOMParser().parseFromString(text, "text/html").getElementById("data");
  if (!script) throw new Error("not a report of ampc");
  return readReport(JSON.parse(script.textContent));
}

function compareWith(name, text) {
  try {
    const before = parseReport(text), d = compareReports(before, view.report);
    showDifferences(name, before, view.report, d);
    if (table.columns === COLUMNS)
      table.columns = [...COLUMNS.slice(0, 4), ["Change", "10%", (n) => n.change], ...COLUMNS.slice(4)];
    byId("label-change").hidden = false;
    const all = [...tableNodes(view.report), ...d.removed];
    setChoices(
        "filter-change", "all",
        [["any", "any"], ...countBy(all.filter((n) => n.change), (n) => n.change).map(([c, n]) => [c, `${c} (${n})`])]);
    table.start(all);
  } catch (error) {
    byId("differences").hidden = false;
    byId("differences")
        .replaceChildren(
            h("h2", {}, `Cannot compare with ${visible(name)}`), h("p", {role: "alert"}, visible(error.message)));
  }
}

/* ---- start --------------------------------------------------------------------------------------------------- */

const tableNodes = (report) => report.nodes.filter((n) => n.kind === "node" || n.kind === "part");

function start() {
  const report = readReport(JSON.parse(byId("data").textContent));
  view.report = report;
  view.tree = makeTree(report);
  showSummary(report);
  showOperators(report.raw.stats);
  startFilters(tableNodes(report));
  table.start(tableNodes(report));
  table.listen();
  openSome(view.tree.root, view.tree.root.nodes.length <= MANY ? MANY : 30);
  listenToPicture();
  drawPicture();
  fitPicture();
  drawLegend();
  showHelp();
  byId("compare").addEventListener("change", async (e) => {
    const file = e.target.files[0];
    if (file) compareWith(file.name, await file.text());
  });
}

start();
