// The page at /: translates while one types, shows where words come from, offers others, keeps terms and a history.

import { teacher } from "./teach.js";
import { WORDS } from "./words.js";

const $ = (id) => document.getElementById(id);
const kept = {
  get: (name, otherwise) => { try { return JSON.parse(localStorage.getItem(`regard.${name}`)) ?? otherwise; } catch { return otherwise; } },
  set: (name, value) => { try { localStorage.setItem(`regard.${name}`, JSON.stringify(value)); } catch { /* a browser that keeps nothing */ } },
};
const WAIT = 250, MOST_PAST = 50;
let language = kept.get("language", navigator.language.startsWith("zh") ? "zh" : "en");
let pairs = [], most = 50000, asking = null, timer = 0, shown = null;

// -- words of the page ------------------------------------------------------------------------------------------------

const say = (word, ...values) => values.reduce((text, value) => text.replace("{}", value), WORDS[language][word]);
const nameOf = (code) => {
  try { return new Intl.DisplayNames([language], { type: "language" }).of(code); } catch { return code; }
};

function speak() {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-word]")) element.textContent = say(element.dataset.word);
  $("progress").setAttribute("aria-label", say("progress"));
  listLanguages();
  count();
  if (pairs.length) teach.list();
}

function options(select, codes, first, chosen) {
  select.replaceChildren(...[...first, ...codes.map((code) => [code, nameOf(code)])].map(([value, text]) => new Option(text, value)));
  select.value = [...select.options].some((option) => option.value === chosen) ? chosen : select.options[0]?.value ?? "";
}

function listLanguages() {
  const sources = pairs.filter((each) => each.targets.length).map((each) => each.code);
  options($("from"), sources, sources.length > 1 ? [["", say("detect")]] : [], $("from").value || kept.get("from", ""));
  const from = $("from").value;
  const into = [...new Set(pairs.filter((each) => !from || each.code === from).flatMap((each) => each.targets))].sort();
  options($("to"), into, [], $("to").value || kept.get("to", ""));
  const back = pairs.find((each) => each.code === $("to").value);
  $("swap").disabled = !from || !back?.targets.includes(from);
}

// -- asking -----------------------------------------------------------------------------------------------------------

async function ask(path, body, signal, method = "POST") {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  const answer = await fetch(path, { method, headers, body: JSON.stringify(body), signal });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error ?? answer.statusText);
  return found;
}

function terms() {
  const found = [], wrong = [];
  $("glossary").value.split("\n").forEach((line, at) => {
    const cut = line.indexOf("=");
    if (cut > 0 && line.slice(cut + 1).trim()) found.push([line.slice(0, cut).trim(), line.slice(cut + 1).trim()]);
    else if (line.trim()) wrong.push(at + 1);
  });
  $("terms-wrong").textContent = wrong.length ? say("bad-line", wrong[0]) : "";
  return found;
}

const wanted = () => ({ source: $("from").value || null, target: $("to").value });

function soon() {
  clearTimeout(timer);
  timer = setTimeout(translate, WAIT);
}

async function translate(constraints = {}) {
  clearTimeout(timer);
  asking?.abort();
  const text = $("source").value;
  closeOthers();
  if (!text.trim()) { show(null); $("state").textContent = ""; return; }
  const mine = asking = new AbortController();
  $("state").textContent = say("working");
  try {
    const body = { ...wanted(), text, alignment: true, confidence: true, matches: 3, constraints: { glossary: terms(), ...constraints } };
    const found = await ask("v1/translate", body, mine.signal);
    if (mine !== asking) return;
    show({ text, ...found });
    $("state").textContent = say("done");
    remember(text, found);
  } catch (error) {
    if (mine === asking) $("state").textContent = error.name === "AbortError" ? "" : error.message;
  }
}

const teach = teacher({ ask, say, again: () => translate() });

// -- showing ----------------------------------------------------------------------------------------------------------

function count() {
  $("count").textContent = say("characters", [...$("source").value].length.toLocaleString(language), most.toLocaleString(language));
}

function show(found) {
  shown = found;
  mark([]);
  $("target").replaceChildren();
  $("look").hidden = !found;
  $("detected").textContent = "";
  teach.shown(found);
  if (!found) return;
  if (!$("from").value) $("detected").textContent = say("found", nameOf(found.source));
  $("target").lang = found.target;
  const query = new URLSearchParams({ text: found.text.split("\n").find((line) => line.trim()), source: found.source, target: found.target });
  $("look").href = `explore#${query}`;  // what stands behind # is sent to nobody; the key goes by this tab's own store
  let start = 0;
  const lines = found.text.split("\n");
  found.translations[0].lines.forEach((line, number) => {
    if (number) $("target").append("\n");
    $("target").append(...wordsOf(line, number, start));
    start += lines[number].length + 1;
  });
}

// A line's words as elements; `start` is where its source stands in the text. Offsets count characters, not UTF-16's units.
function wordsOf(line, number, start) {
  const letters = [...line.text], parts = [];
  let at = 0;
  (line.words ?? []).forEach((word, index) => {
    parts.push(letters.slice(at, word.start).join(""));
    const element = document.createElement("span");
    element.className = "word";
    element.textContent = letters.slice(word.start, word.end).join("");
    element.tabIndex = 0;
    element.setAttribute("role", "button");
    element.dataset.sure = word.confidence === undefined ? 2 : word.confidence < 0.5 ? 0 : word.confidence < 0.8 ? 1 : 2;
    if (word.confidence !== undefined) element.title = `${Math.round(100 * word.confidence)} %`;
    const from = (line.alignment ?? []).filter((link) => link.target === index).map((link) => line.source_words[link.source]);
    const over = () => mark(from.map((each) => [start, each]));
    for (const event of ["pointerenter", "focus"]) element.addEventListener(event, over);
    for (const event of ["pointerleave", "blur"]) element.addEventListener(event, () => mark([]));
    const press = () => others(element, line, number, letters.slice(0, word.start).join(""));
    element.addEventListener("click", press);
    element.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(); } });
    parts.push(element);
    at = word.end;
  });
  parts.push(letters.slice(at).join(""));
  return parts;
}

// Marks words of the source, in a copy of it that lies behind the field.
function mark(places) {
  const mirror = $("mirror"), text = $("source").value;
  mirror.replaceChildren();
  if (!places.length) return;
  const start = places[0][0], line = [...text.slice(start).split("\n")[0]];
  mirror.append(text.slice(0, start));
  let at = 0;
  for (const [, word] of places.sort((a, b) => a[1].start - b[1].start)) {
    mirror.append(line.slice(at, word.start).join(""));
    const marked = document.createElement("mark");
    marked.textContent = line.slice(word.start, word.end).join("");
    mirror.append(marked);
    at = word.end;
  }
  mirror.append(line.slice(at).join(""));
  mirror.scrollTop = $("source").scrollTop;
}

// -- other words ------------------------------------------------------------------------------------------------------

function closeOthers() {
  $("others").hidden = true;
  $("others").replaceChildren();
}

async function others(element, line, number, before) {
  closeOthers();
  const source = shown.text.split("\n")[number];
  const menu = $("others");
  const give = (text, press) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("role", "menuitem");
    button.textContent = text;
    if (press) button.addEventListener("click", press); else button.disabled = true;
    menu.append(button);
  };
  let found;
  try {
    const body = { source: shown.source, target: shown.target, text: source, n_best: 8, search: { beam: 8 }, split: false };
    if (before.trim()) body.constraints = { prefix: before.trimEnd() };
    found = (await ask("v1/translate", body)).translations[0].lines[0];
  } catch (error) {
    $("state").textContent = error.message;
    return;
  }
  const own = element.textContent, seen = new Set([own]);
  for (const each of found.hypotheses ?? []) {
    const next = each.text.slice(before.trimEnd().length).trimStart().match(/^[\p{L}\p{N}'’-]+|^\S/u)?.[0];
    if (!next || seen.has(next)) continue;
    seen.add(next);
    give(next, () => replace(number, each.text));
  }
  if (seen.size === 1) give(say("none"));
  menu.setAttribute("aria-label", say("others"));
  menu.style.left = `${Math.min(element.offsetLeft, $("target").clientWidth - 160)}px`;
  menu.style.top = `${$("target").offsetTop + element.offsetTop + element.offsetHeight}px`;
  menu.hidden = false;
  menu.querySelector("button:not(:disabled)")?.focus();
}

async function replace(number, text) {
  closeOthers();
  const source = shown.text.split("\n")[number];
  const body = { source: shown.source, target: shown.target, text: source, alignment: true, confidence: true, split: false };
  const found = await ask("v1/translate", { ...body, constraints: { prefix: text } });
  const lines = shown.translations[0].lines.map((line, at) => at === number ? found.translations[0].lines[0] : line);
  show({ ...shown, translations: [{ text: lines.map((line) => line.text).join("\n"), lines }] });
}

// -- documents --------------------------------------------------------------------------------------------------------

async function send() {
  const file = $("file").files[0], bar = $("progress"), link = $("result");
  if (!file) return;
  link.hidden = true;
  $("document-state").textContent = "";
  const headers = $("key").value ? { Authorization: `Bearer ${$("key").value}` } : {};
  const get = async (path, options = {}) => {
    const answer = await fetch(path, { headers, ...options });
    if (!answer.ok) throw new Error((await answer.json()).error ?? answer.statusText);
    return answer;
  };
  try {
    bar.hidden = false;
    bar.removeAttribute("value");
    const body = new FormData();
    for (const [name, value] of Object.entries({ file, source: $("from").value || "auto", target: $("to").value })) body.append(name, value);
    let work = await (await get("v1/documents", { method: "POST", body })).json();
    const place = `v1/documents/${work.document_id}`;
    while (work.status !== "done") {
      if (work.status === "error") throw new Error(work.error_message);
      if (work.lines) bar.value = work.lines_done / work.lines;
      await new Promise((done) => setTimeout(done, 200));
      work = await (await get(place)).json();
    }
    const blob = await (await get(`${place}/result`)).blob();
    const dot = file.name.lastIndexOf(".");
    link.download = `${file.name.slice(0, dot)}.${$("to").value}${file.name.slice(dot)}`;
    link.href = URL.createObjectURL(blob);
    link.textContent = link.download;
    link.hidden = false;
  } catch (error) {
    $("document-state").textContent = error.message;
  }
  bar.hidden = true;
}

// -- history ----------------------------------------------------------------------------------------------------------

function remember(text, found) {
  const translation = found.translations[0].text;
  let past = kept.get("history", []);
  if (past[0] && text.startsWith(past[0].text)) past.shift();  // it was typed on
  past = [{ text, translation, source: found.source, target: found.target }, ...past].slice(0, MOST_PAST);
  kept.set("history", past);
  listPast();
}

function listPast() {
  $("history").replaceChildren(...kept.get("history", []).map((one) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = `${one.text.slice(0, 80)} → ${one.translation.slice(0, 80)}`;
    button.addEventListener("click", () => { $("source").value = one.text; count(); translate(); });
    item.append(button);
    return item;
  }));
}

// -- the beginning ----------------------------------------------------------------------------------------------------

$("source").addEventListener("input", () => { count(); mark([]); soon(); });
$("source").addEventListener("scroll", () => { $("mirror").scrollTop = $("source").scrollTop; });
$("glossary").addEventListener("input", () => { kept.set("glossary", $("glossary").value); soon(); });
$("from").addEventListener("change", () => { kept.set("from", $("from").value); listLanguages(); translate(); });
$("to").addEventListener("change", () => { kept.set("to", $("to").value); listLanguages(); translate(); });
$("key").addEventListener("change", () => { teach.list(); translate(); });
$("language").addEventListener("change", () => { language = $("language").value; kept.set("language", language); speak(); });
$("shade").addEventListener("change", () => { $("target").classList.toggle("shaded", $("shade").checked); kept.set("shade", $("shade").checked); });
$("file").addEventListener("change", send);
$("look").addEventListener("click", () => { try { sessionStorage.setItem("regard.key", $("key").value); } catch { /* none kept */ } });
$("clear").addEventListener("click", () => { $("source").value = ""; count(); translate(); $("source").focus(); });
$("forget").addEventListener("click", () => { kept.set("history", []); listPast(); });
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(shown?.translations[0].text ?? "");
  $("state").textContent = say("copied");
});
$("swap").addEventListener("click", () => {
  const [from, to] = [$("from").value, $("to").value];
  $("from").value = to;
  $("to").value = "";
  kept.set("to", from);
  listLanguages();
  $("source").value = shown?.translations[0].text ?? $("source").value;
  count();
  translate();
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeOthers(); });
document.addEventListener("click", (event) => { if (!event.target.closest?.(".menu, .word")) closeOthers(); });

$("language").value = language;
$("glossary").value = kept.get("glossary", "");
$("shade").checked = kept.get("shade", false);
$("target").classList.toggle("shaded", $("shade").checked);
const [known, settings] = await Promise.all(["languages", "frontend/settings"].map(async (path) => (await fetch(path)).json()));
pairs = known;
most = settings.charLimit;
$("access").hidden = !settings.keyRequired;
$("source").maxLength = most;
speak();
show(null);
listPast();
$("source").focus();
