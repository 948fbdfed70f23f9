// The charts, by Observable Plot. Colours are CSS variables, so that they follow the theme.
"use strict";

const KINDS = { prune: "prune", merge: "merge", pool: "pool", reweight: "reweight", own: "a method's own operator" };
const soft = "var(--soft)", accent = "var(--accent)", text = "var(--text)", card = "var(--card)", none = "var(--none)";
const series = (place) => `var(--s${place % 8})`;
const layerName = (layer) => (layer < 0 ? "in" : String(layer));

const accuracy = (row) => row.average.accuracy;
const low = (row) => accuracy(row) - row.average.stderr;
const high = (row) => accuracy(row) + row.average.stderr;
const seriesOf = (row) => row.name.split("@")[0];
const describe = (row) => `${row.name}\naccuracy ${plusMinus(row.average)} % (n ${row.average.n})\n` +
  `FLOPs ×${fixed(row.cost.flops_ratio, 3)}, mean tokens ${fixed(row.cost.mean_tokens)}, final ${row.cost.final_tokens}`;

const plot = (width, height, options) =>
  Plot.plot({ width, height, marginLeft: 40, marginBottom: 40, color: { type: "identity" }, ...options });
const tip = (rows, channels, title, pointer = Plot.pointer) =>
  Plot.tip(rows, pointer({ ...channels, title, fill: card, stroke: "var(--line)", textPadding: 8, fontSize: 12 }));
const fullRule = (full, axis) =>
  full && (axis === "x" ? Plot.ruleX : Plot.ruleY)([full], { [axis]: accuracy, stroke: soft, strokeDasharray: "4 4" });
function domainOf(rows, full, spare = 1) {
  const all = full ? [...rows, full] : rows;
  return [Math.min(...all.map(low)) - spare, Math.max(...all.map(high)) + spare];
}

// Tokens left after each site of a plan: the input, then the layers.
function sitesOf(steps, layers, tokens) {
  const found = [];
  let left = tokens, last = null;
  for (let layer = -1; layer < layers; layer++) {
    const step = steps.find((own) => own.layer === layer) ?? null;
    last = step ?? last;
    left = step?.keep ?? left;
    found.push({ layer, left, step, last });
  }
  return found;
}

function planStrip(width, { steps, layers, tokens, chosen }) {
  const sites = sitesOf(steps, layers, tokens), acting = sites.filter((site) => site.step);
  const x = (site) => layerName(site.layer), y = "left";
  const color = (site) => (site.last ? `var(--${site.last.kind})` : none);
  const tell = (site) => `after ${siteName(site.layer)}: ${site.left} tokens\n` +
    (site.step ? `${site.step.label}\nscore: ${site.step.score}` : "no reduction here");
  return plot(width, Math.min(300, 170 + width / 6), {
    marginTop: 24,
    x: { type: "band", domain: sites.map(x), label: "layer", padding: 0.12, tickSize: 0 },
    y: { domain: [0, tokens], label: "visual tokens left", ticks: 5, tickSize: 0, grid: true },
    marks: [
      Plot.barY(sites, { x, y: tokens, fill: "var(--faint)" }),
      Plot.barY(sites, { x, y, fill: color, fillOpacity: (site) => (site.step ? 1 : 0.38) }),
      Plot.barY(acting.filter((site) => site.step.hybrid), { x, y, fill: "url(#hatch)" }),
      Plot.barY(sites.filter((site) => site.layer === chosen), { x, y, fill: "none", stroke: text, strokeWidth: 2 }),
      Plot.text(acting, { x, y, text: y, dy: -9, fontWeight: 600, fontSize: 12.5, fill: text, stroke: card, strokeWidth: 4 }),
      tip(sites, { x, y }, tell, Plot.pointerX),
    ],
  });
}

// Round numbers within the range of values on a logarithmic axis.
function ticks(values) {
  const round = [-3, -2, -1, 0, 1, 2, 3].flatMap((power) => [1, 2, 3, 5].map((digit) => Number(`${digit}e${power}`)));
  return round.filter((value) => value >= Math.min(...values) * 0.95 && value <= Math.max(...values) * 1.05);
}

// Accuracy of every method against its cost; searched plans stand out, and one more by choice.
function costCurves(width, { rows, cost, costLabel, highlighted, full }) {
  const rank = (row) => (row.searched ? 2 : row.method === highlighted ? 1 : 0);
  const stroke = (row) => [none, series(0), accent][rank(row)];
  const sorted = [...rows].sort((a, b) => rank(a) - rank(b) || a.cost[cost] - b.cost[cost]);
  const x = (row) => row.cost[cost], y = accuracy;
  return plot(width, Math.min(460, 240 + width / 5), {
    marginRight: 24,
    x: { type: "log", label: `${costLabel} (log)`, grid: true, ticks: ticks(rows.map(x)), tickFormat: String },
    y: { label: "accuracy, %", grid: true, domain: domainOf(rows, full, 4) },
    marks: [
      fullRule(full, "y"),
      full && Plot.text([full], { y, frameAnchor: "left", textAnchor: "start", dx: 4, dy: -8, fill: soft, text: (row) => `full model ${fixed(accuracy(row))}` }),
      Plot.line(sorted, { x, y, z: seriesOf, stroke, strokeWidth: (row) => 1.4 + rank(row) * 0.6 }),
      Plot.ruleX(sorted.filter(rank), { x, y1: low, y2: high, stroke, strokeOpacity: 0.6 }),
      Plot.dot(sorted, { x, y, fill: stroke, r: (row) => 2.5 + rank(row), stroke: card, strokeWidth: 0.75 }),
      tip(rows, { x, y }, describe),
    ],
  });
}

// What a study varies decides its charts: two layers a heat map, a number lines, names a list.
function studyCharts(study) {
  const full = study.rows.find((row) => row.method === "full");
  const rows = study.rows.filter((row) => row !== full && Object.keys(row.factors).length);
  const values = (key) => unique(rows.map((row) => row.factors[key]).filter((value) => value !== undefined));
  const swept = rows.filter((row) => "parameter" in row.factors);
  if (values("l1").length > 1 && values("l3").length > 1) return [{ draw: (width) => heatMap(width, rows) }];
  if (swept.length) {
    const domain = domainOf(swept, full), of = (row) => `budget ${row.factors.budget}`;
    return values("parameter").map((name) =>
      ({ title: symbol(name), ...lines(swept.filter((row) => row.factors.parameter === name), full, "value", of, domain) }));
  }
  if (values("lambda_a").length > 2) {
    const of = (row) => `budget ${row.factors.budget}${row.factors.ce === 0 ? ", without the task's loss" : ""}`;
    return [lines(rows, full, "lambda_a", of)];
  }
  if (values("budget").length > 2 && unique(rows.map(seriesOf)).length < 9) return [lines(rows, full, "budget", seriesOf)];
  return [{ draw: (width) => ranks(width, rows, full) }];
}

function lines(rows, full, along, of, domain = null) {
  const groups = unique(rows.map(of)).sort(naturally);
  const stroke = (row) => (groups.length > 1 ? series(groups.indexOf(of(row))) : accent);
  const x = (row) => row.factors[along], y = accuracy;
  const sorted = [...rows].sort((a, b) => naturally(x(a), x(b)));
  const draw = (width) => plot(width, domain ? 190 : 260, {
    x: { type: "point", domain: unique(sorted.map(x)), label: along === "value" ? null : symbol(along), padding: 0.3, tickSize: 3 },
    y: { domain: domain ?? domainOf(rows, full), label: domain ? null : "accuracy, %", grid: true, ticks: 5 },
    marks: [
      fullRule(full, "y"),
      Plot.line(sorted, { x, y, z: of, stroke, strokeWidth: 1.8 }),
      Plot.ruleX(sorted, { x, y1: low, y2: high, stroke, strokeOpacity: 0.6 }),
      Plot.dot(sorted, { x, y, fill: stroke, r: 3.2 }),
      tip(sorted, { x, y }, describe),
    ],
  });
  return { draw, legend: groups.length > 1 ? groups.map((name, place) => [name, series(place)]) : [] };
}

function heatMap(width, rows) {
  const all = rows.map(accuracy), least = Math.min(...all), most = Math.max(...all);
  const share = (row) => (accuracy(row) - least) / (most - least || 1);
  const fill = (row) => `color-mix(in oklab, var(--s0) ${Math.round(12 + 88 * share(row) ** 1.5)}%, var(--card))`;
  const domain = (key) => unique(rows.map((row) => row.factors[key])).sort(naturally);
  const x = (row) => row.factors.l1, y = (row) => row.factors.l3;
  const band = (key, label) => ({ type: "band", domain: domain(key), label, tickFormat: layerName, tickSize: 0, padding: 0.06 });
  return plot(width, 70 + 30 * domain("l3").length, {
    marginTop: 10, marginBottom: 44, x: band("l1", "first reducing layer"), y: band("l3", "last reducing layer"),
    marks: [
      Plot.cell(rows, { x, y, fill, rx: 3 }),
      Plot.text(rows, { x, y, text: (row) => fixed(accuracy(row)), fill: (row) => (share(row) > 0.75 ? "var(--page)" : text), fontSize: width < 360 ? 9.5 : 11.5 }),
      tip(rows, { x, y }, describe),
    ],
  });
}

function ranks(width, rows, full) {
  const longest = Math.max(...rows.map((row) => row.name.length)), x = accuracy, y = "name";
  return plot(width, 50 + 22 * rows.length, {
    marginTop: 6, marginLeft: Math.min(width * 0.5, 16 + longest * 6.6),
    x: { domain: domainOf(rows, full), label: "accuracy, %", grid: true, ticks: 5 },
    y: { type: "band", domain: rows.map((row) => row.name), label: null, tickSize: 0 },
    marks: [
      fullRule(full, "x"),
      Plot.ruleY(rows, { y, x1: low, x2: high, stroke: accent, strokeOpacity: 0.6 }),
      Plot.dot(rows, { x, y, fill: accent, r: 4 }),
      tip(rows, { x, y }, describe),
    ],
  });
}

// The values of one parameter over layers at a step of a search, on axes that stay the same.
function stepBars(width, { sites, values, first, range, name }) {
  const rows = sites.map((layer, place) => ({ layer: layerName(layer), value: Number(values[place]), first: Number(first[place]) }));
  return plot(width, 260, {
    x: { type: "band", domain: rows.map((row) => row.layer), label: "layer", tickSize: 0, padding: 0.15 },
    y: { domain: range, label: name, grid: true, ticks: 5 },
    marks: [
      Plot.barY(rows, { x: "layer", y1: Math.max(0, range[0]), y2: "value", fill: series(0) }),
      Plot.tickY(rows, { x: "layer", y: "first", stroke: text, strokeDasharray: "3 3" }),
      tip(rows, { x: "layer", y: "value" }, (row) => `${name} ${fixed(row.value, 3)}\nat the start ${fixed(row.first, 3)}`, Plot.pointerX),
    ],
  });
}

function lossLines(width, { steps, losses, at }) {
  const rows = Object.entries(losses).flatMap(([name, values], place) =>
    steps.map((step, i) => ({ step, value: Number(values[i]), name, color: series(place) })));
  const x = "step", y = "value", z = "name", stroke = "color";
  return plot(width, 260, {
    x: { label: "step" }, y: { type: "symlog", constant: 0.1, label: "loss", grid: true, ticks: 5 },
    marks: [
      Plot.line(rows, { x, y, z, stroke, strokeOpacity: 0.3 }),
      Plot.line(rows.filter((row) => row.step <= at), { x, y, z, stroke, strokeWidth: 2 }),
      Plot.ruleX([at], { stroke: text }),
      tip(rows, { x, y }, (row) => `step ${row.step}\n${symbol(row.name)} ${fixed(row.value, 4)}`),
    ],
  });
}

const profileColor = (place, count) => `color-mix(in oklab, var(--s1), var(--s0) ${Math.round((100 * place) / Math.max(1, count - 1))}%)`;
function profileCurves(width, curves) {
  const rows = curves.flatMap((curve, place) => curve.counts.map((count, i) =>
    ({ ...curve, count, mean: curve.means[i], error: curve.errors[i], color: profileColor(place, curves.length) })));
  const x = "count", y = "mean";
  const tell = (row) => `after ${siteName(row.layer)}, ${row.count} kept\n${row.score}\n${fixed(row.mean, 3)} ± ${fixed(row.error, 3)}`;
  return plot(width, Math.min(420, 220 + width / 5), {
    x: { type: "log", base: 2, label: "visual tokens kept", ticks: curves[0].counts, tickFormat: String, grid: true },
    y: { label: "disagreement with the full model", grid: true, zero: true },
    marks: [
      Plot.line(rows, { x, y, z: "layer", stroke: "color", strokeWidth: 1.6 }),
      Plot.dot(rows, { x, y, fill: "color", r: 2.6 }),
      tip(rows, { x, y }, tell),
    ],
  });
}
