// The budget slider: the plan's strip, and the tokens left on pictures with both models' answers.
"use strict";

const GONE = 0xffff;
const bytes = (packed) => Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
function keptOf(packed, tokens) {
  const mask = bytes(packed);
  return Array.from({ length: tokens }, (_, i) => Boolean((mask[i >> 3] >> (i & 7)) & 1));
}
function flowsOf(packed) {
  const raw = bytes(packed), view = new DataView(raw.buffer);
  return Array.from({ length: raw.length / 4 }, (_, i) => [view.getUint16(4 * i, true), view.getUint16(4 * i + 2, true)]);
}

// A picture under its grid of tokens: what is dropped is covered; lines lead to where it flows.
function tokenPicture({ image, grid: [rows, cols], kept, flows = [], rings = [], label }) {
  const [x, y] = [(i) => i % cols, (i) => Math.floor(i / cols)];
  const covered = (kept ?? []).map((stays, i) => (stays ? "" : `M${x(i)} ${y(i)}h1v1h-1z`)).join("");
  const middle = (i) => `${x(i) + 0.5} ${y(i) + 0.5}`;
  const drawn = flows.filter(([, to]) => to !== GONE).map(([from, to]) => `M${middle(from)}L${middle(to)}`).join("");
  return el("svg", { viewBox: `0 0 ${cols} ${rows}`, role: label ? "img" : null, "aria-label": label, "aria-hidden": label ? null : "true" },
    el("image", { href: image, width: cols, height: rows, preserveAspectRatio: "none" }),
    el("path", { d: covered, class: "covered" }),
    el("path", { d: drawn, class: "flow" }),
    ...rings.map(([i, r]) => el("circle", { cx: x(i) + 0.5, cy: y(i) + 0.5, r, class: "ring" })));
}

// The searched plan of each budget, from the main study, else from the examples.
function plansOf(main, examples) {
  const found = new Map(Object.entries(examples?.plans ?? {}).map(([budget, steps]) => [Number(budget), { steps }]));
  const searched = (main?.rows ?? []).filter((row) => row.method === "eos" && row.steps && row.factors.budget);
  for (const row of searched.reverse()) found.set(Number(row.factors.budget), { steps: row.steps, row }); // the first seed last
  return new Map([...found].sort(([a], [b]) => b - a));
}

function startPlan({ main, examples }) {
  const plans = plansOf(main, examples), budgets = [...plans.keys()];
  if (!budgets.length) return fill($("plan-body"), missing("No searched plan: neither studies/main.json nor examples.json is in this folder."));
  const { num_layers: layers, visual_tokens: tokens } = main ?? examples;
  const full = main?.rows.find((row) => row.method === "full");
  const state = { budget: budgets.includes(64) ? 64 : budgets[0], layer: layers - 1, item: 0 };

  function showStrip() {
    const { steps } = plans.get(state.budget);
    const kinds = unique(steps.map((step) => step.kind)).map((kind) => [KINDS[kind], `var(--${kind})`]);
    const hybrid = steps.some((step) => step.hybrid) ? [["hatched: a hybrid, coloured by the nearest corner", none]] : [];
    legend($("regimes"), [...kinds, ...hybrid]);
    chart($("strip"), (width) => planStrip(width, { steps, layers, tokens, chosen: state.layer }),
      `Tokens left after each layer at budget ${state.budget}. ${tokens} at first; ` +
      steps.map((step) => `${step.keep} after ${siteName(step.layer)} by ${step.label}`).join("; "));
  }

  function showBudget() {
    const { steps, row } = plans.get(state.budget);
    $("budget-out").textContent = `${state.budget} of ${tokens} tokens`;
    $("budget").setAttribute("aria-valuetext", `${state.budget} tokens`);
    const result = row ? `FLOPs ×${fixed(row.cost.flops_ratio, 3)}, ${fixed(row.cost.mean_tokens)} mean tokens, accuracy ${plusMinus(row.average)} %` +
      `${full ? `, full model ${plusMinus(full.average)} %` : ""} (n ${row.average.n}).` : "not evaluated in this folder.";
    fill($("plan-live"), el("b", {}, `${state.budget} tokens: `), result);
    const number = (value) => (typeof value === "number" ? fixed(value, 3) : value ?? "–");
    const omega = ["γ", "τ", "θ", "ρ", "ν"].map((letter, i) => [letter, (step) => step.omega[i], (step) => number(step.omega[i])]);
    sortable($("steps"), { caption: "Steps of the plan", rows: steps, columns: columns(
      ["after", (step) => step.layer, (step) => siteName(step.layer), true], ["tokens left", (step) => step.keep],
      ["does", (step) => step.label, null, true], ...omega, ["score", (step) => step.score, null, true]) });
    showStrip();
    showPicture();
  }

  const run = () => examples.items[state.item].runs[state.budget];
  function view(layer, withFlows) {
    const item = examples.items[state.item], count = item.grid[0] * item.grid[1];
    const step = run()?.steps.findLast((own) => own.layer <= layer);
    const kept = step && keptOf(step.kept, count);
    return { ...item, kept, left: kept ? kept.filter(Boolean).length : count, flows: withFlows && step?.layer === layer ? flowsOf(step.flows) : [] };
  }

  function showPicture() {
    if (!examples?.items.length) return;
    const item = examples.items[state.item], shown = view(state.layer, $("flows").checked);
    const where = state.layer < -1 ? "the whole picture" : `after ${siteName(state.layer)}`;
    $("layer-out").textContent = `${where}, ${shown.left} tokens`;
    $("layer").setAttribute("aria-valuetext", `${where}, ${shown.left} tokens left`);
    fill($("picture"), tokenPicture({ ...shown, label: `${item.family}, ${where}: ${shown.left} tokens left, the others covered` }));
    const frames = [-2, ...(run()?.steps ?? []).map((step) => step.layer)];
    const current = frames.findLast((layer) => layer <= state.layer);
    fill($("film"), ...frames.map((layer) => {
      const frame = view(layer, false);
      return el("button", { type: "button", "aria-pressed": String(layer === current), onclick: () => chooseLayer(layer, true) },
        tokenPicture(frame), `${layer < -1 ? "all" : siteName(layer)}: ${frame.left}`);
    }));
    const answer = (name, given) => {
      const right = given.trim() === item.answer.trim();
      return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: right ? "good" : "bad" }, `${given} ${right ? "✓ right" : "✗ wrong"}`));
    };
    fill($("answers"), el("p", { class: "question" }, item.question), el("table", { class: "answers" }, el("tbody", {},
      el("tr", {}, el("th", { scope: "row" }, "reference"), el("td", {}, item.answer)),
      answer("full model", item.full), run() && answer(`${state.budget} tokens`, run().answer))));
  }

  function chooseLayer(layer, focus) {
    state.layer = $("layer").value = layer;
    showStrip();
    showPicture();
    if (focus) $("film").querySelector("[aria-pressed=true]").focus();
  }

  const slide = () => { state.budget = budgets[$("budget").value]; showBudget(); };
  Object.assign($("budget"), { max: budgets.length - 1, value: budgets.indexOf(state.budget), oninput: slide });
  fill($("budget-ticks"), ...budgets.map((budget) => el("span", {}, String(budget))));
  Object.assign($("layer"), { max: layers - 1, value: state.layer, oninput: () => chooseLayer(Number($("layer").value), false) });
  $("flows").onchange = showPicture;
  if (examples?.items.length) {
    fill($("thumbs"), ...examples.items.map((item, place) => el("label", { class: "thumb" },
      el("input", { type: "radio", name: "picture", checked: !place, "aria-label": `${item.family}: ${item.question}`, onchange: () => { state.item = place; showPicture(); } }),
      el("img", { src: item.image, alt: "", title: item.family }))));
  } else {
    $("question").remove();
    fill($("pictures"), missing("No example pictures: examples.json is not in this folder."));
  }
  showBudget();
}

const DOES = {
  prune: "dropped tokens leave no trace", merge: "each dropped token is added to the most similar kept one",
  pool: "every kept token gets an equal share of all dropped ones", reweight: "kept tokens are scaled by their importance",
  searched: "the operator that the search found",
};
function startOperators({ examples }) {
  const own = examples?.operators;
  if (!own) return fill($("operator-views"), missing("No views of the operators: examples.json is not in this folder."));
  fill($("operator-views"), ...Object.entries(own.views).map(([name, found]) => {
    const kept = keptOf(found.kept, own.grid[0] * own.grid[1]), places = [...kept.keys()].filter((i) => kept[i]);
    const least = Math.min(...found.scales), most = Math.max(...found.scales), spread = most - least;
    const rings = spread > 0.002 ? places.map((i, place) => [i, 0.1 + (0.38 * (found.scales[place] - least)) / spread]) : [];
    const flows = flowsOf(found.flows), moved = flows.filter(([, to]) => to !== GONE).length;
    const label = `${name}: ${places.length} tokens kept; ${moved} of ${flows.length} dropped tokens go mainly to one kept token`;
    const digits = spread < 0.1 ? 3 : 2;
    const norms = `Norms of kept tokens ×${fixed(least, digits)}${spread > 0.002 ? ` to ×${fixed(most, digits)}` : ""}; lines for ${moved} of ${flows.length} dropped tokens.`;
    return el("figure", {}, tokenPicture({ ...own, kept, flows, rings, label }),
      el("figcaption", {}, el("b", {}, name), DOES[name] ? `: ${DOES[name]}` : "", `. ${norms}`));
  }));
}
