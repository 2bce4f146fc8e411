// What every page has: one switch of language, large letters, controls, numbers, pictures that can be saved.
"use strict";
const page = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  function element(tag, attributes = {}, ...inside) {
    const made = document.createElement(tag);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
    made.append(...inside);
    return made;
  }

  function drawn(tag, attributes = {}, ...inside) {
    const made = document.createElementNS(SVG, tag);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
    made.append(...inside);
    return made;
  }

  // A text in both languages, of which the page shows one.
  const both = (en, zh) => [element("span", { lang: "en" }, en), element("span", { lang: "zh" }, zh)];
  const written = (x, y, text, attributes = {}) => drawn("text", { x, y, ...attributes }, text);
  const twice = (x, y, en, zh, attributes = {}) =>
    [["en", en], ["zh", zh]].map(([lang, text]) => drawn("text", { x, y, lang, ...attributes }, text));

  // Four digits; a number that rounding alone makes is 0.
  const shown = (x) => (typeof x !== "number" ? String(x) : Math.abs(x) < 1e-12 ? "0" : String(Number(x.toPrecision(4))));

  // One interactive figure: `controls` give values by name, `draw` makes the picture and gives the numbers.
  class Widget {
    constructor(root, size, draw) {
      this.values = {};
      this.draw = draw;
      this.controls = element("div", { class: "controls" });
      this.buttons = element("div", { class: "buttons" });
      this.svg = drawn("svg", { viewBox: `0 0 ${size[0]} ${size[1]}`, role: "img" });
      this.numbers = element("dl", { class: "numbers" });
      const save = element("button", { type: "button", class: "save" }, ...both("Save as SVG", "存为 SVG"));
      save.addEventListener("click", () => this.save());
      this.buttons.append(save);
      const picture = element("div", { class: "picture", tabindex: "0" }, this.svg);
      picture.setAttribute("role", "group");
      picture.setAttribute("aria-label", document.title);
      root.append(this.controls, picture, this.numbers, this.buttons);
    }

    slider(name, [en, zh], [least, most, step, value]) {
      const input = element("input", { type: "range", min: least, max: most, step, value, name });
      const output = element("output", { "data-of": name }, shown(value));
      const set = () => {
        this.values[name] = Number(input.value);
        output.textContent = input.value;
        this.refresh();
      };
      input.addEventListener("input", set);
      this.values[name] = value;
      this.controls.append(element("label", {}, element("span", {}, ...both(en, zh)), output, input));
      return input;
    }

    choice(name, [en, zh], options, value) {
      const select = element("select", { name });
      options.forEach(([key, text]) => select.append(element("option", { value: key }, text)));
      select.value = value;
      this.values[name] = value;
      select.addEventListener("change", () => { this.values[name] = select.value; this.refresh(); });
      this.controls.append(element("label", {}, element("span", {}, ...both(en, zh)), select));
    }

    tick(name, [en, zh], value = false) {
      const input = element("input", { type: "checkbox", name });
      input.checked = value;
      this.values[name] = value;
      input.addEventListener("change", () => { this.values[name] = input.checked; this.refresh(); });
      this.controls.append(element("label", { class: "tick" }, input, element("span", {}, ...both(en, zh))));
    }

    text(name, [en, zh], value) {
      const input = element("input", { type: "text", name, value, maxlength: 300 });
      this.values[name] = value;
      input.addEventListener("input", () => { this.values[name] = input.value; this.refresh(); });
      this.controls.append(element("label", {}, element("span", {}, ...both(en, zh)), input));
    }

    button([en, zh], act) {
      const made = element("button", { type: "button" }, ...both(en, zh));
      made.addEventListener("click", act);
      this.buttons.prepend(made);
      return made;
    }

    // Draw anew, and write the numbers out: in full in `data-value`, with four digits on the page.
    refresh() {
      this.svg.replaceChildren();
      const numbers = this.draw(this.values, this.svg) || {};
      this.svg.setAttribute("aria-label", document.title);
      this.numbers.replaceChildren(...Object.entries(numbers).map(([key, [en, zh, value]]) => {
        const list = Array.isArray(value) ? value : [value];
        const dd = element("dd", { "data-name": key, "data-value": JSON.stringify(value) }, list.map(shown).join(", "));
        return element("div", {}, element("dt", {}, ...both(en, zh)), dd);
      }));
      return this;
    }

    // What is on screen as one file: colours and fonts are written into it, the other language is left out.
    svgText() {
      const copy = this.svg.cloneNode(true), here = this.svg.querySelectorAll("*"), there = copy.querySelectorAll("*");
      const gone = [];
      here.forEach((one, i) => {
        const style = getComputedStyle(one);
        if (style.display === "none") { gone.push(there[i]); return; }
        ["fill", "stroke", "stroke-width", "stroke-dasharray", "fill-opacity", "font-size", "font-weight", "font-family"].forEach(
          (name) => there[i].setAttribute(name, style.getPropertyValue(name)));
        there[i].removeAttribute("class");
      });
      gone.forEach((one) => one.remove());
      copy.setAttribute("xmlns", SVG);
      const ground = drawn("rect", { width: "100%", height: "100%",
        fill: getComputedStyle(this.svg.closest(".widget")).backgroundColor });
      copy.prepend(ground);
      return new XMLSerializer().serializeToString(copy);
    }

    save() {
      const link = element("a", { download: `${document.body.dataset.lecture}.svg`,
        href: URL.createObjectURL(new Blob([this.svgText()], { type: "image/svg+xml" })) });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }
  }

  function begin() {
    const root = document.documentElement;
    const speak = (language) => { root.lang = language; document.title = document.body.dataset[language]; };
    document.getElementById("language").addEventListener("click", () => speak(root.lang === "en" ? "zh" : "en"));
    document.getElementById("large").addEventListener("click", (event) => {
      const on = root.classList.toggle("large");
      event.currentTarget.setAttribute("aria-pressed", on);
    });
    speak(root.lang);
    document.querySelectorAll("[data-widget]").forEach((place) => {
      place.widget = widgets[place.dataset.widget](place).refresh();
    });
  }

  return { element, drawn, both, written, twice, shown, Widget, begin };
})();
