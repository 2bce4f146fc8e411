// The frame of the explorer: its runs, its languages, and its views, each a tab.
//
// A run is what one model did with one line: {name, source, target, unit, parts, …}, as `regard.explore.page.run_of` makes
// it. There are one or two, side by side.

export const $ = (id) => document.getElementById(id);
export const range = (count) => Array.from({length: count}, (_, i) => i);

const about = JSON.parse($("about").textContent);
// server: whether a server stands behind this page, which can be asked for more.
export const frame = {language: about.language, server: about.server, colours: about.colours, runs: about.runs, open: ""};

// -- words ------------------------------------------------------------------------------------------------------------

const COMMON = {en: {svg: "Save SVG"}, zh: {svg: "保存 SVG"}};  // words of several views
// A function that says a word in the page's language: words are {en: {word: text or function}, zh: {…}}.
export function speaks(words) {
  return (word, ...values) => {
    const found = words[frame.language][word] ?? COMMON[frame.language][word] ?? word;
    return typeof found === "function" ? found(...values) : found;
  };
}
// Writes the words that elements below `root` ask for by data-say.
export function speak(root, say) {
  root.querySelectorAll("[data-say]").forEach((place) => { place.textContent = say(place.dataset.say); });
}

const say = speaks({
  en: {explorer: "What the model did", attention: "Attention", language: "language", source: "source",
    target: "target", views: "Views"},
  zh: {explorer: "模型做了什么", attention: "注意力", language: "语言", source: "原文", target: "译文", views: "视图"},
});

// -- views ------------------------------------------------------------------------------------------------------------

const VIEWS = [];
// Adds a view:
//   name    its key, and the word of its tab: say(name)
//   order   tabs stand in this order
//   say     what `speaks` gave
//   fits    (runs) -> whether there is something to show of them
//   open    (panel) -> {load, draw}; called once, when it is first shown, to build what stands in the panel (an element).
//           load() is called when the runs are others, draw() when language, colours or size are, and after load().
//   key     (event), optional: a key pressed while the view is shown and no field has it
export function register(view) { VIEWS.push(view); }

const opened = new Map();  // name -> what `open` gave
const shown = () => VIEWS.filter((view) => view.fits(frame.runs)).sort((a, b) => a.order - b.order);

function element(kind, attributes, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Shows a view, which is loaded where it has not seen these runs.
export function turn(name) {
  const views = shown(), view = views.find((one) => one.name === name) || views[0];
  frame.open = view ? view.name : "";
  for (const panel of $("views").children) panel.hidden = panel.id !== `view-${frame.open}`;
  if (!view) return;
  let panel = $(`view-${view.name}`);
  if (!panel) {
    panel = element("section", {id: `view-${view.name}`, role: "tabpanel", "aria-labelledby": `tab-${view.name}`});
    $("views").append(panel);
    opened.set(view.name, {...view.open(panel), seen: null});
  }
  const its = opened.get(view.name);
  if (its.seen !== frame.runs) { its.seen = frame.runs; its.load(); }
  its.draw();
  tabs(views);
}

function tabs(views) {
  $("tabs").hidden = views.length < 2;
  $("tabs").setAttribute("aria-label", say("views"));
  const had = $("tabs").contains(document.activeElement);
  $("tabs").replaceChildren(...views.map((view, at) => {
    const on = view.name === frame.open;
    const tab = element("button", {type: "button", role: "tab", id: `tab-${view.name}`, "aria-selected": on,
      tabindex: on ? 0 : -1}, view.say(view.name));
    if (on) tab.setAttribute("aria-controls", `view-${view.name}`);
    tab.addEventListener("click", () => turn(view.name));
    tab.addEventListener("keydown", (event) => {
      const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (!by) return;
      event.preventDefault();
      $("tabs").querySelector("[aria-selected=true]").focus();
      turn(views[(at + by + views.length) % views.length].name);
    });
    return tab;
  }));
  if (had) $("tabs").querySelector("[aria-selected=true]").focus();
}

// -- what is shown ----------------------------------------------------------------------------------------------------

// Other runs in the place of those that are shown.
export function show(runs) {
  frame.runs = runs;
  redraw();
}

// All that depends on the language, the colours or the size, anew.
export function redraw() {
  document.documentElement.lang = frame.language === "zh" ? "zh-Hans" : "en";
  const alone = shown().map((view) => view.name).join() === "attention";
  document.title = say(alone ? "attention" : "explorer");
  document.querySelectorAll("[data-word]").forEach((place) => {
    place.textContent = say(place.dataset.word === "title" ? (alone ? "attention" : "explorer") : place.dataset.word);
  });
  $("language").value = frame.language;
  $("lines").replaceChildren(...frame.runs.map((run, at) => {
    const behind = at ? `-${at + 1}` : "";
    const list = element("dl", {}, element("dt", {}, say("source")), element("dd", {id: `source${behind}`}, run.source || "–"),
      element("dt", {}, say("target")), element("dd", {id: `target${behind}`}, run.target || "–"));
    return run.name ? element("section", {}, element("h2", {}, run.name), list) : list;
  }));
  turn(frame.open);
}

export function start() {
  $("language").addEventListener("change", () => { frame.language = $("language").value; redraw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let waiting = false;
  addEventListener("resize", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; opened.get(frame.open)?.draw(); });
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.closest?.("input, textarea, select, button, canvas, a, summary") || event.ctrlKey || event.metaKey ||
      event.altKey) return;
    VIEWS.find((view) => view.name === frame.open)?.key?.(event);
  });
  redraw();
}
