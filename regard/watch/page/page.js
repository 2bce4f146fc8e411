// The page of runs: asks its server what is new, or reads the report that it stands in, and shows it.

import {WORDS} from "./words.js";
import {changed, written} from "./numbers.js";
import {Figure, row} from "./curves.js";
import {drawWeights, matrix, strongest} from "./weights.js";

const $ = (id) => document.getElementById(id);
const EVERY = 2000, COLOURS = 6, STEP = 700;
const report = $("report") ? JSON.parse($("report").textContent) : null;
const runs = [];  // as the server tells of them, with all events so far and the results that were fetched
const figures = new Map();
const state = {language: "en", sentence: 0, at: null, follows: true, hidden: new Set(), playing: null, paused: false};

function say(word, ...values) {
  const text = WORDS[state.language][word] ?? word;
  return values.reduce((said, value) => said.replace("{}", value), text);
}

const remember = (key, value) => { try { localStorage.setItem(`regard-watch-${key}`, value); } catch { /* not allowed */ } };
const recalled = (key) => { try { return localStorage.getItem(`regard-watch-${key}`); } catch { return null; } };

function swatched(number, text) {
  const mark = document.createElement("span"), all = document.createElement("span");
  mark.className = "swatch";
  mark.style.background = `var(--run-${number % COLOURS})`;
  all.append(mark, text);
  return all;
}

// -- what is known ----------------------------------------------------------------------------------------------------

function take(number, news) {
  const before = runs[number];
  const same = before && before.generation === news.generation;
  const events = same ? before.events : {};
  for (const [kind, columns] of Object.entries(news.events)) {
    const known = events[kind] ??= {};
    const length = Math.max(0, ...Object.values(known).map((each) => each.length));
    for (const [key, values] of Object.entries(columns)) known[key] = (known[key] ?? Array(length).fill(null)).concat(values);
  }
  runs[number] = {...news, events, results: news.results ?? before?.results ?? {}};
}

const lengthOf = (run, kind) => run?.events[kind]?.update?.length ?? 0;

async function ask(path) {
  const answer = await fetch(path, {cache: "no-store"});
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

async function look() {
  if (!state.paused && !document.hidden) {
    try {
      const names = await ask("runs");
      for (let number = 0; number < names.length; number++) {
        const run = runs[number];
        const seen = ["train", "validate", "cut"].map((kind) => `${kind}=${lengthOf(run, kind)}`).join("&");
        take(number, await ask(`runs/${number}?generation=${run ? run.generation : -1}&${seen}`));
        await fetchResults(number);
      }
      $("status").textContent = say("live", new Date().toLocaleTimeString(state.language));
      show();
    } catch {
      $("status").textContent = say("lost");
    }
  }
  setTimeout(look, EVERY);
}

async function fetchResults(number) {
  const run = runs[number], kept = {};
  for (const checkpoint of run.checkpoints.filter((each) => each.translated)) {
    const old = run.results[checkpoint.name];
    const fits = old && JSON.stringify(old.stamp) === JSON.stringify(checkpoint.stamp);
    try {
      kept[checkpoint.name] = fits ? old : await ask(`runs/${number}/results/${encodeURIComponent(checkpoint.name)}`);
    } catch { /* removed in between */ }
  }
  run.results = kept;
}

// -- runs and checkpoints ---------------------------------------------------------------------------------------------

function fill(id, heads, rows) {
  const table = $(id);
  table.tHead.replaceChildren();
  row(table.tHead, heads, "th");
  table.tBodies[0].replaceChildren();
  return rows.map((cells) => row(table.tBodies[0], cells));
}

const scoreOf = (best) => Object.entries(best).map(([key, value]) => `${key} ${written(value)}`).join(", ");

function showRuns() {
  const focused = document.activeElement?.dataset?.run;
  const several = runs.length > 1;
  const heads = [...several ? ["shown"] : [], "run", "state", "update", "last-loss", "best", "speed", "time"].map((word) => say(word));
  fill("runs", heads, runs.map((run, number) => {
    const cells = [swatched(number, run.name), stateOf(run), `${written(run.last.update ?? 0)} / ${written(run.max_updates)}`,
      written(run.last.loss), scoreOf(run.best) || "–", written(run.last.tokens_per_second, 3),
      written((run.last.seconds ?? NaN) / 60, 3)];
    return several ? [shownBox(run, number), ...cells] : cells;
  }));
  if (focused !== undefined) document.querySelector(`[data-run="${focused}"]`)?.focus();
}

function stateOf(run) {
  const said = say(run.state) + (run.translating ? `, ${say("translating", run.translating)}` : "");
  if (!run.wrong) return said;
  const wrong = document.createElement("span"), all = document.createElement("span");
  wrong.className = "wrong";
  wrong.textContent = ` ${run.wrong}`;
  all.append(said, wrong);
  return all;
}

function shownBox(run, number) {
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = !state.hidden.has(number);
  box.dataset.run = number;
  box.setAttribute("aria-label", `${say("shown")}: ${run.name}`);
  box.addEventListener("change", () => {
    if (box.checked) state.hidden.delete(number); else state.hidden.add(number);
    show();
  });
  return box;
}

const shownRuns = () => runs.map((run, number) => [run, number]).filter(([, number]) => !state.hidden.has(number));

function devLoss(run, update) {
  const {update: updates = [], loss = []} = run.events.validate ?? {};
  return loss[updates.indexOf(update)];
}

const nameOf = (checkpoint) => checkpoint.name === "bundle" ? say("bundle") : written(checkpoint.update);

function showCheckpoints() {
  const heads = ["run", "update", "dev-loss", "saved", "on-disk", "translated"].map((word) => say(word));
  const rows = shownRuns().flatMap(([run, number]) => run.checkpoints.map((one) => [swatched(number, run.name), nameOf(one),
    written(devLoss(run, one.update)), one.time ? new Date(1000 * one.time).toLocaleString(state.language) : "–",
    say(one.on_disk ? "yes" : "no"), one.error ?? (one.translated ? say("yes") : "–")]));
  fill("checkpoints", heads, rows);
}

// -- curves -----------------------------------------------------------------------------------------------------------

// Events of the dev set know only their update; the training's tell how many tokens and seconds that was.
function along(run, updates, key) {
  if (key === "update") return updates;
  const {update: known = [], [key]: values = []} = run.events.train ?? {};
  const found = [];
  let i = 0;
  for (const update of updates) {
    while (i < known.length - 1 && known[i + 1] <= update) i += 1;
    const value = values[i] ?? null;
    found.push(key === "seconds" && value !== null ? value / 60 : value);
  }
  return found;
}

function linesOf(key) {
  const chosen = $("along").value, lines = [];
  for (const [run, number] of shownRuns()) for (const kind of ["train", "validate"]) {
    const columns = run.events[kind];
    if (!columns?.[key] || !columns[key].some((value) => value !== null)) continue;
    const name = [runs.length > 1 ? run.name : "", key === "loss" ? say(kind) : ""].filter(Boolean).join(", ");
    lines.push({name, colour: number % COLOURS, kind, xs: along(run, columns.update, chosen), ys: columns[key]});
  }
  return lines;
}

const LEFT_OUT = new Set(["update", "tokens", "seconds", "trained", "epoch", "improved", "perplexity"]);

function showCurves() {
  const scores = runs.flatMap((run) => Object.keys(run.events.validate ?? {})).filter((key) => !LEFT_OUT.has(key));
  const others = runs.flatMap((run) => Object.keys(run.events.train ?? {})).filter((key) => !LEFT_OUT.has(key));
  const keys = [...new Set(["loss", ...scores, "learning_rate", "tokens_per_second", "norm", ...others])];
  const smooth = Number($("smooth").value), log = $("log").checked, shown = new Set();
  for (const key of keys) {
    const lines = linesOf(key);
    if (!lines.length) continue;
    shown.add(key);
    if (!figures.has(key)) {
      figures.set(key, new Figure(key));
      $("curves").append(figures.get(key).element);
    }
    figures.get(key).draw(lines, {log, smooth, title: say(key), along: say($("along").value), say});
  }
  for (const [key, figure] of figures) if (!shown.has(key)) { figure.element.remove(); figures.delete(key); }
  if (!figures.size) $("curves").textContent = say("none");
  else for (const child of [...$("curves").childNodes]) if (child.nodeType === 3) child.remove();
}

// -- sentences --------------------------------------------------------------------------------------------------------

const order = (name) => name === "bundle" ? 1 : 0;

// Of every checkpoint with results in any run that is shown: its update, and whether it is the bundle.
function moments() {
  const all = shownRuns().flatMap(([run]) => Object.values(run.results).filter((one) => one.samples));
  const keyed = new Map(all.map((one) => [`${one.update}-${order(one.name)}`, [one.update, order(one.name)]]));
  return [...keyed.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}

const resultsOf = (run) => Object.values(run.results).filter((one) => one.samples)
  .sort((a, b) => a.update - b.update || order(a.name) - order(b.name));

function resultAt(run, [update, last]) {
  return resultsOf(run).filter((one) => one.update < update || (one.update === update && order(one.name) <= last)).at(-1);
}

// Runs may have other sentences; those of the first that has any are offered, and looked for in each run by their text.
function sentencesNow() {
  const found = new Map();
  for (const [run] of shownRuns()) for (const one of resultsOf(run).slice(-1)[0]?.samples ?? []) {
    if (!found.has(one.source)) found.set(one.source, one);
  }
  return [...found.values()];
}

function setOptions(select, options, value) {
  const now = [...select.options].map((each) => each.textContent).join("\n");
  if (now !== options.map((each) => each[1]).join("\n")) {
    select.replaceChildren(...options.map(([key, text]) => new Option(text, key)));
  }
  select.value = value;
}

function showSentences() {
  const times = moments(), sentences = sentencesNow();
  $("sentences").hidden = !sentences.length;
  if (!sentences.length) return;
  state.sentence = Math.min(state.sentence, sentences.length - 1);
  setOptions($("sentence"), sentences.map((one, i) => [i, one.source]), state.sentence);
  const sentence = sentences[state.sentence];
  $("source").textContent = sentence.source;
  $("reference").textContent = sentence.reference || "–";
  const at = state.follows || state.at === null ? times.length - 1 : Math.min(state.at, times.length - 1);
  state.at = at;
  $("at").max = times.length - 1;
  $("at").value = at;
  $("at-said").textContent = say("at", written(times[at][0])) + (times[at][1] ? `, ${say("bundle")}` : "");
  $("at").setAttribute("aria-valuetext", $("at-said").textContent);
  showMade(sentence.source, times, at);
  showAll(sentence.source, times, at);
}

const sampleOf = (result, source) => result?.samples.find((one) => one.source === source);

function marked(text, before) {
  const words = text.split(" "), all = document.createElement("span");
  const fresh = before === undefined ? words.map(() => false) : changed(before.split(" ").slice(0, 200), words.slice(0, 200));
  words.forEach((word, i) => {
    const one = fresh[i] ? document.createElement("mark") : document.createElement("span");
    one.textContent = word;
    all.append(i ? " " : "", one);
  });
  return all;
}

function showMade(source, times, at) {
  const boxes = shownRuns().map(([run, number]) => {
    const result = resultAt(run, times[at]), sample = sampleOf(result, source);
    const earlier = resultsOf(run).slice(0, resultsOf(run).indexOf(result));
    const box = document.createElement("figure"), title = document.createElement("h3"), text = document.createElement("p");
    title.append(swatched(number, `${run.name}, ${result ? nameOf(result) : "–"}`));
    text.append(sample ? marked(sample.text ?? sample.error, sampleOf(earlier.at(-1), source)?.text) : say("not-yet"));
    box.append(title, text);
    if (sample?.log_probability !== undefined) box.append(note(say("log-probability", written(sample.log_probability))));
    const attention = sample?.[$("over").value] ?? sample?.own;
    if (attention) box.append(...pictureOf(run, attention));
    else if (sample) box.append(note(say("no-attention")));
    return box;
  });
  const open = $("made").querySelector("details")?.open, focused = $("made").contains(document.activeElement);
  $("made").replaceChildren(...boxes);
  if (open) for (const each of $("made").querySelectorAll("details")) each.open = true;
  if (focused) $("made").querySelector("summary")?.focus();
}

function note(text) {
  const made = document.createElement("p");
  made.className = "note";
  made.textContent = text;
  return made;
}

function pictureOf(run, attention) {
  const count = attention.layers.length, chosen = Number($("layer").value || -1);
  setOptions($("layer"), [[-1, say("mean")], ...attention.layers.map((_, i) => [i, String(i + 1)])], Math.min(chosen, count - 1));
  const weights = matrix(attention, Number($("layer").value));
  const canvas = document.createElement("canvas"), details = document.createElement("details");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", say("picture", run.name));
  drawWeights(canvas, attention, weights);
  const summary = document.createElement("summary"), table = document.createElement("table");
  summary.textContent = say("strongest");
  row(table.createTHead(), ["token", "looks-at", "weight"].map((word) => say(word)), "th");
  const body = table.createTBody();
  for (const cells of strongest(attention, weights)) row(body, cells);
  details.append(summary, table);
  return [canvas, details];
}

function showAll(source, times, at) {
  const columns = shownRuns();
  const rows = fill("translations", [say("checkpoint"), ...columns.map(([run]) => run.name)], times.map((time, i) => [
    time[1] ? say("bundle") : written(time[0]),
    ...columns.map(([run]) => {
      const exact = resultsOf(run).find((one) => one.update === time[0] && order(one.name) === time[1]);
      const before = i && sampleOf(resultAt(run, times[i - 1]), source)?.text;
      const sample = sampleOf(exact, source);
      return sample ? marked(sample.text ?? sample.error, before || undefined) : "–";
    }),
  ]));
  rows[at]?.classList.add("now");
}

// -- the page ---------------------------------------------------------------------------------------------------------

function show() {
  showRuns();
  showCurves();
  showSentences();
  showCheckpoints();
}

function speak(language) {
  state.language = language in WORDS ? language : "en";
  document.documentElement.lang = state.language;
  document.title = say("title");
  $("language").value = state.language;
  for (const each of document.querySelectorAll("[data-word]")) each.textContent = say(each.dataset.word);
  for (const id of ["along", "over"]) for (const option of $(id).options) option.textContent = say(option.value);
  if (report) $("status").textContent = say("fixed");
  $("smoothed").textContent = Number($("smooth").value).toFixed(2);
  if (runs.length) show();
}

function play() {
  const on = state.playing === null;
  $("play").setAttribute("aria-pressed", on);
  if (!on) {
    clearInterval(state.playing);
    state.playing = null;
    return;
  }
  state.at = state.at >= Number($("at").max) ? 0 : state.at;
  state.follows = false;
  showSentences();
  state.playing = setInterval(() => {
    if (state.at >= Number($("at").max)) return play();
    state.at += 1;
    showSentences();
  }, STEP);
}

function listen() {
  $("language").addEventListener("change", () => { remember("language", $("language").value); speak($("language").value); });
  $("pause").addEventListener("click", () => {
    state.paused = !state.paused;
    $("pause").setAttribute("aria-pressed", state.paused);
    if (state.paused) $("status").textContent = say("paused");
  });
  for (const id of ["along", "log"]) $(id).addEventListener("change", showCurves);
  $("smooth").addEventListener("input", () => { $("smoothed").textContent = Number($("smooth").value).toFixed(2); showCurves(); });
  $("sentence").addEventListener("change", () => { state.sentence = Number($("sentence").value); showSentences(); });
  for (const id of ["over", "layer"]) $(id).addEventListener("change", showSentences);
  $("at").addEventListener("input", () => {
    state.at = Number($("at").value);
    state.follows = state.at >= Number($("at").max);
    showSentences();
  });
  $("play").addEventListener("click", play);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (runs.length) showSentences(); });
}

listen();
speak(recalled("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
if (report) {
  $("pause").hidden = true;
  report.forEach((run, number) => take(number, run));
  show();
} else {
  look();
}
