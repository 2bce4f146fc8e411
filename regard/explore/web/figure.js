// One picture of attention, of one run: what is chosen of it, where everything stands, and how it is painted.

import { range } from "./frame.js";
import { COLOURS, breadth, paints } from "./drawing.js";
import { inOrder, matrix, upTo } from "./numbers.js";

const SLANT = Math.PI / 3, MOST = 120;

// What is chosen in all figures alike: a part's name, how several heads are joined, tokens or words, matrix or lines.
export const choice = {part: "", combine: "mean", unit: "", view: "matrix"};

// layers and heads: those chosen, from 1; rows and columns: names chosen, from 0; row and column: what is pointed at.
export function figureOf(run) {
  return {run, part: null, layers: new Set(), heads: new Set(), rows: new Set(), columns: new Set(), row: -1, column: -1,
    kept: {}, plan: null};
}

// The part that is chosen, or where the run has none of that name its first.
export function follow(figure) {
  const part = figure.run.parts.find((one) => one.name === choice.part) || figure.run.parts[0];
  if (part === figure.part) return false;
  figure.part = part;
  [figure.layers, figure.heads] = part.shape.slice(0, 2).map(upTo);
  figure.kept = {};
  nowhere(figure);
  return true;
}
export function nowhere(figure) {
  figure.row = figure.column = -1;
  figure.rows.clear(); figure.columns.clear();
}

export const names = (side) => choice.unit === "words" ? side.words : side.names;
export const figures = (figure, weight) => weight.toFixed(figure.part.bits === 8 ? 2 : 4);

// The matrix that is shown, kept until something else is chosen: {cells, top, count}.
export function shown(figure, layers = figure.layers, heads = figure.heads, unit = choice.unit) {
  const key = [unit, choice.combine, inOrder(layers), inOrder(heads)].join("/");
  if (!figure.kept[key]) {
    if (Object.keys(figure.kept).length > 64) figure.kept = {};
    const {cells, count} = matrix(figure.part, layers, heads, choice.combine, unit);
    let top = 0;
    for (let i = 0; i < cells.length; i++) if (cells[i] > top) top = cells[i];
    figure.kept[key] = {cells, count, top: top || 1};
  }
  return figure.kept[key];
}

export function heading(figure, title) {
  const [L, H] = figure.part.shape, {layers, heads} = figure;
  const several = layers.size === L ? choice.combine : `${choice.combine} of ${inOrder(layers).join(", ")}`;
  return `Layer: ${layers.size === 1 ? [...layers][0] : several} Attention: ` +
    title.replace(/ ?[(（].*/, "") + (heads.size < H ? ` Head: ${inOrder(heads).join(", ")}` : "");
}

// Where everything stands in a picture of at most this width.
export function planned(figure, across) {
  const rows = names(figure.part.rows), columns = names(figure.part.columns), T = rows.length, S = columns.length;
  if (choice.view === "lines") {
    const step = 22, left = breadth(rows) + 16, right = breadth(columns) + 16;
    const width = Math.max(Math.min(across, 760), left + right + 120);
    return {rows, columns, T, S, step, x1: left, x2: width - right, width, height: step * Math.max(T, S) + 16, above: 8,
      least: Math.max(T, S) > MOST ? 0.1 : 0.02, labelled: true};
  }
  const labelled = Math.max(T, S) <= MOST;
  const left = labelled ? breadth(rows) + 16 : 8;
  const above = labelled ? Math.ceil(breadth(columns) * Math.sin(SLANT)) + 20 : 8;
  const lean = labelled ? Math.ceil(breadth(columns.slice(-3)) * Math.cos(SLANT)) + 12 : 8;
  const room = (across - left - lean) / S;
  const tall = (innerHeight * 0.52 - above) / T;  // all of a short sentence is seen at once
  const side = labelled ? Math.max(16, Math.min(40, Math.floor(Math.min(room, Math.max(tall, 22))))) :
    Math.max(1, Math.min(8, room));
  return {rows, columns, T, S, side, left, above, labelled, width: left + S * side + lean, height: above + T * side + 8};
}

// -- gold links -------------------------------------------------------------------------------------------------------

// The cells that people linked: [row, column, whether it is sure]; of cross-attention between words.
function goldOf({run, part}) {
  if (!run.gold || part.name !== "cross" || choice.unit !== "words") return [];
  const sure = new Set(run.gold.sure.map(String));
  return run.gold.possible.map((link) =>
    [part.rows.numbers.indexOf(link[1]), part.columns.numbers.indexOf(link[0]), sure.has(String(link))])
    .filter(([t, s]) => t >= 0 && s >= 0);
}

// The alignment error rate, in percent, of each target word with the source word that it looks at most; null without gold.
export function errorRate(figure) {
  const {run, part} = figure;
  if (!run.gold || part.name !== "cross") return null;
  const {cells} = shown(figure, figure.layers, figure.heads, "words"), S = part.columns.words.length;
  const [sure, possible] = [run.gold.sure, run.gold.possible].map((links) => new Set(links.map(String)));
  let links = 0, hits = 0;
  part.rows.numbers.forEach((word, t) => {
    if (word < 0) return;
    let best = -1;
    part.columns.numbers.forEach((other, s) => {
      if (other >= 0 && (best < 0 || cells[t * S + s] > cells[t * S + best])) best = s;
    });
    if (best < 0 || !(cells[t * S + best] > 0)) return;
    const link = String([part.columns.numbers[best], word]);
    links += 1;
    hits += sure.has(link) + possible.has(link);
  });
  return 100 * (1 - hits / (links + sure.size));
}

// -- painting ---------------------------------------------------------------------------------------------------------

export function paint(figure, to) {
  to.rect(0, 0, figure.plan.width, figure.plan.height, paints.ink.paper);
  (choice.view === "lines" ? paintLines : paintMatrix)(figure, to);
}

const inkOf = (figure, which, place) =>
  place === figure[which] || figure[which + "s"].has(place) ? paints.ink.mark : paints.ink.text;

function paintMatrix(figure, to) {
  const {rows, columns, T, S, side, left, above, labelled} = figure.plan, {ink} = paints;
  to.cells(left, above, side, shown(figure), T, S);
  if (labelled) {
    rows.forEach((text, t) => to.text(text, left - 8, above + (t + 0.5) * side, inkOf(figure, "row", t), "right"));
    columns.forEach((text, s) =>
      to.text(text, left + (s + 0.5) * side, above - 10, inkOf(figure, "column", s), "left", -SLANT));
  }
  for (const t of figure.rows) to.rect(left - 5, above + t * side + 1, 3, side - 2, ink.mark);
  for (const s of figure.columns) to.rect(left + s * side + 1, above - 5, side - 2, 3, ink.mark);
  for (const [t, s, sure] of goldOf(figure)) to.frame(left + s * side + 2, above + t * side + 2, side - 4, side - 4,
    sure ? ink.gold : ink.soft);
  if (figure.row >= 0 && figure.column >= 0) {
    const wide = Math.max(side, 4);
    to.frame(left + figure.column * side, above + figure.row * side, wide, wide, ink.mark);
  }
}

function paintLines(figure, to) {
  const {rows, columns, T, S, step, x1, x2, above, least} = figure.plan, middle = (i) => above + (i + 0.5) * step;
  for (const head of inOrder(figure.heads)) {
    const cells = shown(figure, figure.layers, new Set([head])).cells, colour = COLOURS[(head - 1) % COLOURS.length];
    for (let t = 0; t < T; t++) {
      if (figure.row >= 0 && t !== figure.row) continue;
      for (let s = 0; s < S; s++) {
        if (figure.column >= 0 && s !== figure.column) continue;
        const weight = cells[t * S + s];
        if (weight >= least) to.line(x1, middle(t), x2, middle(s), colour, Math.min(weight, 1));
      }
    }
  }
  rows.forEach((text, t) => to.text(text, x1 - 8, middle(t), inkOf(figure, "row", t), "right"));
  columns.forEach((text, s) => to.text(text, x2 + 8, middle(s), inkOf(figure, "column", s), "left"));
  for (const t of figure.rows) to.rect(x1 - 5, middle(t) - 8, 3, 16, paints.ink.mark);
  for (const s of figure.columns) to.rect(x2 + 2, middle(s) - 8, 3, 16, paints.ink.mark);
}

// -- what is read and pointed at --------------------------------------------------------------------------------------

// The weights of the chosen rows and columns, added up over the chosen layers and heads: null without a choice of names.
export function total(figure) {
  const {rows, columns, layers, heads} = figure, {T, S} = figure.plan;
  if (!rows.size && !columns.size) return null;
  const {cells} = shown(figure), down = rows.size ? [...rows] : range(T), across = columns.size ? [...columns] : range(S);
  let sum = 0;
  for (const t of down) for (const s of across) sum += cells[t * S + s];
  if (choice.combine === "mean") sum *= shown(figure).count;
  return [figures(figure, sum), down.length, across.length, layers.size, heads.size];
}

// What is pointed at, in words; empty if nothing is.
export function reading(figure) {
  const {rows, columns, S} = figure.plan, row = rows[figure.row], column = columns[figure.column];
  if (row === undefined && column === undefined) return "";
  if (row === undefined || column === undefined) return row === undefined ? `← ${column}` : `${row} ←`;
  const at = figure.row * S + figure.column;
  if (choice.view !== "lines") return `${row} ← ${column}: ${figures(figure, shown(figure).cells[at])}`;
  const each = inOrder(figure.heads).map((head) =>
    `${head}: ${figures(figure, shown(figure, figure.layers, new Set([head])).cells[at])}`);
  return `${row} ← ${column}: ${each.join(", ")}`;
}

// Row and column at this place of the picture, -1 for none; over a name there is one of them.
export function under(figure, x, y) {
  const plan = figure.plan, inside = (place, count) => place >= 0 && place < count ? Math.floor(place) : -1;
  if (choice.view === "lines") {
    const place = (y - plan.above) / plan.step, left = x < (plan.x1 + plan.x2) / 2;
    return left ? [inside(place, plan.T), -1] : [-1, inside(place, plan.S)];
  }
  const {left, above, side} = plan, rise = Math.max(above - 10 - y, 0);  // names of columns lean to the right
  const row = inside((y - above) / side, plan.T), column = inside((x - left - rise / Math.tan(SLANT)) / side, plan.S);
  if (y < above) return [-1, column];
  if (x < left) return [row, -1];
  return row < 0 || column < 0 ? [-1, -1] : [row, column];
}
