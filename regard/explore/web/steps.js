// The view of the steps: of each token that was written its probability, its rank and what else was likely.

import { $, frame, register, speak, speaks } from "./frame.js";
import { recolour, saveSvg } from "./drawing.js";
import { seen } from "./seen.js";

const say = speaks({
  en: {steps: "Probabilities", step: "step", written: "written", probability: "probability", rank: "rank",
    entropy: "entropy (bits)", others: "likeliest tokens",
    about: "A step's probabilities are given the source and the tokens before it. Entropy says how open the step was: 0 bits " +
      "where one token was certain, 1 where two were equally likely.",
    all: (total, perplexity) => `Log-probability in all ${total}; perplexity per token ${perplexity}.`},
  zh: {steps: "概率", step: "步", written: "写出", probability: "概率", rank: "排名", entropy: "熵（比特）", others: "最可能的词元",
    about: "每一步的概率以原文和此前的词元为条件。熵说明这一步有多开放：0 比特即只有一个词元可能，1 比特即两个词元同样可能。",
    all: (total, perplexity) => `总对数概率 ${total}；每词元困惑度 ${perplexity}。`},
});
const PANEL = `<div id="tables"></div><p class="soft" data-say="about"></p>
<p><button type="button" id="steps-svg" data-say="svg"></button></p>`;
const COLUMNS = ["step", "written", "probability", "rank", "entropy", "others"];

function cell(kind, ...children) {
  const made = document.createElement(kind);
  made.append(...children);
  return made;
}
const percent = (probability) => `${(100 * probability).toFixed(probability < 0.1 ? 2 : 1)} %`;

function rowOf(step, number) {
  const row = cell("tr", cell("td", String(number + 1)), cell("th", step.token));
  row.children[1].scope = "row";
  const likely = cell("td", percent(step.probability));
  likely.className = "bar";
  likely.style.setProperty("--share", step.probability);
  row.append(likely, cell("td", String(step.rank)), cell("td", (step.entropy / Math.LN2).toFixed(2)));
  row.append(cell("td", ...step.alternatives.flatMap(([token, probability], place) => {
    const one = cell("span", `${token} ${percent(probability)}`);
    one.className = step.rank === place + 1 && token === step.token ? "alternative written" : "alternative";
    return [one, " "];
  })));
  return row;
}

function tableOf(run) {
  const head = cell("tr", ...COLUMNS.map((name) => cell("th", say(name))));
  for (const each of head.children) each.scope = "col";
  const table = cell("table", cell("caption", run.name || say("steps")), cell("thead", head), cell("tbody", ...run.steps.map(rowOf)));
  const total = run.steps.reduce((sum, step) => sum + step.log_probability, 0);
  const place = cell("div", table);
  place.className = "scroll";
  place.tabIndex = 0;
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", say("steps"));
  return cell("div", place, cell("p", say("all", total.toFixed(4), Math.exp(-total / run.steps.length).toFixed(2))));
}

register({
  name: "steps", order: 20, say,
  fits: (runs) => runs.some((run) => run.steps),
  open(panel) {
    panel.innerHTML = PANEL;
    $("steps-svg").addEventListener("click", () => saveSvg(seen($("tables")), "probabilities.svg", say("steps")));
    return {
      load() {},
      draw() {
        recolour();
        speak(panel, say);
        $("tables").replaceChildren(...frame.runs.filter((run) => run.steps).map(tableOf));
      },
    };
  },
});
