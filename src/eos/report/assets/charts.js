// The charts, by Observable Plot. Colours are CSS variables, so that they follow the theme.
"use strict";

const KINDS = { prune: "prune", merge: "merge", pool: "pool", reweight: "reweight", own: "a method's own operator" };
const series = (place) => `var(--s${place % 8})`;
const soft = "var(--soft)";
const identity = { color: { type: "identity" } };
const tipStyle = { fill: "var(--card)", stroke: "var(--line)", textPadding: 8, fontSize: 12 };
const errorBars = (rows, x, color) => Plot.ruleX(rows, {
  x, y1: (row) => row.average.accuracy - row.average.stderr, y2: (row) => row.average.accuracy + row.average.stderr, stroke: color, strokeOpacity: 0.6,
});
const accuracyOf = (row) => row.average.accuracy;
const describe = (row) => `${row.name}\naccuracy ${plusMinus(row.average)} % (n ${row.average.n})\n` +
  `FLOPs ×${fixed(row.cost.flops_ratio, 3)}, mean tokens ${fixed(row.cost.mean_tokens)}, final ${row.cost.final_tokens}`;

// Tokens left after each site of a plan: the input, then the layers.
function profileOf(steps, layers, tokens) {
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
  const sites = profileOf(steps, layers, tokens);
  const name = (site) => (site.layer < 0 ? "in" : String(site.layer));
  const color = (site) => (site.last ? `var(--${site.last.kind})` : "var(--none)");
  const tell = (site) => `after ${siteName(site.layer)}: ${site.left} tokens` +
    (site.step ? `\n${site.step.label}\nscore: ${site.step.score}` : "\nno reduction here");
  const acting = sites.filter((site) => site.step);
  return Plot.plot({
    width, height: Math.min(300, 160 + width / 6), marginLeft: 44, marginTop: 24, marginBottom: 40, ...identity,
    x: { type: "band", domain: sites.map(name), label: "layer", padding: 0.12, tickSize: 0 },
    y: { domain: [0, tokens], label: "visual tokens left", ticks: 5, tickSize: 0, grid: true, nice: false },
    marks: [
      Plot.barY(sites, { x: name, y: tokens, fill: "var(--faint)" }),
      Plot.barY(sites, { x: name, y: "left", fill: color, fillOpacity: (site) => (site.step ? 1 : 0.38) }),
      Plot.barY(acting.filter((site) => site.step.hybrid), { x: name, y: "left", fill: "url(#hatch)" }),
      Plot.barY(sites.filter((site) => site.layer === chosen), { x: name, y: "left", fill: "none", stroke: "var(--text)", strokeWidth: 2 }),
      Plot.text(acting, { x: name, y: "left", text: "left", dy: -9, fontWeight: 600, fontSize: 12.5, fill: "var(--text)", stroke: "var(--card)", strokeWidth: 4 }),
      Plot.tip(sites, Plot.pointerX({ x: name, y: "left", title: tell, ...tipStyle })),
    ],
  });
}

// Accuracy of every method against its cost; searched plans stand out, and one more by choice.
function costCurves(width, { rows, cost, highlighted, full }) {
  const methods = unique(rows.map((row) => row.method));
  const shown = (row) => (row.searched ? 2 : row.method === highlighted ? 1 : 0);
  const color = (row) => ["var(--none)", "var(--s0)", "var(--accent)"][shown(row)];
  const sorted = [...rows].sort((a, b) => shown(a) - shown(b) || a.cost[cost] - b.cost[cost]);
  const x = (row) => row.cost[cost];
  const ends = methods.map((method) => sorted.filter((row) => row.method === method)).filter((own) => shown(own[0])).map((own) => own.at(-1));
  const labels = { flops_ratio: "FLOPs, relative to the full model (log)", mean_tokens: "mean tokens entering a layer (log)", final_tokens: "final tokens (log)" };
  return Plot.plot({
    width, height: Math.min(460, 240 + width / 5), marginLeft: 40, marginRight: width > 600 ? 150 : 24, marginBottom: 40, ...identity,
    x: { type: "log", label: labels[cost], grid: true, tickFormat: (value) => (/^[125]/.test(String(value).replace(/^0\.0*/, "")) ? String(value) : "") },
    y: { label: "accuracy, %", grid: true, domain: domainOf(rows, full, 4) },
    marks: [
      full && Plot.ruleY([full], { y: accuracyOf, stroke: soft, strokeDasharray: "4 4" }),
      full && Plot.text([full], { y: accuracyOf, frameAnchor: width > 600 ? "right" : "left", text: (row) => `full model ${fixed(row.average.accuracy)}`, dx: width > 600 ? 8 : 4, dy: width > 600 ? 0 : -8, fill: soft, textAnchor: "start" }),
      Plot.line(sorted, { x, y: accuracyOf, z: "method", stroke: color, strokeWidth: (row) => 1.4 + shown(row) * 0.6 }),
      errorBars(sorted.filter(shown), x, color),
      Plot.dot(sorted, { x, y: accuracyOf, fill: color, r: (row) => 2.5 + shown(row), stroke: "var(--card)", strokeWidth: 0.75 }),
      width > 600 ? Plot.text(ends, { x, y: accuracyOf, text: "method", fill: color, dx: 8, textAnchor: "start", fontWeight: 600, stroke: "var(--card)", strokeWidth: 3 }) : null,
      Plot.tip(rows, Plot.pointer({ x, y: accuracyOf, title: describe, ...tipStyle })),
    ],
  });
}

// What a study varies decides its chart: two layers a heat map, a number a line, names a list.
function studyCharts(study) {
  const rows = study.rows.filter((row) => row.method !== "full");
  const full = study.rows.find((row) => row.method === "full");
  const varied = unique(rows.flatMap((row) => Object.keys(row.factors))).filter((key) => unique(rows.map((row) => row.factors[key])).length > 1);
  if (varied.includes("l1") && varied.includes("l3")) return [{ draw: (width) => heatMap(width, rows) }];
  if (varied.includes("parameter") && varied.includes("value")) {
    const others = varied.filter((key) => !["parameter", "value"].includes(key));
    const found = unique(rows.map((row) => row.factors.parameter)).map((parameter) => {
      const own = rows.filter((row) => row.factors.parameter === parameter);
      return { title: symbol(parameter), ...lines(own, full, "value", others, { label: symbol(parameter), domain: domainOf(rows, full), small: true }) };
    });
    return found;
  }
  const numbers = varied.filter((key) => key !== "seed" && rows.every((row) => row.factors[key] === undefined || typeof row.factors[key] === "number"));
  const values = (key) => unique(rows.map((row) => row.factors[key])).length;
  const along = numbers.sort((a, b) => values(b) - values(a))[0];
  if (along && values(along) > 2 && study.name !== "method") return [lines(rows.filter((row) => along in row.factors), full, along, varied.filter((key) => key !== along))];
  return [{ draw: (width) => ranks(width, rows, full) }];
}

function domainOf(rows, full, spare = 1) {
  const all = full ? [...rows, full] : rows;
  return [Math.min(...all.map((row) => accuracyOf(row) - row.average.stderr)) - spare, Math.max(...all.map((row) => accuracyOf(row) + row.average.stderr)) + spare];
}

function lines(rows, full, along, others, { label = symbol(along), domain = domainOf(rows, full), small = false } = {}) {
  const group = (row) => others.map((key) => `${symbol(key)} ${row.factors[key]}`).join(", ");
  const groups = unique(rows.map(group)).sort(naturally);
  const color = (row) => (groups.length > 1 ? series(groups.indexOf(group(row))) : "var(--accent)");
  const x = (row) => row.factors[along];
  const sorted = [...rows].sort((a, b) => naturally(x(a), x(b)));
  const draw = (width) => Plot.plot({
    width, height: small ? 190 : 260, marginLeft: 36, marginBottom: 36, ...identity,
    x: { type: "point", domain: unique(sorted.map(x)), label, padding: 0.3, tickSize: 3 },
    y: { domain, label: small ? null : "accuracy, %", grid: true, ticks: 5 },
    marks: [
      full && Plot.ruleY([full], { y: accuracyOf, stroke: soft, strokeDasharray: "4 4" }),
      Plot.line(sorted, { x, y: accuracyOf, z: group, stroke: color, strokeWidth: 1.8 }),
      errorBars(sorted, x, color),
      Plot.dot(sorted, { x, y: accuracyOf, fill: color, r: 3.2 }),
      Plot.tip(sorted, Plot.pointer({ x, y: accuracyOf, title: describe, ...tipStyle })),
    ],
  });
  return { draw, legend: groups.length > 1 ? groups.map((name, place) => [name, series(place)]) : [] };
}

function heatMap(width, rows) {
  const values = rows.map(accuracyOf), low = Math.min(...values), high = Math.max(...values);
  const share = (row) => (accuracyOf(row) - low) / (high - low || 1);
  const tint = (row) => `color-mix(in oklab, var(--s0) ${Math.round(12 + 88 * share(row) ** 1.5)}%, var(--card))`;
  const domain = (key) => unique(rows.map((row) => row.factors[key])).sort(naturally);
  const named = (value) => (value < 0 ? "in" : String(value));
  return Plot.plot({
    width, height: 70 + 30 * domain("l3").length, marginLeft: 40, marginTop: 10, marginBottom: 44, ...identity,
    x: { type: "band", domain: domain("l1"), label: "first reducing layer", tickFormat: named, tickSize: 0, padding: 0.06 },
    y: { type: "band", domain: domain("l3"), label: "last reducing layer", tickSize: 0, padding: 0.06 },
    marks: [
      Plot.cell(rows, { x: (row) => row.factors.l1, y: (row) => row.factors.l3, fill: tint, rx: 3 }),
      Plot.text(rows, { x: (row) => row.factors.l1, y: (row) => row.factors.l3, text: (row) => fixed(accuracyOf(row)), fill: (row) => (share(row) > 0.75 ? "var(--page)" : "var(--text)"), fontSize: width < 360 ? 9.5 : 11.5 }),
      Plot.tip(rows, Plot.pointer({ x: (row) => row.factors.l1, y: (row) => row.factors.l3, title: describe, ...tipStyle })),
    ],
  });
}

function ranks(width, rows, full) {
  const longest = Math.max(...rows.map((row) => row.name.length));
  return Plot.plot({
    width, height: 50 + 24 * rows.length, marginTop: 6, marginLeft: Math.min(width * 0.45, 16 + longest * 7), marginBottom: 36, ...identity,
    x: { domain: domainOf(rows, full), label: "accuracy, %", grid: true, ticks: 5 },
    y: { type: "band", domain: rows.map((row) => row.name), label: null, tickSize: 0 },
    marks: [
      full && Plot.ruleX([full], { x: accuracyOf, stroke: soft, strokeDasharray: "4 4" }),
      Plot.ruleY(rows, { y: "name", x1: (row) => accuracyOf(row) - row.average.stderr, x2: (row) => accuracyOf(row) + row.average.stderr, stroke: "var(--accent)", strokeOpacity: 0.6 }),
      Plot.dot(rows, { y: "name", x: accuracyOf, fill: "var(--accent)", r: 4 }),
      Plot.tip(rows, Plot.pointer({ y: "name", x: accuracyOf, title: describe, ...tipStyle })),
    ],
  });
}

// The values of one parameter over layers at a step of a search, on axes that stay the same.
function stepBars(width, { sites, values, before, range, name }) {
  const rows = sites.map((layer, place) => ({ layer: layer < 0 ? "in" : String(layer), value: Number(values[place]), first: Number(before[place]) }));
  return Plot.plot({
    width, height: 260, marginLeft: 40, marginBottom: 36, ...identity,
    x: { type: "band", domain: rows.map((row) => row.layer), label: "layer", tickSize: 0, padding: 0.15 },
    y: { domain: range, label: name, grid: true, ticks: 5 },
    marks: [
      Plot.barY(rows, { x: "layer", y1: Math.max(0, range[0]), y2: "value", fill: "var(--s0)" }),
      Plot.tickY(rows, { x: "layer", y: "first", stroke: soft, strokeDasharray: "3 3" }),
      Plot.tip(rows, Plot.pointerX({ x: "layer", y: "value", title: (row) => `layer ${row.layer}\n${name} ${fixed(row.value, 3)}\nat the start ${fixed(row.first, 3)}`, ...tipStyle })),
    ],
  });
}

function lossLines(width, { steps, losses, at }) {
  const names = Object.keys(losses);
  const rows = names.flatMap((name, place) => steps.map((step, i) => ({ step, value: Number(losses[name][i]), name, color: series(place) })));
  return Plot.plot({
    width, height: 260, marginLeft: 40, marginBottom: 36, ...identity,
    x: { label: "step" }, y: { type: "symlog", constant: 0.1, label: "loss", grid: true, ticks: 5 },
    marks: [
      Plot.line(rows, { x: "step", y: "value", z: "name", stroke: "color", strokeOpacity: 0.3 }),
      Plot.line(rows.filter((row) => row.step <= at), { x: "step", y: "value", z: "name", stroke: "color", strokeWidth: 2 }),
      Plot.ruleX([at], { stroke: "var(--text)" }),
      Plot.tip(rows, Plot.pointer({ x: "step", y: "value", title: (row) => `step ${row.step}\n${row.name} ${fixed(row.value, 4)}`, ...tipStyle })),
    ],
  });
}

function profileCurves(width, curves) {
  const color = (curve) => `color-mix(in oklab, var(--s1), var(--s0) ${Math.round((100 * curves.indexOf(curve)) / Math.max(1, curves.length - 1))}%)`;
  const rows = curves.flatMap((curve) => curve.counts.map((count, i) => ({ ...curve, count, mean: curve.means[i], error: curve.errors[i], color: color(curve) })));
  const svg = Plot.plot({
    width, height: Math.min(420, 220 + width / 5), marginLeft: 40, marginBottom: 40, ...identity,
    x: { type: "log", base: 2, label: "visual tokens kept", ticks: curves[0].counts, tickFormat: String, grid: true },
    y: { label: "disagreement with the full model", grid: true, zero: true },
    marks: [
      Plot.line(rows, { x: "count", y: "mean", z: "layer", stroke: "color", strokeWidth: 1.6 }),
      Plot.dot(rows, { x: "count", y: "mean", fill: "color", r: 2.6 }),
      Plot.tip(rows, Plot.pointer({ x: "count", y: "mean", title: (row) => `after ${siteName(row.layer)}, ${row.count} kept\n${row.score}\ndisagreement ${fixed(row.mean, 3)} ± ${fixed(row.error, 3)}`, ...tipStyle })),
    ],
  });
  return { svg, entries: curves.map((curve) => [siteName(curve.layer), color(curve)]) };
}
