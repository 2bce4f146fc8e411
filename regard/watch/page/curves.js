// One figure of curves: drawn as SVG, read by pointing or by the arrow keys, and as a table.

import {between, smoothed, thinned, ticks, written} from "./numbers.js";

const SVG = "http://www.w3.org/2000/svg", WIDTH = 480, HEIGHT = 240;
const BOX = {left: 52, right: 458, top: 8, bottom: 216};

function part(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

// lines: [{name, colour, kind, xs, ys}]; options: {log, smooth, title, along, say}
export class Figure {
  constructor(key) {
    this.key = key;
    this.element = document.createElement("figure");
    this.title = document.createElement("h3");
    this.title.id = `title-${key}`;
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("tabindex", "0");
    this.readout = document.createElement("p");
    this.readout.className = "readout";
    this.readout.setAttribute("aria-live", "polite");
    this.details = document.createElement("details");
    this.summary = document.createElement("summary");
    this.holder = document.createElement("div");
    this.holder.className = "scroll";
    this.holder.tabIndex = 0;
    this.holder.setAttribute("role", "group");
    this.holder.setAttribute("aria-labelledby", this.title.id);
    this.details.append(this.summary, this.holder);
    this.element.append(this.title, this.svg, this.readout, this.details);
    this.lines = [];
    this.x = null;
    this.svg.addEventListener("pointermove", (event) => this.point(this.fromScreen(event.clientX)));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.key_(event));
    this.details.addEventListener("toggle", () => this.fill());
  }

  draw(lines, options) {
    Object.assign(this, {lines: lines.map((line) => this.ready(line, options)), options});
    this.title.textContent = options.title;
    this.summary.textContent = options.say("values");
    this.svg.setAttribute("aria-label", `${options.title}, ${options.along}`);
    const xs = this.lines.flatMap((line) => line.points.length ? [line.points[0][0], line.points.at(-1)[0]] : []);
    const ys = this.lines.flatMap((line) => line.points.map((each) => each[1]));
    this.least = ys.reduce((a, b) => Math.min(a, b), Infinity);
    this.greatest = ys.reduce((a, b) => Math.max(a, b), -Infinity);
    if (this.greatest === this.least) { this.least -= Math.abs(this.least) * 0.05 || 1; this.greatest += Math.abs(this.greatest) * 0.05 || 1; }
    this.first = xs.reduce((a, b) => Math.min(a, b), Infinity);
    this.last = xs.reduce((a, b) => Math.max(a, b), -Infinity);
    this.svg.replaceChildren();
    if (!xs.length) return;
    this.axes();
    for (const line of this.lines) this.curve(line);
    this.cursor = part("line", {class: "cursor", y1: BOX.top, y2: BOX.bottom, visibility: "hidden"}, this.svg);
    this.point(this.x);
    this.fill();
  }

  ready(line, {log, smooth}) {
    const height = (value) => value === null || (log && value <= 0) ? null : log ? Math.log10(value) : value;
    const ys = line.kind === "train" ? smoothed(line.ys, smooth) : line.ys;
    const pointsOf = (all) => line.xs.map((x, i) => [x, height(all[i])]).filter(([x, y]) => x !== null && y !== null);
    const points = pointsOf(ys);
    return {...line, shown: ys, points, raw: ys === line.ys ? [] : pointsOf(line.ys)};
  }

  across(x) { return BOX.left + (x - this.first) / (this.last - this.first || 1) * (BOX.right - BOX.left); }
  up(y) { return BOX.bottom - (y - this.least) / (this.greatest - this.least) * (BOX.bottom - BOX.top); }

  fromScreen(clientX) {
    const box = this.svg.getBoundingClientRect(), scale = Math.min(box.width / WIDTH, box.height / HEIGHT);
    const x = (clientX - box.left - (box.width - WIDTH * scale) / 2) / scale;
    return this.first + (x - BOX.left) / (BOX.right - BOX.left) * (this.last - this.first);
  }

  axes() {
    part("path", {class: "axis", d: `M${BOX.left} ${BOX.top}V${BOX.bottom}H${BOX.right}`}, this.svg);
    for (const value of ticks(this.least, this.greatest, 4)) {
      part("path", {class: "axis", d: `M${BOX.left} ${this.up(value)}H${BOX.right}`, opacity: 0.5}, this.svg);
      const said = written(this.options.log ? 10 ** value : value, 3);
      part("text", {class: "label", x: BOX.left - 5, y: this.up(value) + 4, "text-anchor": "end"}, this.svg, said);
    }
    for (const value of ticks(this.first, this.last, 5)) {
      part("text", {class: "label", x: this.across(value), y: BOX.bottom + 15, "text-anchor": "middle"}, this.svg, written(value, 3));
    }
  }

  curve(line) {
    const path = (points) => thinned(points, BOX.right - BOX.left)
      .map(([x, y], i) => `${i ? "L" : "M"}${this.across(x).toFixed(1)} ${Math.min(Math.max(this.up(y), BOX.top), BOX.bottom).toFixed(1)}`).join("");
    const colour = `stroke:var(--run-${line.colour})`;
    if (line.raw.length) part("path", {class: "curve raw", style: colour, d: path(line.raw)}, this.svg);
    part("path", {class: `curve ${line.kind}`, style: colour, d: path(line.points)}, this.svg);
    if (line.points.length < 60 && (line.kind === "validate" || line.points.length < 3)) {
      for (const [x, y] of line.points) {
        part("circle", {cx: this.across(x), cy: this.up(y), r: 2.5, style: `fill:var(--run-${line.colour})`}, this.svg);
      }
    }
  }

  point(x) {
    this.x = x;
    if (!this.cursor) return;
    this.cursor.setAttribute("visibility", x === null ? "hidden" : "visible");
    this.readout.replaceChildren();
    if (x === null) return;
    x = Math.min(Math.max(x, this.first), this.last);
    this.x = x;
    this.cursor.setAttribute("x1", this.across(x));
    this.cursor.setAttribute("x2", this.across(x));
    this.readout.append(`${this.options.along} ${written(Number.isInteger(this.first) ? Math.round(x) : x)}: `);
    this.lines.filter((line) => line.points.length).forEach((line, i) => {
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = `var(--run-${line.colour})`;
      this.readout.append(i ? "; " : "", swatch, `${line.name} ${written(this.near(line, x))}`);
    });
  }

  near(line, x) {
    const value = between(line.points.map((each) => each[0]), line.points.map((each) => each[1]), x);
    return this.options.log && value !== null ? 10 ** value : value;
  }

  key_(event) {
    const step = (this.last - this.first) / 50;
    const moves = {ArrowLeft: -step, ArrowRight: step, Home: -Infinity, End: Infinity, PageUp: 10 * step, PageDown: -10 * step};
    if (event.key === "Escape") this.point(null);
    else if (event.key in moves) {
      event.preventDefault();
      const move = moves[event.key], entering = move > 0 ? this.first - move : this.last - move;
      this.point(Number.isFinite(move) ? (this.x ?? entering) + move : move);
    }
  }

  // At most fifty rows, where each line has its value.
  fill() {
    if (!this.details.open || !this.options) return this.holder.replaceChildren();
    const every = [...new Set(this.lines.flatMap((line) => line.points.map((each) => each[0])))].sort((a, b) => a - b);
    const step = Math.max(1, Math.ceil(every.length / 50));
    const table = document.createElement("table");
    row(table.createTHead(), [this.options.along, ...this.lines.map((line) => line.name)], "th");
    const body = table.createTBody();
    for (let i = every.length - 1; i >= 0; i -= step) {
      row(body, [written(every[i]), ...this.lines.map((line) => line.points.length ? written(this.near(line, every[i])) : "–")]);
    }
    this.holder.replaceChildren(table);
  }
}

export function row(parent, cells, kind = "td") {
  const made = document.createElement("tr");
  for (const cell of cells) {
    const one = document.createElement(kind);
    if (kind === "th") one.scope = "col";
    one.append(cell ?? "–");
    made.append(one);
  }
  parent.append(made);
  return made;
}
