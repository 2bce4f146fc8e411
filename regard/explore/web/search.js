// The view of the search: a beam as a tree, from the first token on the left to where each hypothesis ended.

import { $, frame, range, register, speak, speaks } from "./frame.js";
import { breadth, onCanvas, paints, recolour, saveSvg } from "./drawing.js";

const say = speaks({
  en: {search: "Beam search", all: "Show what was pruned at once", point: "Point at a token, or move " +
      "with the arrow keys: left to what it goes on from, right to what goes on.",
    about: (width, nodes, penalty) => `Width ${width}, ${nodes} hypotheses considered; ranked by log-probability over the ` +
      `length penalty ${penalty}. A line is as strong as its token is likely. Left to right: step by step.`,
    tree: "Tree of the beam search", none: "none", open: "goes on", pruned: "pruned", finished: "finished",
    length: "length limit", stopped: "still open", answer: (n) => `answer ${n}`,
    node: (text, p, total, score, place, why) => `${text}: probability ${p}, log-probability in all ${total}, score ` +
      `${score}, place ${place} of its step: ${why}`,
    why: {open: "it goes on", pruned: "pruned, for others were likelier", finished: "it wrote its end, and others scored better",
      length: "the length limit cut it off", stopped: "still open when no open one could win any more",
      answer: (n) => `it is answer ${n}`}},
  zh: {search: "束搜索", all: "显示立即被剪掉的", point: "指向一个词元，或用方向键移动：向左到它的上文，向右到它的后续。",
    about: (width, nodes, penalty) => `束宽 ${width}，共考虑 ${nodes} 个假设；按对数概率除以长度惩罚 ${penalty} 排序。线越深，词元的概率越高。` +
      "从左到右为逐步。",
    tree: "束搜索的树", none: "无", open: "继续", pruned: "剪掉", finished: "完成", length: "达到长度上限", stopped: "尚未完成",
    answer: (n) => `答案 ${n}`,
    node: (text, p, total, score, place, why) => `${text}：概率 ${p}，总对数概率 ${total}，得分 ${score}，该步第 ${place} 名：${why}`,
    why: {open: "继续", pruned: "被剪掉，因为别的更可能", finished: "写出了结束，但别的得分更高", length: "被长度上限截断",
      stopped: "搜索停止时仍未完成，已不可能胜出", answer: (n) => `它是答案 ${n}`}},
});
const ROW = 22, GAP = 30;
const PANEL = `<form><label class="check"><input type="checkbox" id="tree-all"><span data-say="all"></span></label></form>
<div id="trees"></div>`;
const TREE = (n) => `<figure><h2 id="tree-title${n}"></h2>
<div class="stage" id="tree-stage${n}"><canvas id="tree${n}" tabindex="0" role="img"></canvas></div>
<p id="tree-readout${n}" class="readout" aria-live="polite"></p>
<figcaption class="soft" id="tree-caption${n}"></figcaption>
<p><button type="button" id="tree-svg${n}" data-say="svg"></button></p></figure>`;

let trees = [];
const behind = (tree) => trees.indexOf(tree) ? `-${trees.indexOf(tree) + 1}` : "";
const its = (tree, id) => $(id + behind(tree));

// Where each hypothesis stands: a column a step, a row a leaf; what was pruned at once only if `all`.
function planned(tree, all) {
  const {nodes} = tree.run.search, below = new Map(), kept = [];
  nodes.forEach((node, at) => {
    if (!all && !node.kept) return;
    kept.push(at);
    if (!below.has(node.parent)) below.set(node.parent, []);
    below.get(node.parent).push(at);
  });
  const steps = Math.max(0, ...nodes.map((node) => node.step)), texts = range(steps).map(() => []);
  for (const at of kept) texts[nodes[at].step - 1].push(label(nodes[at]));
  const lefts = [8];
  for (const each of texts) lefts.push(lefts[lefts.length - 1] + breadth(each) + GAP);
  const places = new Map();
  let row = 0;
  const waiting = [...(below.get(-1) ?? [])].reverse();
  while (waiting.length) {  // the likeliest goes on in the row of what it goes on from
    const at = waiting.pop(), after = below.get(at) ?? [];
    places.set(at, {x: lefts[nodes[at].step - 1], y: 16 + row * ROW, row});
    if (after.length) waiting.push(...[...after].reverse()); else row += 1;
  }
  const winner = new Set();
  for (let at = nodes.findIndex((node) => node.answer === 1); at >= 0; at = nodes[at].parent) winner.add(at);
  return {places, below, winner, width: lefts[lefts.length - 1], height: Math.max(row, 1) * ROW + 12};
}

function label(node) {
  if (node.answer) return `${node.token} ✓ ${say("answer", node.answer)} (${node.score.toFixed(3)})`;
  return node.fate === "open" ? node.token : `${node.token} ${MARKS[node.fate]} ${say(node.fate)}`;
}
const MARKS = {pruned: "✕", finished: "✓", length: "⊣", stopped: "…"};

function paint(tree, to) {
  const {nodes} = tree.run.search, {places, winner, width, height} = tree.plan, {ink} = paints;
  to.rect(0, 0, width, height, ink.paper);
  for (const [at, {x, y}] of places) {
    const node = nodes[at], from = places.get(node.parent);
    if (!from) continue;
    const left = from.x + breadth([label(nodes[node.parent])]) + 4;
    to.line(left, from.y, x - 4, y, winner.has(at) ? ink.mark : ink.text, Math.max(Math.exp(node.log_probability), 0.12));
  }
  for (const [at, {x, y}] of places) {
    const node = nodes[at], lost = node.fate !== "open" && !node.answer;
    to.text(label(node), x, y, winner.has(at) ? ink.mark : lost ? ink.soft : ink.text, "left");
    if (at === tree.at) to.frame(x - 4, y - 10, breadth([label(node)]) + 8, 20, ink.mark);
  }
}

function reading(tree) {
  const {nodes} = tree.run.search;
  if (tree.at < 0) return say("point");
  const node = nodes[tree.at], tokens = [];
  for (let at = tree.at; at >= 0; at = nodes[at].parent) tokens.unshift(nodes[at].token);
  const why = node.answer ? say("why").answer(node.answer) : say("why")[node.fate];
  return say("node", tokens.join(" "), Math.exp(node.log_probability).toFixed(4), node.total.toFixed(4), node.score.toFixed(4),
    node.place, why);
}

function draw(tree) {
  const {width, penalty, alpha, nodes} = tree.run.search;
  tree.plan = planned(tree, $("tree-all").checked);
  if (!tree.plan.places.has(tree.at)) tree.at = -1;
  paint(tree, onCanvas(its(tree, "tree"), tree.plan.width, tree.plan.height));
  const named = penalty === "none" ? say("none") : `${penalty}, α = ${alpha}`;
  its(tree, "tree-title").textContent = tree.run.name || say("tree");
  its(tree, "tree").setAttribute("aria-label", say("tree"));
  its(tree, "tree-caption").textContent = say("about", width, nodes.length, named);
  its(tree, "tree-readout").textContent = reading(tree);
}

function choose(tree, at) {
  if (at === tree.at) return;
  tree.at = at;
  draw(tree);
}

function moved(tree, key) {
  const {nodes} = tree.run.search, {places, below} = tree.plan;
  if (!places.has(tree.at)) return (below.get(-1) ?? [-1])[0];
  if (key === "ArrowLeft") return Math.max(nodes[tree.at].parent, -1) >= 0 ? nodes[tree.at].parent : tree.at;
  if (key === "ArrowRight") return (below.get(tree.at) ?? [tree.at])[0];
  const {y} = places.get(tree.at), down = key === "ArrowDown" ? 1 : -1;
  const same = [...places].filter(([at, place]) => nodes[at].step === nodes[tree.at].step && (place.y - y) * down > 0);
  same.sort((a, b) => (a[1].y - b[1].y) * down);
  return same.length ? same[0][0] : tree.at;
}

function listenTo(tree) {
  const canvas = its(tree, "tree");
  const pointed = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const found = [...tree.plan.places].find(([at, place]) => Math.abs(place.y - y) < ROW / 2 && x >= place.x - 4 &&
      x <= place.x + breadth([label(tree.run.search.nodes[at])]) + 4);
    if (found) choose(tree, found[0]);
  };
  canvas.addEventListener("pointermove", pointed);
  canvas.addEventListener("pointerdown", pointed);
  canvas.addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key)) return;
    event.preventDefault();
    choose(tree, moved(tree, event.key));
    const place = tree.plan.places.get(tree.at), stage = its(tree, "tree-stage");
    if (place) stage.scrollTo(place.x - stage.clientWidth / 2, place.y - stage.clientHeight / 2);
  });
  its(tree, "tree-svg").addEventListener("click", () => {
    saveSvg({...tree.plan, paint: (to) => paint(tree, to)}, "beam-search.svg", say("tree"));
  });
}

register({
  name: "search", order: 30, say,
  fits: (runs) => runs.some((run) => run.search),
  open(panel) {
    panel.innerHTML = PANEL;
    $("tree-all").addEventListener("change", () => trees.forEach(draw));
    return {
      load() {
        trees = frame.runs.filter((run) => run.search).map((run) => ({run, at: -1, plan: null}));
        $("trees").innerHTML = trees.map((tree) => TREE(behind(tree))).join("");
        trees.forEach(listenTo);
      },
      draw() { recolour(); speak(panel, say); trees.forEach(draw); },
    };
  },
});
