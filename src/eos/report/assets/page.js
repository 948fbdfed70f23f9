// Puts the parts together: one source of results at a time, drawn anew when another is chosen.
"use strict";

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (on) => {
    document.documentElement.dataset.theme = on ? "dark" : "light";
    $("theme").setAttribute("aria-pressed", String(on));
  };
  set(dark.matches);
  dark.onchange = () => set(dark.matches);
  $("theme").onclick = () => set(document.documentElement.dataset.theme !== "dark");
}

function showHead(source) {
  $("setting").textContent = source.about.join(" · ");
  const figure = ([name, value, note]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, note)));
  fill($("highlights"), ...source.highlights.map(figure));
  $("highlights").hidden = !source.highlights.length;
}

const COSTS = { flops_ratio: "FLOPs, relative to the full model", mean_tokens: "mean tokens entering a layer", final_tokens: "final tokens" };
function startCurves({ main, rival }) {
  if (!main) return fill($("curves"), $("curves-h"), missing("No comparison of methods: studies/main.json is not in this folder."));
  const full = main.rows.find((row) => row.method === "full"), rows = main.rows.filter((row) => row !== full);
  const prior = unique(rows.filter((row) => !row.searched).map((row) => row.method)).sort(naturally);
  options($("cost"), Object.entries(COSTS));
  options($("method"), [["", "none"], ...prior.map((method) => [method, method])]);
  $("method").value = rival ?? "";
  const show = () => {
    const cost = $("cost").value, highlighted = $("method").value;
    chart($("curve"), (width) => costCurves(width, { rows, full, cost, costLabel: COSTS[cost], highlighted }),
      `Accuracy of ${unique(rows.map((row) => row.method)).length} methods against ${COSTS[cost]}. All values are in the table below.`);
    legend($("curve-legend"), [["found by search", accent], ...(highlighted ? [[highlighted, series(0)]] : []), ["other prior methods", none]]);
  };
  $("cost").onchange = $("method").onchange = show;
  show();
}

function resultColumns(study, families = []) {
  const ahead = (row) => (row.ahead ? `${signed(row.ahead[0])} (${signed(row.ahead[1])} to ${signed(row.ahead[2])})` : "–");
  const toFull = ({ average: { difference } }) => (difference ? `${signed(difference[0])} ± ${fixed(difference[1])}` : "–");
  return columns(["run", (row) => row.name, null, true], ["accuracy, %", accuracy, (row) => plusMinus(row.average)],
    ["to full", (row) => row.average.difference?.[0], toFull],
    ...(study.rows.some((row) => row.ahead) ? [["eos ahead by, 95%", (row) => row.ahead?.[0], ahead]] : []),
    ["n", (row) => row.average.n], ["FLOPs", (row) => row.cost.flops_ratio, (row) => fixed(row.cost.flops_ratio, 3)],
    ["mean tokens", (row) => row.cost.mean_tokens, (row) => fixed(row.cost.mean_tokens)], ["final tokens", (row) => row.cost.final_tokens],
    ...families.map((name) => [name, (row) => row.families[name][0], (row) => row.families[name].map((x) => fixed(x)).join(" ± ")]));
}

function startTable({ main }) {
  if (!main) return fill($("table"), $("table-h"), missing("No table of methods: studies/main.json is not in this folder."));
  const budgets = unique(main.rows.map((row) => row.factors.budget).filter(Boolean)).sort((a, b) => b - a);
  options($("table-budget"), [...budgets.map((budget) => [budget, `${budget} tokens`]), ["", "all"]]);
  if (budgets.includes(64)) $("table-budget").value = 64;
  const first = (row) => (row.method === "full" ? Infinity : row.factors.budget ?? 0);
  const show = () => {
    const wanted = $("table-budget").value;
    const rows = main.rows.filter((row) => !wanted || row.method === "full" || String(row.factors.budget) === wanted);
    rows.sort((a, b) => (first(a) === first(b) ? accuracy(b) - accuracy(a) : first(b) - first(a)));
    const families = $("families").checked ? main.families : [];
    const caption = `${main.title}${wanted ? `: ${wanted} tokens` : ""}`;
    sortable($("main-table"), { caption, rows, columns: resultColumns(main, families), mark: (row) => row.searched, tall: true });
  };
  $("table-budget").onchange = $("families").onchange = show;
  show();
}

function studyCard(study) {
  const found = studyCharts(study), several = found.length > 1;
  const places = found.map(() => el("div", { class: "chart" })), table = el("div"), colours = el("ul", { class: "legend" });
  const figures = found.map((own, i) => (several ? el("figure", {}, el("figcaption", {}, own.title), places[i]) : places[i]));
  const entries = found.find((own) => own.legend?.length)?.legend ?? [];
  legend(colours, entries);
  sortable(table, { caption: study.title, rows: study.rows, columns: resultColumns(study), tall: true });
  const card = el("article", { class: several ? "study wide" : "study" }, el("h3", {}, study.title),
    el("p", { class: "where" }, [study.name, ...study.labels, `n ${study.rows[0]?.average.n}`].join(" · ")), el("div", { class: several ? "facets" : null }, ...figures),
    entries.length ? colours : null, el("details", {}, el("summary", {}, `Values of ${study.name}`), table));
  const label = (own) => `${study.title}${own.title ? `: ${own.title}` : ""}. The values are in the table that follows.`;
  return { card, draw: () => found.forEach((own, i) => chart(places[i], own.draw, label(own))) };
}

function startStudies(source) {
  const cards = source.studies.filter((study) => study !== source.main).map(studyCard);
  fill($("studies"), ...(cards.length ? cards.map((own) => own.card) : [missing("No further studies are in this folder.")]));
  cards.forEach((own) => own.draw());
}

function startStages(stages) {
  const left = (row) => row.steps.map((step) => `${siteName(step.layer)}: ${step.keep}`).join(", ");
  sortable($("stages"), { caption: "The default search, stage by stage: disagreement of its best plan with the full model", rows: stages, columns: columns(
    ["stage", (row) => row.name, null, true], ["budget", (row) => row.budget], ["plans tried", (row) => row.tried],
    ["disagreement", (row) => row.disagreement, (row) => `${fixed(row.disagreement, 4)} ± ${fixed(row.stderr, 4)}`],
    ["passes so far", (row) => row.passes, (row) => fixed(row.passes, 0)], ["tokens left after", left, null, true]) });
}

// Advances a slider until its end; without motion in ten still pictures, one a second.
function player(slider, button, show) {
  let timer = null;
  const atEnd = () => Number(slider.value) === Number(slider.max);
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "Play"; };
  const advance = (by) => { slider.value = Number(slider.value) + by; show(); if (atEnd()) stop(); };
  button.onclick = () => {
    if (timer) return stop();
    if (atEnd()) slider.value = 0;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const by = Math.max(1, Math.ceil(Number(slider.max) / (still ? 10 : 120)));
    timer = setInterval(() => (slider.isConnected ? advance(by) : stop()), still ? 1000 : 100);
    button.textContent = "Pause";
  };
  slider.oninput = () => { stop(); show(); };
}

function startTrajectory({ trajectory: own }) {
  if (!own) return fill($("trajectory-body"), missing("No course of a search: trajectory.json is not in this folder."));
  if (own.stages.length) startStages(own.stages);
  const { steps, sites, theta, losses } = own;
  if (!steps.length) return fill($("trajectory-body"), missing("No descent is in trajectory.json."));
  options($("quantity"), Object.keys(theta).map((name) => [name, symbol(name)]));
  if (theta.gamma) $("quantity").value = "gamma";
  legend($("losses-legend"), Object.keys(losses).map((name, place) => [symbol(name), series(place)]));
  const show = () => {
    const i = Number($("step").value), at = steps[i], values = theta[$("quantity").value], name = symbol($("quantity").value);
    const all = values.flat().map(Number).filter(Number.isFinite), range = [Math.min(0, ...all), Math.max(1e-3, ...all)];
    $("step-out").textContent = `${at} of ${steps.at(-1)}`;
    $("bars-h").textContent = `${name} at each layer, step ${at} (dashed: at the start)`;
    chart($("bars"), (width) => stepBars(width, { sites, values: values[i], first: values[0], range, name }),
      `${name} at each layer after step ${at}: ${sites.map((layer, place) => `${siteName(layer)} ${values[i][place]}`).join(", ")}`);
    chart($("losses"), (width) => lossLines(width, { steps, losses, at }),
      `Terms of the loss at step ${at}: ${Object.keys(losses).map((term) => `${symbol(term)} ${losses[term][i]}`).join(", ")}`);
  };
  Object.assign($("step"), { max: steps.length - 1, value: 0 });
  player($("step"), $("play"), show);
  $("quantity").onchange = show;
  show();
}

function startProfile({ profile: curves }) {
  if (!curves?.length) return fill($("profile"), $("profile-h"), missing("No profile: profile.json is not in this folder."));
  chart($("profile-chart"), (width) => profileCurves(width, curves), "Disagreement with the full model against tokens kept, by layer. The values are in the table that follows.");
  legend($("profile-legend"), curves.map((curve, place) => [siteName(curve.layer), profileColor(place, curves.length)]));
  const cells = curves[0].counts.map((count, i) => [`keep ${count}`, (row) => row.means[i], (row) => `${fixed(row.means[i], 3)} ± ${fixed(row.errors[i], 3)}`]);
  sortable($("profile-table"), { caption: "Disagreement when tokens are dropped after one layer only", rows: curves,
    columns: columns(["after", (row) => row.layer, (row) => siteName(row.layer), true], ["best score", (row) => row.score, null, true], ...cells) });
}

function startCorners({ verify }) {
  if (!verify) return fill($("corners-table"), missing("No verification: verify.json is not in this folder."));
  const power = (key) => [key, (row) => Number(row[key]), (row) => Number(row[key]).toExponential(1)];
  sortable($("corners-table"), { caption: "Largest discrepancy between the unified operator and independent references", rows: verify, columns: columns(
    ["corner", (row) => row.corner, null, true], ["check", (row) => row.of, null, true], ["precision", (row) => row.dtype, null, true],
    ["cases", (row) => row.cases], power("discrepancy"), power("tolerance"), ["within", (row) => (row.passed ? "yes" : "no"), null, true]) });
}

function showVerdicts({ verdicts }) {
  $("verdicts").hidden = !verdicts.length;
  const word = { true: "holds", false: "does not hold" };
  fill($("verdict-list"), ...verdicts.map((own) =>
    el("li", { "data-holds": String(own.holds) }, el("b", {}, `${own.claim}: ${word[own.holds] ?? "undecided"}`), el("p", {}, own.text))));
}

function showRepeat({ commands, facts, pieces }) {
  const table = el("div");
  if (pieces.length) sortable(table, { caption: "Pieces of the programme", rows: pieces, tall: true, columns: columns(["piece", (row) => row.name, null, true],
    ["file", (row) => row.file, null, true], ["seconds", (row) => row.seconds, (row) => fixed(row.seconds)], ["inputs", (row) => row.inputs, null, true]) });
  const list = facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
  fill($("repeat-body"), el("pre", { tabindex: "0", role: "region", "aria-label": "Commands" }, commands.join("\n")), el("dl", { class: "facts" }, ...list),
    pieces.length ? el("details", {}, el("summary", {}, "Pieces, times and inputs"), table) : null);
}

const SHORT = { plan: "Plan", curves: "Cost", table: "Table", ablations: "Studies", trajectory: "Search", operators: "Operators", profile: "Profile", corners: "Corners", verdicts: "Claims", repeat: "Repeat" };
function showContents() {
  const sections = [...document.querySelectorAll("main > section")].filter((section) => !section.hidden);
  fill($("contents"), ...sections.map(({ id }) => el("li", {}, el("a", { href: `#${id}` }, SHORT[id]))));
}

const { sources } = JSON.parse($("data").textContent);
const template = $("main").innerHTML; // before anything is drawn: the page's own markup, without data
function show(found) {
  const source = { ...found, main: found.studies.find((study) => study.name === "main") };
  charts.clear();
  $("main").innerHTML = template;
  const parts = [showHead, startPlan, startCurves, startTable, startStudies, startTrajectory, startOperators, startProfile, startCorners, showVerdicts, showRepeat, showContents];
  parts.forEach((part) => part(source));
}

startTheme();
options($("source"), sources.map((source, place) => [place, source.about.join(" · ")]));
$("which").hidden = sources.length < 2;
$("source").onchange = () => show(sources[$("source").value]);
show(sources[0]);
