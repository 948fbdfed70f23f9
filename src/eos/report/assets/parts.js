// Elements, tables, legends and charts that fit their place. Text from the data goes into text nodes only.
"use strict";

const $ = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const space = ["svg", "image", "path", "circle", "title"].includes(tag) && "http://www.w3.org/2000/svg";
  const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

const fill = (place, ...children) => place.replaceChildren(...children.filter((child) => child != null));
const missing = (what) => el("p", { class: "missing" }, what);
const options = (select, pairs) => fill(select, ...pairs.map(([value, text]) => el("option", { value }, text)));
const unique = (values) => [...new Set(values)];
const naturally = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));

const fixed = (value, digits = 1) => (Math.abs(value) < 0.5 * 10 ** -digits ? (0).toFixed(digits) : value.toFixed(digits).replace("-", "−"));
const signed = (value) => (Math.round(value * 10) > 0 ? "+" : "") + fixed(value);
const plusMinus = (own) => `${fixed(own.accuracy)} ± ${fixed(own.stderr)}`;
const siteName = (layer) => (layer < 0 ? "input" : `layer ${layer}`);
const SYMBOLS = { gamma: "γ", tau: "τ", theta: "θ", rho: "ρ", nu: "ν", lambda_a: "λ_a" };
const symbol = (name) => SYMBOLS[name] ?? String(name).replaceAll("_", " ");

// A list of colours with their meaning.
function legend(place, entries) {
  fill(place, ...entries.map(([text, color]) => el("li", {}, el("i", { style: `background:${color}` }), text)));
}

// A table whose columns sort by click or key. A column: head, value (to sort by), text, num.
function sortable(place, { caption, columns, rows, mark = () => false, tall = false }) {
  let by = null, down = false;
  const body = el("tbody");
  const heads = columns.map((column) => {
    const button = el("button", { type: "button", onclick: () => sort(column) }, column.head);
    return el("th", { scope: "col", class: column.num ? "num" : null, "aria-sort": "none" }, button);
  });
  const cells = (row) => columns.map((column, place) =>
    el(place ? "td" : "th", { scope: place ? null : "row", class: column.num ? "num" : null }, String((column.text ?? column.value)(row))));
  const show = (shown) => fill(body, ...shown.map((row) => el("tr", { class: mark(row) ? "searched" : null }, ...cells(row))));
  function sort(column) {
    down = by === column ? !down : Boolean(column.num);
    by = column;
    columns.forEach((other, place) => heads[place].setAttribute("aria-sort", other !== by ? "none" : down ? "descending" : "ascending"));
    const known = (row) => { const value = column.value(row); return value != null && value === value; };
    const order = (a, b) => (known(b) - known(a)) || (known(a) ? naturally(column.value(a), column.value(b)) * (down ? -1 : 1) : 0);
    show([...rows].sort(order));
  }
  show(rows);
  const table = el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...heads)), body);
  fill(place, el("div", { class: tall ? "scroll tall" : "scroll", role: "region", tabindex: "0", "aria-label": caption }, table));
}

const columns = (...list) => list.map(([head, value, text, left]) => ({ head, value, text, num: !left }));

// Charts are drawn for the width of their place, and again when it changes.
const charts = new Map();
function chart(place, draw, label) {
  charts.set(place, () => {
    const width = place.clientWidth - parseFloat(getComputedStyle(place).paddingLeft) * 2;
    if (width <= 0) return;
    const svg = draw(Math.max(220, Math.floor(width)));
    svg.querySelectorAll("[aria-label]").forEach((mark) => mark.removeAttribute("aria-label")); // one picture, one name
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
    fill(place, svg);
  });
  charts.get(place)();
}
const redraw = () => charts.forEach((draw, place) => (place.isConnected ? draw() : charts.delete(place)));
let drawnFor = 0;
new ResizeObserver(() => {
  if (document.body.clientWidth === drawnFor) return;
  drawnFor = document.body.clientWidth;
  redraw();
}).observe(document.body);
