// Asking the server that stands behind the page: by a line that somebody types, and by views that want to know more.

import { $, frame, show, speak, speaks } from "./frame.js";

const say = speaks({
  en: {line: "Line", written: "made to write (or what it would)", beside: "beside it, another line", from: "from", to: "into",
    key: "API key", working: "…", "": ""},
  zh: {line: "文本", written: "强制写出（留空则由模型写）", beside: "旁边另一行", from: "源语言", to: "目标语言", key: "API 密钥",
    working: "……", "": ""},
});
const FORM = `<label class="wide"><span data-say="line"></span><input id="line" maxlength="2000" autocomplete="off"></label>
<label class="wide"><span data-say="written"></span><input id="written" maxlength="2000" autocomplete="off"></label>
<label class="wide"><span data-say="beside"></span><input id="line-2" maxlength="2000" autocomplete="off"></label>
<label><span data-say="from"></span><select id="from"></select></label>
<label><span data-say="to"></span><select id="to"></select></label>
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

let asking = null, timer = 0;
async function explore() {
  clearTimeout(timer);
  asking?.abort();
  const first = question(), other = $("line-2").value;
  if (!first.text.trim()) { $("asked").textContent = ""; show([]); return; }
  const mine = asking = new AbortController();
  $("asked").textContent = say("working");
  try {
    const runs = [await ask("v1/explore", first, mine.signal)];
    if (other.trim()) runs.push(await ask("v1/explore", {...first, text: other, translation: null}, mine.signal));
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
  $(id).replaceChildren(...codes.map((code) => new Option(nameOf(code), code)));
  if (codes.includes(chosen)) $(id).value = chosen;
}

async function begin() {
  const given = new URLSearchParams(location.hash.slice(1)), form = $("ask");
  form.innerHTML = FORM;
  form.hidden = false;
  speak(form, say);
  $("key").value = kept.get("regard.key");
  const [pairs, settings] = await Promise.all(["languages", "frontend/settings"].map(async (path) => (await fetch(path)).json()));
  const languages = (chosen) => {
    options("from", pairs.filter((each) => each.targets.length).map((each) => each.code), chosen.from);
    options("to", pairs.find((each) => each.code === $("from").value)?.targets ?? [], chosen.to);
  };
  $("access").hidden = !settings.keyRequired;
  languages({from: given.get("source"), to: given.get("target")});
  $("line").value = given.get("text") ?? "";
  form.addEventListener("submit", (event) => { event.preventDefault(); explore(); });
  for (const id of ["line", "written", "line-2"]) $(id).addEventListener("input", soon);
  $("from").addEventListener("change", () => { languages({from: $("from").value, to: $("to").value}); explore(); });
  $("to").addEventListener("change", explore);
  $("key").addEventListener("change", () => { kept.set("regard.key", $("key").value); explore(); });
  $("language").addEventListener("change", () => {
    speak(form, say);
    languages({from: $("from").value, to: $("to").value});
  });
  explore();
}

// The form, where there is a server to ask.
export function askable() { if (frame.server) begin(); }
