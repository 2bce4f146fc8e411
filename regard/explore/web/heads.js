// The view of the heads: heads switched off and weights put by hand, with the translation changing; and one head opened,
// with the numbers that it computes. It asks the server, so it is there only where one stands behind the page.

import { $, frame, range, register, speak, speaks } from "./frame.js";
import { ask, question } from "./ask.js";
import { joined, recolour, saveSvg } from "./drawing.js";
import { seen } from "./seen.js";

const say = speaks({
  en: {heads: "Heads", about: "Press a head to switch it off, and again to switch it on: the model translates anew without it. A " +
      "weight that is put by hand leaves the rest of its row to the others.",
    encoder: "Input - Input", cross: "Input - Output", decoder: "Output - Output", layer: (n) => `layer ${n}`,
    head: (name, off) => `head ${name}, ${off ? "off" : "on"}`, now: "With these changes", before: "As it is", took: (ms) => `${ms} ms`,
    same: "the same", all: "all", weight: "A weight by hand", which: "head", row: "row", column: "column", value: "weight",
    put: "Put it", none: "Undo all changes", away: (what) => `take away ${what}`, opened: "One head opened", open: "Open",
    queries: "Q: the query", keys: "K: the keys", scores: "Q · K: scores", mask: "mask", weights: "softmax: weights",
    values: "V: the values", mixed: "weights · V", output: "output: what the head adds", token: "token", sees: "seen", hidden: "hidden",
    number: (n, total) => `the first ${n} of ${total} numbers`, every: (total) => `${total} numbers`, working: "…"},
  zh: {heads: "头", about: "按一个头把它关掉，再按一次打开：模型不用它重新翻译。手工给定的权重把该行其余的留给别的列。",
    encoder: "Input - Input", cross: "Input - Output", decoder: "Output - Output", layer: (n) => `第 ${n} 层`,
    head: (name, off) => `头 ${name}，${off ? "关" : "开"}`, now: "改动之后", before: "原样", took: (ms) => `${ms} 毫秒`,
    same: "相同", all: "全部", weight: "手工给定一个权重", which: "头", row: "行", column: "列", value: "权重",
    put: "给定", none: "撤销所有改动", away: (what) => `去掉 ${what}`, opened: "打开一个头", open: "打开",
    queries: "Q：查询", keys: "K：键", scores: "Q · K：分数", mask: "掩码", weights: "softmax：权重",
    values: "V：值", mixed: "权重 · V", output: "输出：这个头所加的", token: "词元", sees: "可见", hidden: "隐藏",
    number: (n, total) => `${total} 个数中的前 ${n} 个`, every: (total) => `${total} 个数`, working: "……"},
});
const BODY = `<p class="soft" data-say="about"></p><div id="switches"></div>
<fieldset><legend data-say="weight"></legend>
<label><span data-say="which"></span> <select id="edit-head"></select></label>
<label><span data-say="row"></span> <select id="edit-row"></select></label>
<label><span data-say="column"></span> <select id="edit-column"></select></label>
<label><span data-say="value"></span> <input id="edit-weight" type="range" min="0" max="1" step="0.05" value="1"></label>
<button type="button" id="edit-put" data-say="put"></button><span id="edits"></span></fieldset>
<p><button type="button" id="undo" data-say="none"></button> <span id="changing" class="soft" role="status"></span></p>
<dl id="changes" aria-live="polite"><dt data-say="now"></dt><dd id="changed-text"></dd><dt data-say="before"></dt><dd id="plain-text"></dd></dl>
<fieldset><legend data-say="opened"></legend>
<label><span data-say="which"></span> <select id="open-head"></select></label>
<label><span data-say="token"></span> <select id="open-row"></select></label>
<button type="button" id="open-it" data-say="open"></button></fieldset>
<div id="head-opened"></div>
<p><button type="button" id="heads-svg" data-say="svg"></button></p>`;
const MOST_NUMBERS = 16;

const parts = () => ["encoder", "cross", "decoder"].map((name) => frame.runs[0].parts.find((part) => part.name === name)).filter(Boolean);
const headsOf = (part) => range(part.shape[0]).flatMap((l) => range(part.shape[1]).map((h) => `${part.name}.${l + 1}.${h + 1}`));
const partOf = (head) => parts().find((part) => part.name === head.split(".")[0]);
const off = new Set();
let edits = [], asking = null, opened = null;

function made(kind, attributes, ...children) {
  const one = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  one.append(...children);
  return one;
}

// -- heads off and weights by hand --------------------------------------------------------------------------------------

async function change() {
  asking?.abort();
  const mine = asking = new AbortController();
  if (!off.size && !edits.length) { told(null); return; }
  $("changing").textContent = say("working");
  try {
    const found = await ask("v1/explore/changed", {...question(), translation: undefined, off: [...off], edits}, mine.signal);
    if (mine === asking) told(found);
  } catch (error) {
    if (mine === asking && error.name !== "AbortError") $("changing").textContent = error.message;
  }
}

function told(found) {
  $("plain-text").textContent = found ? found.plain : frame.runs[0].target;
  $("changed-text").textContent = found ? found.text : "";
  if (!found) { $("changing").textContent = ""; return; }
  const same = found.text === found.plain ? `, ${say("same")}` : "";
  $("changing").textContent = say("took", Math.round(1000 * found.seconds)) + same;
}

function switches() {
  const focused = document.activeElement?.dataset?.head;
  $("switches").replaceChildren(...parts().map((part) => made("fieldset", {}, made("legend", {}, say(part.name)),
    ...range(part.shape[0]).map((l) => made("div", {class: "toggles"}, made("span", {class: "soft"}, say("layer", l + 1)),
      ...range(part.shape[1]).map((h) => {
        const name = `${part.name}.${l + 1}.${h + 1}`;
        const button = made("button", {type: "button", "data-head": name, "aria-pressed": off.has(name),
          "aria-label": say("head", name, off.has(name))}, String(h + 1));
        button.addEventListener("click", () => {
          if (!off.delete(name)) off.add(name);
          switches();
          change();
        });
        return button;
      }))))));
  if (focused) $("switches").querySelector(`[data-head="${focused}"]`)?.focus();
}

function options(id, pairs) {
  const had = $(id).value;
  $(id).replaceChildren(...pairs.map(([value, text]) => new Option(text, value)));
  if (pairs.some(([value]) => value === had)) $(id).value = had;
}
const numbered = (names) => names.map((name, i) => [String(i + 1), `${i + 1} ${name}`]);

function choices() {
  const heads = parts().flatMap(headsOf).map((name) => [name, name]);
  const every = parts().flatMap((part) => range(part.shape[0]).map((l) => [`${part.name}.${l + 1}.0`, `${part.name}.${l + 1} ${say("all")}`]));
  options("edit-head", [...heads, ...every]);
  options("open-head", heads);
  rows();
}
function rows() {
  const edited = partOf($("edit-head").value);
  options("edit-row", [["0", say("all")], ...numbered(edited.rows.names)]);
  options("edit-column", numbered(edited.columns.names));
  options("open-row", numbered(readNames(partOf($("open-head").value))));
}
// A head's rows are named by what is read, which in cross-attention is one before what is written.
function readNames(part) { return part.name === "cross" ? ["<s>", ...part.rows.names.slice(0, -1)] : part.rows.names; }

function listed() {
  $("edits").replaceChildren(...edits.map((edit, i) => {
    const what = `${edit.part}.${edit.layer}.${edit.head || say("all")} [${edit.row || say("all")}, ${edit.column}] = ${edit.weight}`;
    const button = made("button", {type: "button", "aria-label": say("away", what)}, `${what} ×`);
    button.addEventListener("click", () => { edits.splice(i, 1); listed(); change(); });
    return button;
  }));
}

// -- one head opened ----------------------------------------------------------------------------------------------------

async function open() {
  $("head-opened").textContent = say("working");
  try {
    const run = frame.runs[0];
    opened = await ask("v1/explore/head", {...question(), translation: run.target, head: $("open-head").value});
    unfolded();
  } catch (error) {
    opened = null;
    $("head-opened").textContent = error.message;
  }
}

const digits = (x) => (Math.abs(x) >= 1000 || (x !== 0 && Math.abs(x) < 0.001) ? x.toExponential(2) : x.toFixed(3));
function vector(name, values) {
  const shown = values.slice(0, MOST_NUMBERS);
  const about = values.length > shown.length ? say("number", shown.length, values.length) : say("every", values.length);
  return made("p", {}, made("strong", {}, say(name)), ` (${about}) `, made("code", {}, shown.map(digits).join("  ")));
}
const short = (values) => made("code", {}, values.slice(0, 4).map(digits).join("  ") + (values.length > 4 ? " …" : ""));

// The row of a token: its query, of each column key, score, mask, weight and value, and what comes of it.
function unfolded() {
  if (!opened) { $("head-opened").replaceChildren(); return; }
  const row = Math.min(Number($("open-row").value) || 1, opened.rows.length) - 1;
  const names = ["token", "keys", "scores", "mask", "weights", "values"];
  const head = made("tr", {}, ...names.map((name) => made("th", {scope: "col"}, say(name))));
  const body = opened.columns.map((name, s) => made("tr", {}, made("th", {scope: "row"}, name),
    made("td", {}, short(opened.keys[s])), made("td", {}, digits(opened.scores[row][s])),
    made("td", {}, say(opened.mask[row][s] ? "sees" : "hidden")), made("td", {}, digits(opened.weights[row][s])),
    made("td", {}, short(opened.values[s]))));
  const table = made("table", {}, made("caption", {}, `${opened.head} · ${row + 1} ${opened.rows[row]}`),
    made("thead", {}, head), made("tbody", {}, ...body));
  const place = made("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": say("opened")}, table);
  $("head-opened").replaceChildren(vector("queries", opened.queries[row]), place, vector("mixed", opened.mixed[row]),
    vector("output", opened.output[row]));
}

register({
  name: "heads", order: 60, say,
  fits: (runs) => frame.server && runs.length > 0 && Boolean(runs[0].parts?.some((part) => part.name === "cross")),
  open(panel) {
    panel.innerHTML = BODY;
    $("edit-head").addEventListener("change", rows);
    $("open-head").addEventListener("change", () => { rows(); if (opened) open(); });
    $("open-row").addEventListener("change", unfolded);
    $("heads-svg").addEventListener("click", () => {
      const shown = ["switches", "edits", "changes", "head-opened"].map($).filter((one) => one.textContent);
      saveSvg(joined(shown.map(seen), true), "heads.svg", say("heads"));
    });
    $("open-it").addEventListener("click", open);
    $("undo").addEventListener("click", () => { off.clear(); edits = []; listed(); switches(); change(); });
    $("edit-put").addEventListener("click", () => {
      const [part, layer, head] = $("edit-head").value.split(".");
      edits = [...edits, {part, layer: Number(layer), head: Number(head), row: Number($("edit-row").value),
        column: Number($("edit-column").value), weight: Number($("edit-weight").value)}];
      listed();
      change();
    });
    return {
      load() { edits = []; opened = null; listed(); choices(); unfolded(); change(); },
      draw() { recolour(); speak(panel, say); switches(); listed(); choices(); unfolded(); },
    };
  },
});
