// The view of decoding: the encoder layer by layer, then the translation token by token, each with what it looks at.

import { $, frame, register, speak, speaks } from "./frame.js";
import { breadth, joined, onCanvas, paints, recolour, saveSvg, shade } from "./drawing.js";
import { matrix, upTo } from "./numbers.js";
import { seen } from "./seen.js";

const say = speaks({
  en: {decoding: "Decoding", play: "Play", pause: "Pause", back: "Back", on: "Step", time: "Time", layer: "layer of the decoder",
    mean: "mean", begin: "The source is read.", encoding: (layer, most) => `Encoder, layer ${layer} of ${most}: each token looks ` +
      "at the source.",
    writing: (step, most, token, likely) => `Step ${step} of ${most}: writes ${token}${likely}.`, likely: (p) => ` (${p} %)`,
    looks: (names) => ` It looks most at ${names}.`,
    keys: "Keys: space plays and pauses, left and right go a step, Home and End to the ends.",
    still: "Your system asks for little motion, so that nothing moves by itself: go by steps.",
    picture: "The source on the left, what is written on the right; lines show attention."},
  zh: {decoding: "解码过程", play: "播放", pause: "暂停", back: "后退", on: "前进", time: "进度", layer: "解码器的层",
    mean: "平均", begin: "读入原文。", encoding: (layer, most) => `编码器第 ${layer} 层，共 ${most} 层：每个词元注视原文。`,
    writing: (step, most, token, likely) => `第 ${step} 步，共 ${most} 步：写出 ${token}${likely}。`, likely: (p) => `（${p} %）`,
    looks: (names) => `它最注视 ${names}。`,
    keys: "按键：空格播放或暂停，左右键走一步，Home 与 End 到两端。",
    still: "系统要求减少动画，因此不会自动播放：请逐步前进。",
    picture: "左边是原文，右边是写出的内容；连线表示注意力。"},
});
const PANEL = `<form id="player">
<button type="button" id="back" data-say="back"></button>
<button type="button" id="play"></button>
<button type="button" id="on" data-say="on"></button>
<label class="wide"><span data-say="time"></span><input type="range" id="time" min="0" step="1" value="0"></label>
<label><span data-say="layer"></span><select id="time-layer"></select></label>
</form>
<div id="screens"></div>
<p class="soft" id="player-keys"></p>
<p><button type="button" id="decoding-svg" data-say="svg"></button></p>`;
const STEP = 24, PAUSE = 900;
const still = matchMedia("(prefers-reduced-motion: reduce)");

let screens = [], timer = 0;
const playing = () => timer !== 0;
const partOf = (run, name) => run.parts?.find((part) => part.name === name);

function screenOf(run) {
  const cross = partOf(run, "cross"), encoder = partOf(run, "encoder");
  return {run, cross, encoder, layers: encoder ? encoder.shape[0] : 0, steps: cross.shape[2]};
}
const lengthOf = (screen) => screen.layers + screen.steps;
const now = () => Number($("time").value);
const most = () => Math.max(...screens.map(lengthOf));

function rowsOf(part, layers) {
  const [, H, T, S] = part.shape, {cells} = matrix(part, layers, upTo(H), "mean", "tokens");
  return {cells, T, S};
}

// What is seen of a run at a time: lines from the right to the left, and what stands on either side.
function scene(screen, time) {
  const {cross, encoder, layers, run} = screen, source = cross.columns.names, at = Math.min(time, lengthOf(screen));
  if (at === 0) return {left: source, right: [], lines: [], said: say("begin"), lit: []};
  if (at <= layers) {
    const {cells, T, S} = rowsOf(encoder, new Set([at])), lines = [];
    for (let t = 0; t < T; t++) for (let s = 0; s < S; s++) lines.push([t, s, cells[t * S + s]]);
    return {left: source, right: encoder.rows.names, lines, said: say("encoding", at, layers), lit: [], current: -1};
  }
  const step = at - layers - 1, chosen = Number($("time-layer").value), all = upTo(cross.shape[0]);
  const {cells, S} = rowsOf(cross, chosen && all.has(chosen) ? new Set([chosen]) : all);
  const lit = [...cells.slice(step * S, (step + 1) * S)], names = cross.rows.names;
  const best = lit.map((weight, s) => [weight, s]).sort((a, b) => b[0] - a[0]).slice(0, 2).filter(([weight]) => weight > 0.1);
  const known = run.steps?.length === names.length ? run.steps[step] : null;
  const likely = known ? say("likely", (100 * known.probability).toFixed(1)) : "";
  const looks = best.map(([weight, s]) => `${source[s]} (${weight.toFixed(2)})`).join(", ");
  return {left: source, right: names.slice(0, step + 1), lines: lit.map((weight, s) => [step, s, weight]), lit, current: step,
    said: say("writing", step + 1, names.length, names[step], likely) + (looks ? say("looks", looks) : "")};
}

const middle = (i) => 8 + (i + 0.5) * STEP;

// What is shown now, as a picture in this room.
function planned(screen, room) {
  const shown = scene(screen, now()), longest = screen.cross.rows.names, x1 = breadth(shown.left) + 24;
  const wide = Math.max(breadth(longest), breadth(screen.encoder?.rows.names ?? []));
  const width = Math.max(x1 + wide + 140, Math.min(room, 560)), x2 = width - wide - 24;
  const height = Math.max(shown.left.length, longest.length) * STEP + 16;
  return {...shown, width, height, paint: (to) => paint(shown, {x1, x2, width, height}, to)};
}

function paint({left, right, lines, lit, current}, {x1, x2, width, height}, to) {
  const {ink} = paints;
  to.rect(0, 0, width, height, ink.paper);
  lit.forEach((weight, s) => to.rect(2, middle(s) - 11, x1 - 8, 22, shade(weight)));
  for (const [t, s, weight] of lines) if (weight >= 0.02) to.line(x1, middle(s), x2, middle(t), ink.mark, Math.min(weight, 1));
  left.forEach((name, s) => to.text(name, x1 - 14, middle(s), lit[s] > 0.45 ? ink.paper : ink.text, "right"));
  right.forEach((name, t) => {
    if (t === current) to.frame(x2 + 3, middle(t) - 10, breadth([name]) + 12, 20, ink.mark);
    to.text(name, x2 + 8, middle(t), t === current || current < 0 ? ink.text : ink.soft, "left");
  });
}

function draw(screen, number) {
  const behind = number ? `-${number + 1}` : "", canvas = $(`screen${behind}`);
  screen.plan = planned(screen, Math.max($(`screen-stage${behind}`).clientWidth - 4, 240));
  const {right, said, current, width, height} = screen.plan;
  screen.plan.paint(onCanvas(canvas, width, height));
  canvas.setAttribute("aria-label", `${say("picture")} ${said}`);
  $(`said${behind}`).setAttribute("aria-live", playing() ? "off" : "polite");
  $(`said${behind}`).textContent = said;
  if (right.length) {
    const stage = $(`screen-stage${behind}`), y = middle(Math.max(current, 0));
    if (y > stage.scrollTop + stage.clientHeight - STEP) stage.scrollTop = y - stage.clientHeight / 2;
  }
}

function drawAll() {
  $("time").max = most();
  $("play").textContent = say(playing() ? "pause" : "play");
  $("play").hidden = still.matches;
  $("time").setAttribute("aria-valuetext", screens.length ? scene(screens[0], now()).said : "");
  screens.forEach(draw);
}

// All screens side by side, each with what is said of it.
const whole = () => joined(screens.map(({plan}, number) => joined([plan, seen($(number ? `said-${number + 1}` : "said"))], true)));

function go(to) {
  $("time").value = Math.min(Math.max(to, 0), most());
  drawAll();
}
function stop() {
  clearInterval(timer);
  timer = 0;
}
function play() {
  if (playing()) { stop(); drawAll(); return; }
  if (still.matches) return;
  if (now() >= most()) go(0);
  timer = setInterval(() => {
    if (now() >= most() || frame.open !== "decoding") stop();
    else $("time").value = now() + 1;
    drawAll();
  }, PAUSE);
  drawAll();
}

function key(event) {
  const to = {ArrowLeft: now() - 1, ArrowRight: now() + 1, Home: 0, End: most()}[event.key];
  if (event.key === " ") play();
  else if (to !== undefined) { stop(); go(to); }
  else return;
  event.preventDefault();
}

register({
  name: "decoding", order: 15, say, key,
  fits: (runs) => runs.some((run) => partOf(run, "cross")),
  open(panel) {
    panel.innerHTML = PANEL;
    $("player").addEventListener("submit", (event) => event.preventDefault());
    $("back").addEventListener("click", () => { stop(); go(now() - 1); });
    $("decoding-svg").addEventListener("click", () => saveSvg(whole(), "decoding.svg", say("decoding")));
    $("on").addEventListener("click", () => { stop(); go(now() + 1); });
    $("play").addEventListener("click", play);
    $("time").addEventListener("input", () => { stop(); drawAll(); });
    $("time").addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); play(); } });
    $("time-layer").addEventListener("change", drawAll);
    still.addEventListener("change", () => { stop(); drawAll(); });
    return {
      load() {
        stop();
        screens = frame.runs.filter((run) => partOf(run, "cross")).map(screenOf);
        $("screens").className = screens.length > 1 ? "several" : "";
        $("screens").innerHTML = screens.map((_, i) => i ? `-${i + 1}` : "").map((n) =>
          `<figure><div class="stage" id="screen-stage${n}"><canvas id="screen${n}" role="img" tabindex="0"></canvas></div>` +
          `<p class="readout" id="said${n}" aria-live="polite"></p></figure>`).join("");
        for (const canvas of $("screens").querySelectorAll("canvas")) canvas.addEventListener("keydown", key);
        $("time").max = most();
        $("time").value = 0;
      },
      draw() {
        recolour();
        speak(panel, say);
        const chosen = $("time-layer").value || "0";
        $("time-layer").replaceChildren(new Option(say("mean"), 0),
          ...Array.from({length: screens[0].cross.shape[0]}, (_, i) => new Option(i + 1, i + 1)));
        $("time-layer").value = chosen;
        $("player-keys").textContent = say(still.matches ? "still" : "keys");
        drawAll();
      },
    };
  },
});
