// Puts the parts together: one source of results at a time, drawn anew when another is chosen.
"use strict";

const data = JSON.parse($("data").textContent);

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (on) => {
    document.documentElement.dataset.theme = on ? "dark" : "light";
    $("theme").setAttribute("aria-pressed", String(on));
  };
  set(dark.matches);
  dark.addEventListener("change", () => set(dark.matches));
  $("theme").onclick = () => set(document.documentElement.dataset.theme !== "dark");
  const hatch = '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V7" stroke="var(--card)" stroke-width="3" stroke-opacity=".55"/></pattern>';
  const defs = el("svg", { width: 0, height: 0, "aria-hidden": "true", style: "position:absolute" });
  defs.innerHTML = `<defs>${hatch}</defs>`;
  document.body.append(defs);
}

function startContents() {
  const sections = [...document.querySelectorAll("main > section")];
  const short = { plan: "Plan", curves: "Cost", table: "Table", ablations: "Studies", trajectory: "Search", operators: "Operators", profile: "Profile", corners: "Corners", verdicts: "Claims", repeat: "Repeat" };
  fill($("contents"), ...sections.filter((section) => !section.hidden).map((section) => el("li", {}, el("a", { href: `#${section.id}` }, short[section.id]))));
}

// The best prior method at a plan's budget that costs no more, up to rounding of counts.
const bestPrior = (main, own) => main.rows.filter((row) => row.ahead && row.factors.budget === own.factors.budget && row.cost.flops_ratio <= own.cost.flops_ratio * 1.005)
  .sort((a, b) => accuracyOf(b) - accuracyOf(a))[0];

function showHead(source) {
  const main = source.studies.find((study) => study.name === "main") ?? source.studies[0];
  const about = source.settings[0] ?? {};
  $("setting").textContent = [`${source.backbone} ${source.fingerprint && `(${source.fingerprint})`}`, about.layers && `${about.layers} layers`, about["visual tokens"] && `${about["visual tokens"]} visual tokens`,
    about.task && `task ${about.task}, ${about["questions a family"]} questions a family`, source.programme?.quick && "quick programme: few questions, wide errors"].filter(Boolean).join(" · ");
  const full = main?.rows.find((row) => row.method === "full");
  const own = main?.rows.filter((row) => row.method === "eos").sort((a, b) => b.cost.final_tokens - a.cost.final_tokens) ?? [];
  const chosen = own.find((row) => row.factors.budget === 64) ?? own[0], least = own.at(-1);
  const figure = (name, value, note) => el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, note)));
  const best = chosen && bestPrior(main, chosen);
  fill($("highlights"), full && figure("full model", `${fixed(full.average.accuracy)} %`, `± ${fixed(full.average.stderr)}, n ${full.average.n}`),
    chosen && figure(`searched, ${chosen.cost.final_tokens} tokens`, `${fixed(chosen.average.accuracy)} %`, `± ${fixed(chosen.average.stderr)}, FLOPs ×${fixed(chosen.cost.flops_ratio, 3)}`),
    best && figure(`ahead of ${best.method}`, `${signed(best.ahead[0])} points`, `95% interval ${signed(best.ahead[1])} to ${signed(best.ahead[2])}; the best prior method at no more FLOPs`),
    least && least !== chosen && figure(`searched, ${least.cost.final_tokens} tokens`, `${fixed(least.average.accuracy)} %`, `± ${fixed(least.average.stderr)}, FLOPs ×${fixed(least.cost.flops_ratio, 3)}`));
  $("highlights").hidden = !full;
}

function startCurves(main) {
  if (!main) return fill($("curves"), $("curves-h"), missing("No comparison of methods: studies/main.json is not in this folder."));
  const full = main.rows.find((row) => row.method === "full"), rows = main.rows.filter((row) => row !== full);
  const prior = unique(rows.filter((row) => !row.searched).map((row) => row.method)).sort(naturally);
  options($("method"), [["", "none"], ...prior.map((method) => [method, method])]);
  const own = rows.find((row) => row.method === "eos" && row.factors.budget === 64) ?? rows.find((row) => row.method === "eos");
  $("method").value = (own && bestPrior(main, own)?.method) ?? prior[0] ?? "";
  const show = () => {
    chart($("curve"), (width) => costCurves(width, { rows, full, cost: $("cost").value, highlighted: $("method").value }),
      { label: `Accuracy of ${prior.length + 1} methods against cost`, description: "All values are in the table below" });
    legend($("curve-legend"), [["found by search", "var(--accent)"], ...($("method").value ? [[$("method").value, "var(--s0)"]] : []), ["other prior methods", "var(--none)"]]);
  };
  $("cost").onchange = $("method").onchange = show;
  show();
}

const resultColumns = (study, { families = false } = {}) => columns(
  ["run", (row) => row.name, null, true],
  ["accuracy, %", (row) => row.average.accuracy, (row) => plusMinus(row.average)],
  ["to full", (row) => row.average.difference?.[0], (row) => (row.average.difference ? `${signed(row.average.difference[0])} ± ${fixed(row.average.difference[1])}` : "–")],
  ...(study.rows.some((row) => row.ahead) ? [["eos ahead by, 95%", (row) => row.ahead?.[0], (row) => (row.ahead ? `${signed(row.ahead[0])} (${signed(row.ahead[1])} to ${signed(row.ahead[2])})` : "–")]] : []),
  ["n", (row) => row.average.n], ["FLOPs", (row) => row.cost.flops_ratio, (row) => fixed(row.cost.flops_ratio, 3)],
  ["mean tokens", (row) => row.cost.mean_tokens, (row) => fixed(row.cost.mean_tokens)], ["final tokens", (row) => row.cost.final_tokens],
  ...(families ? Object.keys(study.families).map((name) => [name, (row) => row.families[name][0], (row) => `${fixed(row.families[name][0])} ± ${fixed(row.families[name][1])}`]) : []));

function startTable(main) {
  if (!main) return fill($("table"), $("table-h"), missing("No table of methods: studies/main.json is not in this folder."));
  const budgets = unique(main.rows.map((row) => row.factors.budget).filter(Boolean)).sort((a, b) => b - a);
  options($("table-budget"), [...budgets.map((budget) => [budget, `${budget} tokens`]), ["", "all"]]);
  if (budgets.includes(64)) $("table-budget").value = 64;
  const show = () => {
    const wanted = $("table-budget").value;
    const rows = main.rows.filter((row) => !wanted || row.method === "full" || String(row.factors.budget) === wanted);
    const ordered = [...rows].sort((a, b) => (b.method === "full") - (a.method === "full") || (b.factors.budget ?? 0) - (a.factors.budget ?? 0) || accuracyOf(b) - accuracyOf(a));
    sortable($("main-table"), { caption: `${main.title}${wanted ? `: ${wanted} tokens` : ""}`, rows: ordered, columns: resultColumns(main, { families: $("families").checked }), mark: (row) => row.searched, tall: true });
  };
  $("table-budget").onchange = $("families").onchange = show;
  show();
}

function startStudies(source) {
  const others = source.studies.filter((study) => study.name !== "main");
  if (!others.length) return fill($("studies"), missing("No further studies are in this folder."));
  const cards = others.map((study) => {
    const found = studyCharts(study), places = found.map(() => el("div", { class: "chart" })), table = el("div");
    const figures = found.map((own, i) => (found.length > 1 ? el("figure", {}, el("figcaption", {}, own.title), places[i]) : places[i]));
    const colours = el("ul", { class: "legend" });
    legend(colours, found.find((own) => own.legend?.length)?.legend ?? []);
    const details = el("details", {}, el("summary", {}, "Values"), table);
    sortable(table, { caption: study.title, rows: study.rows, columns: resultColumns(study), tall: true });
    const card = el("article", { class: found.length > 1 ? "study wide" : "study", "aria-label": study.title }, el("h3", {}, study.title), el("p", { class: "where" }, [study.name, ...study.labels].join(" · ")),
      el("div", { class: found.length > 1 ? "facets" : null }, ...figures), colours.children.length ? colours : null, details);
    return { card, draw: () => found.forEach((own, i) => chart(places[i], own.draw, { label: `${study.title}${own.title ? `: ${own.title}` : ""}`, description: "The values are in the table that follows" })) };
  });
  fill($("studies"), ...cards.map((own) => own.card));
  cards.forEach((own) => own.draw());
}

function startTrajectory(source) {
  const own = source.trajectory, steps = own?.steps ?? [];
  $("trajectory-body").hidden = !steps.length;
  if (!own) return fill($("stages"), missing("No course of a search: trajectory.json is not in this folder."));
  const stages = own.stages.map((stage) => ({ ...stage, left: stage.steps.map((step) => `${siteName(step.layer)}: ${step.keep}`).join(", ") }));
  if (stages.length) sortable($("stages"), { caption: "The default search, stage by stage: disagreement of its best plan with the full model", rows: stages,
    columns: columns(["stage", (row) => row.name, null, true], ["budget", (row) => row.budget], ["plans tried", (row) => row.tried], ["disagreement", (row) => row.disagreement, (row) => `${fixed(row.disagreement, 4)} ± ${fixed(row.stderr, 4)}`],
      ["passes so far", (row) => row.passes, (row) => fixed(row.passes, 0)], ["tokens left after", (row) => row.left, null, true]) });
  if (!steps.length) return;
  options($("quantity"), Object.keys(own.theta).map((name) => [name, symbol(name)]));
  $("quantity").value = "gamma" in own.theta ? "gamma" : Object.keys(own.theta)[0];
  const names = Object.keys(own.losses);
  legend($("losses-legend"), names.map((name, place) => [symbol(name), series(place)]));
  const show = () => {
    const at = Number($("step").value), name = $("quantity").value, values = own.theta[name], all = values.flat().map(Number).filter(Number.isFinite);
    $("step-out").textContent = `${steps[at]} of ${steps.at(-1)}`;
    $("bars-h").textContent = `${symbol(name)} at each layer, step ${steps[at]} (dashed: at the start)`;
    chart($("bars"), (width) => stepBars(width, { sites: own.sites, values: values[at], before: values[0], range: [Math.min(0, ...all), Math.max(1e-3, ...all)], name: symbol(name) }),
      { label: `${symbol(name)} at each layer after step ${steps[at]}`, description: own.sites.map((layer, i) => `${siteName(layer)} ${values[at][i]}`).join(", ") });
    chart($("losses"), (width) => lossLines(width, { steps, losses: own.losses, at: steps[at] }),
      { label: `Terms of the loss, step ${steps[at]}`, description: names.map((term) => `${term} ${own.losses[term][at]}`).join(", ") });
  };
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; $("play").textContent = "Play"; };
  const advance = (by) => {
    $("step").value = Math.min(Number($("step").value) + by, steps.length - 1);
    show();
    if (Number($("step").value) === steps.length - 1) stop();
  };
  $("play").onclick = () => {
    if (timer) return stop();
    if (Number($("step").value) === steps.length - 1) $("step").value = 0;
    // without motion: ten still pictures, one a second
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const by = Math.max(1, Math.ceil(steps.length / (still ? 10 : 120)));
    timer = setInterval(() => advance(by), still ? 1000 : 100);
    $("play").textContent = "Pause";
  };
  Object.assign($("step"), { max: steps.length - 1, value: 0, oninput: () => { stop(); show(); } });
  $("quantity").onchange = show;
  show();
}

function startRest(source) {
  const curves = source.profile;
  if (curves?.length) {
    chart($("profile-chart"), (width) => profileCurves(width, curves).svg, { label: "Disagreement with the full model against tokens kept, by layer", description: "The values are in the table that follows" });
    legend($("profile-legend"), profileCurves(600, curves).entries);
    const counts = curves[0].counts;
    sortable($("profile-table"), { caption: "Disagreement when tokens are dropped after one layer only", rows: curves, columns: columns(["after", (row) => row.layer, (row) => siteName(row.layer), true], ["best score", (row) => row.score, null, true],
      ...counts.map((count, i) => [`keep ${count}`, (row) => row.means[i], (row) => `${fixed(row.means[i], 3)} ± ${fixed(row.errors[i], 3)}`])) });
  } else fill($("profile"), $("profile-h"), missing("No profile: profile.json is not in this folder."));
  if (source.verify) sortable($("corners-table"), { caption: "Largest discrepancy between the unified operator and independent references", rows: source.verify, columns: columns(["corner", (row) => row.corner, null, true], ["check", (row) => row.of, null, true], ["precision", (row) => row.dtype, null, true], ["cases", (row) => row.cases],
    ["discrepancy", (row) => Number(row.discrepancy), (row) => Number(row.discrepancy).toExponential(1)], ["tolerance", (row) => row.tolerance, (row) => row.tolerance.toExponential(1)], ["within", (row) => (row.passed ? "yes" : "no"), null, true]) });
  else fill($("corners-table"), missing("No verification: verify.json is not in this folder."));
  const verdicts = source.programme?.verdicts ?? [];
  $("verdicts").hidden = !verdicts.length;
  const holds = (value) => (value === true ? "holds" : value === false ? "does not hold" : "undecided");
  fill($("verdict-list"), ...verdicts.map((own) => el("li", { "data-holds": String(own.holds) }, el("b", {}, `${own.claim}: ${holds(own.holds)}`), el("p", {}, own.text))));
}

function showRepeat(source) {
  const programme = source.programme, environment = programme?.environment ?? source.studies[0]?.environment ?? {};
  const commands = unique([...(programme?.commands ?? []), ...source.studies.flatMap((study) => study.commands)]);
  const git = environment.git;
  const facts = [["commit", git && `${git.commit}${git.dirty ? ", with changes" : ""}`], ["eos", environment.eos], ["Python", environment.python],
    ["packages", Object.entries(environment.packages ?? {}).map(([name, version]) => `${name} ${version}`).join(", ")],
    ["machine", [environment.system, environment.device, environment.dtype].filter(Boolean).join(", ")],
    ["seeds", unique([environment.seed, ...source.studies.map((study) => study.seed)].filter((seed) => seed != null)).join(", ")],
    ...source.settings.map((own) => ["questions", `${own.task}, split ${own.split}, seed ${own.seed}, ${own["questions a family"]} a family: ${own.families}`])].filter(([, value]) => value);
  const pieces = el("div");
  if (programme) sortable(pieces, { caption: "Pieces of the programme", rows: programme.pieces, tall: true, columns: columns(["piece", (row) => row.name, null, true], ["file", (row) => row.file, null, true], ["seconds", (row) => row.seconds, (row) => fixed(row.seconds)], ["inputs", (row) => row.inputs, null, true]) });
  fill($("repeat-body"), commands.length ? el("pre", { tabindex: "0", "aria-label": "Commands" }, commands.join("\n")) : missing("No commands: programme.json is not in this folder."),
    el("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])),
    programme ? el("details", {}, el("summary", {}, "Pieces, times and inputs"), pieces) : null);
}

const template = $("main").innerHTML;
function show(place) {
  charts.clear();
  $("main").innerHTML = template; // the page's own markup, without data
  const source = data.sources[place], main = source.studies.find((study) => study.name === "main");
  showHead(source);
  startPlan(source);
  startCurves(main);
  startTable(main);
  startStudies(source);
  startTrajectory(source);
  startOperators(source);
  startRest(source);
  showRepeat(source);
  startContents();
}

startTheme();
options($("source"), data.sources.map((source, place) => [place, `${source.backbone} ${source.fingerprint}`]));
$("which").hidden = data.sources.length < 2;
$("source").onchange = () => show(Number($("source").value));
show(0);
