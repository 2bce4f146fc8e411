// Drawing: colours, and two surfaces; what is drawn on the one, a canvas, can be drawn on the other, an SVG.

import { frame, range } from "./frame.js";

const FACE = "'Noto Sans','Noto Sans CJK SC','PingFang SC','Microsoft YaHei',sans-serif", FONT = `14px ${FACE}`;
export const COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22",
  "#17becf"];

const ruler = document.createElement("canvas").getContext("2d");
ruler.font = FONT;
export const fontOf = ({size, weight, family}) => `${weight} ${size}px ${family ?? FACE}`;
// Pixels of the widest of these texts.
export const breadth = (texts) => Math.ceil(texts.reduce((most, text) => Math.max(most, ruler.measureText(text).width), 0));

// -- colours ----------------------------------------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)"), level = (share) => Math.round(Math.min(Math.max(share, 0), 1) * 255);
export const paints = {ramp: [], packed: new Uint32Array(256), ink: {}, dark: null};

// Colours as the page's style has them now.
export function recolour() {
  if (paints.dark === dark.matches) return;
  paints.dark = dark.matches;
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
  paints.ink = {text: of("--ink"), paper: of("--paper"), mark: of("--mark"), line: of("--line"), soft: of("--soft"),
    gold: of("--gold"), fill: of("--fill")};
  const stops = (dark.matches ? ["#141b24", ...frame.colours.slice(0, -1).reverse()] : frame.colours)
    .map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  paints.ramp = range(256).map((i) => {
    const at = i / 255 * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((a, k) => Math.round(a + (stops[low + 1][k] - a) * (at - low)));
  });
  const bytes = new Uint8Array(paints.packed.buffer);  // a colour's four bytes as a pixel has them, on any machine
  paints.ramp.forEach((colour, i) => bytes.set([...colour, 255], 4 * i));
}

// The colour of a share of the highest weight.
export const shade = (share) => `rgb(${paints.ramp[level(share)]})`;

// A canvas with a pixel for each weight (T, S).
export function image(cells, T, S, top) {
  const canvas = document.createElement("canvas");
  canvas.width = S; canvas.height = T;
  const context = canvas.getContext("2d"), pixels = context.createImageData(S, T);
  const colours = new Uint32Array(pixels.data.buffer);
  for (let i = 0; i < T * S; i++) {
    colours[i] = paints.packed[level(cells[i] / top)];
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

// -- two surfaces -----------------------------------------------------------------------------------------------------
//
// A found matrix is {cells, top}: weights and the highest of them. `move` shifts all that is drawn after it. `font` is
// {size, weight, width, family} of a text that is not as others are, its family left out where it is theirs; `round` is the
// radius of corners.

export function onCanvas(canvas, width, height) {
  // Browsers refuse canvases beyond some tens of millions of pixels.
  const dense = Math.min(devicePixelRatio || 1, Math.sqrt(3e7 / (width * height)), 16000 / Math.max(width, height));
  canvas.width = Math.round(width * dense); canvas.height = Math.round(height * dense);
  canvas.style.width = width + "px"; canvas.style.height = height + "px";
  const c = canvas.getContext("2d");
  c.scale(dense, dense);
  c.font = FONT; c.imageSmoothingEnabled = false;
  return {
    move(x, y) { c.translate(x, y); },
    rect(x, y, w, h, fill, round = 0) { c.fillStyle = fill; c.beginPath(); c.roundRect(x, y, w, h, round); c.fill(); },
    frame(x, y, w, h, stroke, thick = 2, round = 0) {
      c.strokeStyle = stroke; c.lineWidth = thick;
      c.beginPath(); c.roundRect(x, y, w, h, round); c.stroke();
    },
    line(x1, y1, x2, y2, stroke, opacity) {
      c.globalAlpha = opacity; c.strokeStyle = stroke; c.lineWidth = 2.5;
      c.beginPath(); c.moveTo(x1, y1); c.lineTo(x2, y2); c.stroke();
      c.globalAlpha = 1;
    },
    text(text, x, y, fill, anchor, angle, font) {
      c.save(); c.translate(x, y); c.rotate(angle || 0);
      if (font) c.font = fontOf(font);
      c.fillStyle = fill; c.textAlign = anchor; c.fillText(text, 0, 5); c.restore();
    },
    cells(x, y, side, found, T, S) {
      found.image = found.image || image(found.cells, T, S, found.top);
      c.drawImage(found.image, x, y, S * side, T * side);
    },
  };
}

// `title` names the picture, `figures` writes a weight.
export function onSvg(width, height, title, figures) {
  const parts = [], clean = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const at = [0, 0], n = (value) => +value.toFixed(2), across = (x) => n(x + at[0]), down = (y) => n(y + at[1]);
  const corners = (round) => round ? ` rx="${n(round)}"` : "";
  const face = ({size, weight, width, family}) => ` font-size="${n(size)}" font-weight="${weight}"` +
    (family ? ` font-family="${clean(family)}"` : "") + ` textLength="${n(width)}" lengthAdjust="spacingAndGlyphs"`;
  return {
    move(x, y) { at[0] += x; at[1] += y; },
    rect(x, y, w, h, fill, round = 0) {
      parts.push(`<rect x="${across(x)}" y="${down(y)}" width="${n(w)}" height="${n(h)}" fill="${fill}"${corners(round)}/>`);
    },
    frame(x, y, w, h, stroke, thick = 2, round = 0) {
      parts.push(`<rect x="${across(x)}" y="${down(y)}" width="${n(w)}" height="${n(h)}" fill="none" stroke="${stroke}" ` +
        `stroke-width="${n(thick)}"${corners(round)}/>`);
    },
    line(x1, y1, x2, y2, stroke, opacity) {
      parts.push(`<line x1="${across(x1)}" y1="${down(y1)}" x2="${across(x2)}" y2="${down(y2)}" stroke="${stroke}" ` +
        `stroke-width="2.5" opacity="${+opacity.toFixed(5)}"/>`);
    },
    text(text, x, y, fill, anchor, angle, font) {
      const turn = angle ? ` rotate(${n(angle * 180 / Math.PI)})` : "";
      const place = {left: "start", right: "end", center: "middle"}[anchor];
      parts.push(`<text transform="translate(${across(x)} ${down(y)})${turn}" y="5" fill="${fill}" ` +
        `text-anchor="${place}"${font ? face(font) : ""}>${clean(text)}</text>`);
    },
    cells(x, y, side, found, T, S) {
      for (let t = 0; t < T; t++) for (let s = 0; s < S; s++) {
        const weight = found.cells[t * S + s];
        parts.push(`<rect class="weight" x="${across(x + s * side)}" y="${down(y + t * side)}" width="${n(side)}" ` +
          `height="${n(side)}" fill="${shade(weight / found.top)}"><title>${figures(weight)}</title></rect>`);
      }
    },
    whole() {
      return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${n(width)} ${n(height)}" width="${n(width)}" ` +
        `height="${n(height)}" font-size="14" font-family="${clean(FACE)}"><title>${clean(title)}</title>\n` +
        `${parts.join("\n")}\n</svg>\n`;
    },
  };
}

// -- pictures to keep -------------------------------------------------------------------------------------------------
//
// A picture is {width, height, paint}: what `paint` draws on a surface.

const GAP = 24;
// Several pictures as one: side by side, or one under the other.
export function joined(pictures, under = false) {
  const sum = (name) => pictures.reduce((all, one) => all + one[name] + GAP, -GAP);
  const most = (name) => Math.max(...pictures.map((one) => one[name]));
  const width = under ? most("width") : sum("width"), height = under ? sum("height") : most("height");
  return {width, height, paint(to) {
    if (pictures.length > 1) to.rect(0, 0, width, height, paints.ink.paper);
    for (const one of pictures) {
      one.paint(to);
      to.move(under ? 0 : one.width + GAP, under ? one.height + GAP : 0);
    }
    to.move(under ? 0 : -width - GAP, under ? -height - GAP : 0);  // where it began
  }};
}

// Gives somebody a picture as it is on the screen.
export function saveSvg(picture, name, title, figures = String) {
  const to = onSvg(picture.width, picture.height, title, figures);
  picture.paint(to);
  save(new Blob([to.whole()], {type: "image/svg+xml"}), name);
}

// Gives somebody a file to keep.
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
