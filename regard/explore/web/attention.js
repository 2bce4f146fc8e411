// The view of attention: a matrix, or lines, of the layers and heads that are chosen, and all of them to choose from.

import { $, frame, range, register, speak, speaks } from "./frame.js";
import { COLOURS, image, joined, onCanvas, paints, recolour, save, saveSvg } from "./drawing.js";
import { choice, errorRate, figureOf, figures, follow, heading, nowhere, paint, planned, reading, shown, total, under } from "./figure.js";
import { inOrder, upTo, weights } from "./numbers.js";

const say = speaks({
  en: {attention: "Attention", part: "attention", layer: "layer", head: "head",
    unit: "between", view: "view", png: "Save PNG", every: "Every layer and head",
    mean: "mean", sum: "sum", all: "all", several: "several", combine: "of several", layers: "Layers", heads: "Heads",
    tokens: "tokens", words: "words", matrix: "matrix", lines: "lines",
    encoder: "Input - Input (encoder)", cross: "Input - Output (cross)", decoder: "Output - Output (decoder)",
    hops: "Hops - Input",
    meanCaption: "A row is what looks, a column what is looked at; a row sums to 1. Darkest (in the dark: lightest): ",
    linesCaption: "Left what looks, right what is looked at; a colour a head. Drawn are weights from ",
    sumCaption: "A row is what looks, a column what is looked at; weights of layers and heads are added. Darkest " +
      "(in the dark: lightest): ",
    point: "Point at a weight, or move with the arrow keys.",
    choose: "Click names to sum over them; with the keyboard, Enter chooses the row and Space the column.",
    total: (sum, rows, columns, layers, heads) =>
      `Sum of what is chosen: ${sum} (rows ${rows}, columns ${columns}, layers ${layers}, heads ${heads})`,
    gold: (rate) => `Alignment error rate of what is shown: ${rate} %. Frames are gold links, grey ones possible; each target ` +
      "word is linked with the source word that it looks at most.",
    grid: "Across: heads. Down: layers.",
    caution: "Weights say where the model looked, not why it wrote what it wrote: attention is not an explanation."},
  zh: {attention: "注意力", part: "注意力", layer: "层", head: "头",
    unit: "单位", view: "视图", png: "保存 PNG", every: "所有的层与头",
    mean: "平均", sum: "求和", all: "全部", several: "多个", combine: "多个时", layers: "层", heads: "头",
    tokens: "词元", words: "词", matrix: "矩阵", lines: "连线",
    encoder: "Input - Input（编码器）", cross: "Input - Output（交叉）", decoder: "Output - Output（解码器）",
    hops: "Hops - Input（多跳）",
    meanCaption: "行是注视者，列是被注视者；每行之和为 1。颜色最深（深色模式下最浅）处为：",
    linesCaption: "左边是注视者，右边是被注视者；一种颜色一个头。画出的权重不小于 ",
    sumCaption: "行是注视者，列是被注视者；各层各头的权重相加。颜色最深（深色模式下最浅）处为：",
    point: "指向一个权重，或用方向键移动。",
    choose: "点击行名、列名即对它们求和；用键盘时，回车键选行，空格键选列。",
    total: (sum, rows, columns, layers, heads) => `所选之和：${sum}（${rows} 行、${columns} 列、${layers} 层、${heads} 头）`,
    gold: (rate) => `所示权重的对齐错误率：${rate} %。方框是标准对齐，灰色的为可能的；每个译文词与它最注视的原文词相连。`,
    grid: "横向：头。纵向：层。",
    caution: "权重说明模型看向了哪里，而不说明它为何这样写：注意力不是解释。"},
});
const PANEL = `<form id="controls">
<label><span data-say="part"></span><select id="part"></select></label>
<label><span data-say="layer"></span><select id="layer"></select></label>
<label><span data-say="head"></span><select id="head"></select></label>
<label><span data-say="combine"></span><select id="combine"></select></label>
<label><span data-say="unit"></span><select id="unit"></select></label>
<label><span data-say="view"></span><select id="view"></select></label>
<button type="button" id="svg" data-say="svg"></button>
<button type="button" id="png" data-say="png"></button>
</form>
<div class="toggles" id="layers" role="group"></div>
<div class="toggles" id="toggles" role="group"></div>
<div id="figures"></div>
<p class="soft" data-say="caution"></p>`;
// One figure; the elements of the second have names that end with -2.
const FIGURE = (n) => `<figure>
<h2 id="title${n}"></h2>
<div class="stage" id="stage${n}"><canvas id="picture${n}" tabindex="0" role="img"></canvas></div>
<p id="readout${n}" class="readout" aria-live="polite"></p>
<p id="sum${n}" class="readout" aria-live="polite"></p>
<p id="gold${n}" class="readout" aria-live="polite" hidden></p>
<figcaption class="soft" id="caption${n}"></figcaption>
</figure>
<section><h2 data-say="every"></h2><div id="heads${n}" class="heads" role="group"></div></section>`;

let all = [], inDark = null;  // the figures, one a run, and whether they were drawn in the dark
const behind = (figure) => all.indexOf(figure) ? `-${all.indexOf(figure) + 1}` : "";
const its = (figure, id) => $(id + behind(figure));
const titleOf = (figure) => heading(figure, say(figure.part.name));

function draw(figure) {
  figure.plan = planned(figure, Math.max(its(figure, "stage").clientWidth - 4, 240));
  const {width, height, least} = figure.plan, picture = its(figure, "picture"), title = titleOf(figure), sum = total(figure);
  paint(figure, onCanvas(picture, width, height));
  its(figure, "title").textContent = title;
  picture.setAttribute("aria-label", title);
  its(figure, "caption").textContent = choice.view === "lines" ? say("linesCaption") + least :
    say(choice.combine + "Caption") + figures(figure, shown(figure).top);
  its(figure, "readout").textContent = reading(figure) || say("point");
  const rate = errorRate(figure);
  its(figure, "gold").hidden = rate === null;
  if (rate !== null) its(figure, "gold").textContent = say("gold", rate.toFixed(1));
  its(figure, "sum").textContent = sum ? say("total", ...sum) : say("choose");
}

const waiting = new Set();
function soon(figure) {
  if (!waiting.size) requestAnimationFrame(() => { waiting.forEach(draw); waiting.clear(); });
  waiting.add(figure);
}

// -- all layers and heads ---------------------------------------------------------------------------------------------

function thumbnail(figure, canvas, layer, head) {
  const [, H, T, S] = figure.part.shape, all = weights(figure.part), at = (layer * H + head) * T * S;
  const wide = Math.min(S, 96), tall = Math.min(T, 96), cells = new Float32Array(wide * tall);
  let top = 1;
  for (let t = 0; t < T; t++) {
    const down = Math.floor(t * tall / T) * wide;
    for (let s = 0; s < S; s++) {
      const place = down + Math.floor(s * wide / S), weight = all[at + t * S + s];
      if (weight > cells[place]) cells[place] = weight;
      if (weight > top) top = weight;
    }
  }
  canvas.width = wide; canvas.height = tall;
  canvas.getContext("2d").drawImage(image(cells, tall, wide, top), 0, 0);
}

function thumbnails(figure) {
  const [L, H] = figure.part.shape, grid = its(figure, "heads");
  grid.replaceChildren();
  grid.style.gridTemplateColumns = `1.6rem repeat(${H},minmax(1.6rem,6rem))`;
  const cell = (text) => { const one = document.createElement("span"); one.textContent = text; grid.append(one); };
  cell("");
  range(H).forEach((h) => cell(h + 1));
  for (const l of range(L)) {
    cell(l + 1);
    for (const h of range(H)) {
      const button = document.createElement("button"), canvas = document.createElement("canvas");
      button.type = "button";
      button.dataset.layer = l + 1; button.dataset.head = h + 1;
      button.append(canvas);
      thumbnail(figure, canvas, l, h);
      button.addEventListener("click", () => {
        figure.layers = new Set([l + 1]); figure.heads = new Set([h + 1]);
        update();
      });
      grid.append(button);
    }
  }
}

// -- what can be chosen -----------------------------------------------------------------------------------------------

function options(id, values, chosen) {
  $(id).replaceChildren(...values.map(([value, text]) => new Option(text, value, false, String(value) === String(chosen))));
}

// A select for one of them or all, and a button for each, so that any several may be chosen.
function choices(id, chosen, count) {
  const several = chosen.size > 1 && chosen.size < count ? [[-1, say("several")]] : [];
  const value = several.length ? -1 : chosen.size === count ? 0 : [...chosen][0];
  options(id, [...several, [0, say("all")], ...range(count).map((i) => [i + 1, i + 1])], value);
}

// Sets layers (axis 0) or heads (1) of every figure, as far as it has them.
function setAll(axis, chosen) {
  const name = ["layers", "heads"][axis];
  for (const figure of all) {
    const count = figure.part.shape[axis], mine = new Set([...chosen].filter((n) => n <= count));
    figure[name] = mine.size ? mine : upTo(count);
  }
}

function toggles(id, axis, word, colour) {
  const name = ["layers", "heads"][axis], chosen = all[0][name], count = all[0].part.shape[axis];
  const label = document.createElement("span");
  label.textContent = say(name);
  $(id).setAttribute("aria-label", label.textContent);
  $(id).replaceChildren(label, ...range(count).map((i) => {
    const button = document.createElement("button");
    button.type = "button"; button.textContent = i + 1;
    button.dataset.toggle = i + 1;
    button.setAttribute("aria-pressed", chosen.has(i + 1));
    button.setAttribute("aria-label", `${say(word)} ${i + 1}`);
    if (colour) { button.style.setProperty("--on", colour(i)); button.style.borderColor = colour(i); }
    button.addEventListener("click", () => {
      const next = new Set(chosen);
      if (!next.delete(i + 1)) next.add(i + 1);
      if (!next.size) next.add(i + 1);  // one stays
      setAll(axis, next);
      update();
      $(id).querySelector(`[data-toggle="${i + 1}"]`).focus();
    });
    return button;
  }));
}

function update() {
  const [first] = all, [L, H] = first.part.shape;
  speak($("view-attention"), say);
  options("part", first.run.parts.map((part) => [part.name, say(part.name)]), first.part.name);
  choices("layer", first.layers, L);
  choices("head", first.heads, H);
  options("combine", ["mean", "sum"].map((name) => [name, say(name)]), choice.combine);
  options("unit", (first.run.unit === "words" ? ["words"] : ["tokens", "words"]).map((name) => [name, say(name)]), choice.unit);
  options("view", ["matrix", "lines"].map((name) => [name, say(name)]), choice.view);
  toggles("layers", 0, "layer");
  toggles("toggles", 1, "head", choice.view === "lines" ? (h) => COLOURS[h % COLOURS.length] : null);
  for (const figure of all) {
    its(figure, "heads").setAttribute("aria-label", say("grid"));
    for (const button of its(figure, "heads").querySelectorAll("button")) {
      const layer = Number(button.dataset.layer), head = Number(button.dataset.head);
      button.setAttribute("aria-pressed", figure.layers.has(layer) && figure.heads.has(head));
      button.title = `${say("layer")} ${layer}, ${say("head")} ${head}`;
      button.setAttribute("aria-label", button.title);
    }
    draw(figure);
  }
}

// -- what is done -----------------------------------------------------------------------------------------------------

function listen() {
  const choose = (id, act) => $(id).addEventListener("change", () => { act($(id).value); update(); });
  const some = (value, axis) => Number(value) ? new Set([Number(value)]) : upTo(all[0].part.shape[axis]);
  choose("part", (name) => {
    choice.part = name;
    for (const figure of all) if (follow(figure)) thumbnails(figure);
  });
  choose("layer", (value) => setAll(0, some(value, 0)));
  choose("head", (value) => setAll(1, some(value, 1)));
  choose("combine", (value) => { choice.combine = value; });
  choose("unit", (value) => { choice.unit = value; all.forEach(nowhere); });
  choose("view", (value) => { choice.view = value; for (const figure of all) figure.row = figure.column = -1; });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("svg").addEventListener("click", () => {
    saveSvg(whole(), named("svg"), all.map(titleOf).join(" | "), (weight) => figures(all[0], weight));
  });
  $("png").addEventListener("click", () => {
    const canvas = document.createElement("canvas"), picture = whole();
    picture.paint(onCanvas(canvas, picture.width, picture.height));
    canvas.toBlob((blob) => save(blob, named("png")));
  });
}

// What is on the screen, one figure beside the other.
const whole = () => joined(all.map((figure) => ({...figure.plan, paint: (to) => paint(figure, to)})));
function named(kind) {
  const [figure] = all, [layers, heads] = [figure.layers, figure.heads].map((chosen, i) =>
    chosen.size === figure.part.shape[i] ? choice.combine : inOrder(chosen).join("+"));
  return `attention-${figure.part.name}-${layers}-${heads}.${kind}`;
}

function point(figure, row, column) {
  if (row === figure.row && column === figure.column) return;
  [figure.row, figure.column] = [row, column];
  soon(figure);
}

function toggle(figure, row, column) {
  for (const [chosen, place] of [[figure.rows, row], [figure.columns, column]]) {
    if (place >= 0 && !chosen.delete(place)) chosen.add(place);
  }
  soon(figure);
}

function pressed(figure, event) {
  const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
  if (event.key === "Escape") { nowhere(figure); soon(figure); return; }
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    if (event.key === "Enter") toggle(figure, figure.row, -1); else toggle(figure, -1, figure.column);
  }
  if (!step) return;
  event.preventDefault();
  const within = (place, count) => Math.min(Math.max(place, 0), count - 1);
  if (figure.row < 0 && figure.column < 0) point(figure, 0, 0);
  else point(figure, within(Math.max(figure.row, 0) + step[0], figure.plan.T),
    within(Math.max(figure.column, 0) + step[1], figure.plan.S));
}

function listenTo(figure) {
  const picture = its(figure, "picture"), place = (event) => {
    const box = picture.getBoundingClientRect();
    return under(figure, event.clientX - box.left, event.clientY - box.top);
  };
  const pointed = (event) => {
    const [row, column] = place(event);
    if (choice.view === "matrix" && (row < 0 || column < 0)) point(figure, -1, -1); else point(figure, row, column);
  };
  picture.addEventListener("pointermove", pointed);
  picture.addEventListener("pointerdown", pointed);
  picture.addEventListener("click", (event) => {
    const [row, column] = place(event);
    if (figure.plan.labelled && (row < 0) !== (column < 0)) toggle(figure, row, column);
  });
  picture.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") point(figure, -1, -1); });
  picture.addEventListener("keydown", (event) => pressed(figure, event));
}

// -- the view ---------------------------------------------------------------------------------------------------------

function load() {
  const before = all, runs = frame.runs.filter((run) => run.parts?.length);
  all = runs.map(figureOf);
  const first = all[0];
  if (!first.run.parts.some((part) => part.name === choice.part)) {
    choice.part = (first.run.parts.find((part) => part.name === "cross") || first.run.parts[0]).name;
  }
  if (first.run.unit === "words" || !choice.unit) choice.unit = first.run.gold ? "words" : first.run.unit;
  $("figures").className = all.length > 1 ? "several" : "";
  $("figures").replaceChildren(...all.map((figure) => {
    const place = document.createElement("div");
    place.className = "sides";
    place.innerHTML = FIGURE(behind(figure));
    return place;
  }));
  all.forEach((figure, i) => {
    follow(figure);
    const old = before[i]?.part;
    // The same layers and heads of the new run, if it has them.
    if (old && old.name === figure.part.name && old.shape.slice(0, 2).join() === figure.part.shape.slice(0, 2).join()) {
      [figure.layers, figure.heads] = [before[i].layers, before[i].heads];
    }
    listenTo(figure);
  });
  recolour();
  inDark = paints.dark;
  all.forEach(thumbnails);
}

register({
  name: "attention", order: 10, say,
  fits: (runs) => runs.some((run) => run.parts?.length),
  open(panel) {
    panel.innerHTML = PANEL;
    listen();
    return {load, draw() {
      recolour();
      if (inDark !== paints.dark) for (const figure of all) { figure.kept = {}; thumbnails(figure); }
      inDark = paints.dark;
      update();
    }};
  },
});
