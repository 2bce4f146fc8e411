// Asking the server that stands behind the page: by a line that somebody types, and by views that want to know more.

import { $, frame, show, speak, speaks } from "./frame.js";

const say = speaks({
  en: {line: "Line", written: "made to write (or what it would)", beside: "beside it, another line", from: "from", to: "into",
    besideFrom: "beside it, from", besideTo: "beside it, into", same: "the same",
    key: "API key", working: "…", "": ""},
  zh: {line: "文本", written: "强制写出（留空则由模型写）", beside: "旁边另一行", from: "源语言", to: "目标语言", key: "API 密钥",
    besideFrom: "旁边的源语言", besideTo: "旁边的目标语言", same: "相同",
    working: "……", "": ""},
});
const FORM = `<label class="wide"><span data-say="line"></span><input id="line" maxlength="2000" autocomplete="off"></label>
<label class="wide"><span data-say="written"></span><input id="written" maxlength="2000" autocomplete="off"></label>
<label class="wide"><span data-say="beside"></span><input id="line-2" maxlength="2000" autocomplete="off"></label>
<label><span data-say="from"></span><select id="from"></select></label>
<label><span data-say="to"></span><select id="to"></select></label>
<label class="other" hidden><span data-say="besideFrom"></span><select id="from-2"></select></label>
<label class="other" hidden><span data-say="besideTo"></span><select id="to-2"></select></label>
<label id="access" hidden><span data-say="key"></span><input id="key" type="password" autocomplete="off"></label>
<span id="asked" class="soft" role="status"></span>`;
const WAIT = 300;
const kept = {  // of this tab alone; a key is never written into an address
  get: (name) => { try { return sessionStorage.getItem(name) ?? ""; } catch { return ""; } },
  set: (name, value) => { try { sessionStorage.setItem(name, value); } catch { /* a browser that keeps nothing */ } },
};

// What the server answers to this question, with the key; an Error with its message where it refuses.
export async function ask(path, body, signal) {
  const headers = {"Content-Type": "application/json"};
  if ($("key")?.value) headers.Authorization = `Bearer ${$("key").value}`;
  const answer = await fetch(path, {method: "POST", headers, body: JSON.stringify(body), signal});
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error ?? answer.statusText);
  return found;
}

// The line and languages that are asked about, as every question of the explorer has them.
export function question() {
  const found = {text: $("line").value, source: $("from").value, target: $("to").value};
  return $("written").value ? {...found, translation: $("written").value} : found;
}

const pairOf = ({source, target}) => `${source} → ${target}`;
// What is asked beside it: another line, or the same of another pair; null for nothing.
function question2(first) {
  const other = {source: $("from-2").value || first.source, target: $("to-2").value || first.target}, text = $("line-2").value;
  return text.trim() || pairOf(other) !== pairOf(first) ? {...other, text: text.trim() ? text : first.text} : null;
}

let asking = null, timer = 0;
async function explore() {
  clearTimeout(timer);
  asking?.abort();
  const first = question(), other = question2(first);
  if (!first.text.trim()) { $("asked").textContent = ""; show([]); return; }
  const mine = asking = new AbortController();
  $("asked").textContent = say("working");
  try {
    const runs = [await ask("v1/explore", first, mine.signal)];
    if (other) runs.push(await ask("v1/explore", other, mine.signal));
    if (other && pairOf(other) !== pairOf(first)) [first, other].forEach((one, i) => { runs[i].name = pairOf(one); });
    if (mine !== asking) return;
    $("asked").textContent = "";
    show(runs);
  } catch (error) {
    if (mine === asking && error.name !== "AbortError") $("asked").textContent = error.message;
  }
}
function soon() {
  clearTimeout(timer);
  timer = setTimeout(explore, WAIT);
}

function nameOf(code) {
  try { return new Intl.DisplayNames([frame.language], {type: "language"}).of(code); } catch { return code; }
}
function options(id, codes, chosen) {
  $(id).replaceChildren(...codes.map((code) => new Option(code ? nameOf(code) : say("same"), code)));
  if (codes.includes(chosen)) $(id).value = chosen;
}

async function begin() {
  const given = new URLSearchParams(location.hash.slice(1)), form = $("ask");
  form.innerHTML = FORM;
  form.hidden = false;
  speak(form, say);
  $("key").value = kept.get("regard.key");
  const [served, settings] = await Promise.all(["languages", "frontend/settings"].map(async (path) => (await fetch(path)).json()));
  const into = (code) => served.find((each) => each.code === code)?.targets ?? [];
  const sources = served.map((each) => each.code).filter((code) => into(code).length);
  const languages = (from = $("from").value, to = $("to").value) => {
    const [from2, to2] = [$("from-2").value, $("to-2").value];
    options("from", sources, from);
    options("to", into($("from").value), to);
    options("from-2", ["", ...sources], from2);
    const others = into(from2 || $("from").value);
    options("to-2", others.includes($("to").value) ? ["", ...others] : others, to2);
  };
  $("access").hidden = !settings.keyRequired;
  form.querySelectorAll(".other").forEach((each) => { each.hidden = sources.flatMap(into).length < 2; });
  languages(given.get("source"), given.get("target"));
  $("line").value = given.get("text") ?? "";
  form.addEventListener("submit", (event) => { event.preventDefault(); explore(); });
  for (const id of ["line", "written", "line-2"]) $(id).addEventListener("input", soon);
  for (const id of ["from", "to", "from-2", "to-2"]) $(id).addEventListener("change", () => { languages(); explore(); });
  $("key").addEventListener("change", () => { kept.set("regard.key", $("key").value); explore(); });
  $("language").addEventListener("change", () => {
    speak(form, say);
    languages();
  });
  explore();
}

// The form, where there is a server to ask.
export function askable() { if (frame.server) begin(); }
