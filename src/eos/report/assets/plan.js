// The budget slider: the plan's strip, and the tokens left on pictures with both models' answers.
"use strict";

const GONE = 0xffff;
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const keptOf = (text, tokens) => { const mask = bytes(text); return Array.from({ length: tokens }, (_, i) => Boolean((mask[i >> 3] >> (i & 7)) & 1)); };
function flowsOf(text) {
  const raw = bytes(text), view = new DataView(raw.buffer);
  return Array.from({ length: raw.length / 4 }, (_, i) => [view.getUint16(4 * i, true), view.getUint16(4 * i + 2, true)]);
}

// A picture under its grid of tokens: what is dropped is dark; lines lead to where it flows.
function tokenPicture({ image, grid: [rows, cols], kept, flows = [], rings = [], label }) {
  const cell = (i) => `M${i % cols} ${Math.floor(i / cols)}h1v1h-1z`;
  const middle = (i) => `${(i % cols) + 0.5} ${Math.floor(i / cols) + 0.5}`;
  const dark = kept ? kept.map((stays, i) => (stays ? "" : cell(i))).join("") : "";
  const drawn = flows.filter(([, to]) => to !== GONE).map(([from, to]) => `M${middle(from)}L${middle(to)}`).join("");
  return el("svg", { viewBox: `0 0 ${cols} ${rows}`, role: label ? "img" : "presentation", "aria-label": label, "aria-hidden": label ? null : "true" },
    el("image", { href: image, width: cols, height: rows, preserveAspectRatio: "none" }),
    el("path", { d: dark, style: "fill:var(--scrim)" }),
    el("path", { d: drawn, style: "stroke:var(--flow);stroke-width:.1;stroke-linecap:round;opacity:.7;fill:none" }),
    ...rings.map(([i, size]) => el("circle", { cx: (i % cols) + 0.5, cy: Math.floor(i / cols) + 0.5, r: size, style: "fill:none;stroke:var(--flow);stroke-width:.14" })));
}

function startPlan(source) {
  const main = source.studies.find((study) => study.name === "main");
  const examples = source.examples;
  const found = new Map(Object.entries(examples?.plans ?? {}).map(([budget, steps]) => [Number(budget), { steps }]));
  for (const row of main?.rows ?? []) if (row.method === "eos" && row.steps && row.factors.budget) found.set(Number(row.factors.budget), { steps: row.steps, row });
  const budgets = [...found.keys()].sort((a, b) => b - a);
  $("plan-body").hidden = !budgets.length;
  if (!budgets.length) return $("plan-body").before(missing("No searched plan: neither the study main nor examples.json is in this folder."));
  const layers = main?.num_layers ?? examples.num_layers, tokens = main?.visual_tokens ?? examples.visual_tokens;
  const full = main?.rows.find((row) => row.method === "full");
  const state = { budget: budgets.includes(64) ? 64 : budgets[0], layer: layers - 1, item: 0 };

  function showStrip() {
    const { steps } = found.get(state.budget);
    const label = `Tokens left after each layer at budget ${state.budget}`;
    const description = `${tokens} at first; ${steps.map((step) => `${step.keep} after ${siteName(step.layer)} by ${step.label}`).join("; ")}`;
    chart($("strip"), (width) => planStrip(width, { steps, layers, tokens, chosen: state.layer }), { label, description });
    const kinds = unique(steps.map((step) => step.kind));
    legend($("regimes"), [...kinds.map((kind) => [KINDS[kind], `var(--${kind})`]), ...(steps.some((step) => step.hybrid) ? [["hatched: hybrid, in the colour of the nearest corner", "var(--none)"]] : [])]);
  }

  function showBudget() {
    const { steps, row } = found.get(state.budget);
    $("budget-out").textContent = `${state.budget} of ${tokens} tokens`;
    $("budget").setAttribute("aria-valuetext", `${state.budget} tokens`);
    const cost = row && `FLOPs ×${fixed(row.cost.flops_ratio, 3)}, ${fixed(row.cost.mean_tokens)} mean tokens, accuracy ${plusMinus(row.average)} %`;
    const beside = full && row ? `, full model ${plusMinus(full.average)} %` : "";
    fill($("plan-live"), el("b", {}, `${state.budget} tokens: `), cost ? `${cost}${beside} (n ${row.average.n}).` : "not evaluated in this folder.");
    const number = (value) => (typeof value === "number" ? fixed(value, 3) : value ?? "–");
    sortable($("steps"), {
      caption: "Steps of the plan", rows: steps,
      columns: columns(["after", (step) => step.layer, (step) => siteName(step.layer), true], ["tokens left", (step) => step.keep], ["does", (step) => step.label, null, true],
        ...["γ", "τ", "θ", "ρ", "ν"].map((letter, place) => [letter, (step) => step.omega[place], (step) => number(step.omega[place])]), ["score", (step) => step.score, null, true]),
    });
    showStrip();
    showPicture();
  }

  const run = () => examples.items[state.item].runs[state.budget];
  const stepAt = (layer) => run()?.steps.filter((step) => step.layer <= layer).at(-1);
  function view(layer, flows) {
    const item = examples.items[state.item], step = stepAt(layer);
    const kept = step && keptOf(step.kept, item.grid[0] * item.grid[1]);
    const left = kept ? kept.filter(Boolean).length : item.grid[0] * item.grid[1];
    return { ...item, kept, left, flows: flows && step?.layer === layer ? flowsOf(step.flows) : [] };
  }

  function showPicture() {
    if (!examples?.items.length) return;
    const item = examples.items[state.item], shown = view(state.layer, $("flows").checked);
    const where = state.layer < -1 ? "the whole picture" : `after ${siteName(state.layer)}`;
    $("layer-out").textContent = `${where}, ${shown.left} tokens`;
    $("layer").setAttribute("aria-valuetext", `${where}, ${shown.left} tokens left`);
    fill($("picture"), tokenPicture({ ...shown, label: `Picture of the family ${item.family}, ${where}: ${shown.left} tokens left, the others dark` }));
    const frames = [-2, ...(run()?.steps ?? []).map((step) => step.layer)];
    const current = frames.filter((layer) => layer <= state.layer).at(-1);
    fill($("film"), ...frames.map((layer) => {
      const frame = view(layer, false), name = layer < -1 ? "all" : siteName(layer);
      return el("button", { type: "button", "aria-pressed": String(layer === current), onclick: () => chooseLayer(layer, true) }, tokenPicture(frame), `${name}: ${frame.left}`);
    }));
    const answer = (name, text) => {
      const right = text.trim() === item.answer.trim();
      return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: right ? "good" : "bad" }, `${text} ${right ? "✓ right" : "✗ wrong"}`));
    };
    fill($("answers"), el("p", { class: "question" }, item.question), el("table", { class: "answers" }, el("tbody", {},
      el("tr", {}, el("th", { scope: "row" }, "reference"), el("td", {}, item.answer)),
      answer("full model", item.full), run() ? answer(`${state.budget} tokens`, run().answer) : null)));
  }

  function chooseLayer(layer, focus) {
    state.layer = layer;
    $("layer").value = layer;
    showStrip();
    showPicture();
    if (focus) $("film").querySelector("[aria-pressed=true]").focus();
  }

  Object.assign($("budget"), { max: budgets.length - 1, value: budgets.indexOf(state.budget), oninput: () => { state.budget = budgets[$("budget").value]; showBudget(); } });
  fill($("budget-ticks"), ...budgets.map((budget) => el("span", {}, String(budget))));
  Object.assign($("layer"), { max: layers - 1, value: state.layer, oninput: () => chooseLayer(Number($("layer").value), false) });
  $("flows").onchange = showPicture;
  if (examples?.items.length) {
    fill($("thumbs"), ...examples.items.map((item, place) => el("label", { class: "thumb" },
      el("input", { type: "radio", name: "picture", checked: place === state.item, "aria-label": `${item.family}: ${item.question}`, onchange: () => { state.item = place; showPicture(); } }),
      el("img", { src: item.image, alt: "", title: item.family }))));
  } else {
    $("question").remove();
    fill($("pictures"), missing("No example pictures: examples.json is not in this folder."));
  }
  showBudget();
}

const DOES = {
  prune: "dropped tokens leave no trace", merge: "each dropped token is added to the most similar kept one", pool: "every kept token gets an equal share of all dropped ones",
  reweight: "kept tokens are scaled by their importance", searched: "the operator that the search found",
};
function startOperators(source) {
  const own = source.examples?.operators;
  if (!own) return fill($("operator-views"), missing("No views of the operators: examples.json is not in this folder."));
  const tokens = own.grid[0] * own.grid[1];
  fill($("operator-views"), ...Object.entries(own.views).map(([name, found]) => {
    const kept = keptOf(found.kept, tokens), places = [...kept.keys()].filter((i) => kept[i]), largest = Math.max(...found.scales.map(Number), 1e-9);
    const rings = unique(found.scales).length > 1 ? places.map((i, place) => [i, 0.42 * Math.sqrt(Number(found.scales[place]) / largest)]) : [];
    const flows = flowsOf(found.flows), moved = flows.filter(([, to]) => to !== GONE).length;
    const label = `${name}: ${places.length} tokens kept, ${moved} of ${flows.length} dropped tokens flow into kept ones`;
    return el("figure", {}, tokenPicture({ image: own.image, grid: own.grid, kept, flows, rings, label }), el("figcaption", {}, el("b", {}, name), DOES[name] ? `: ${DOES[name]}` : ""));
  }));
}
