// A picture of cross-attention: rows are target tokens, columns source tokens, darker is more.

import {bytesOf} from "./numbers.js";

const FONT = "13px system-ui, sans-serif", MOST = 22, SLANT = Math.PI / 3;
const ruler = document.createElement("canvas").getContext("2d");

const shownToken = (token) => token.replaceAll("\u2581", "␣");

// Weights from 0 to 1 of a layer, from 0, or of the mean of all (-1).
export function matrix(attention, layer) {
  const all = attention.layers.map(bytesOf), chosen = layer < 0 ? all : [all[Math.min(layer, all.length - 1)]];
  return Float32Array.from(chosen[0], (_, i) => chosen.reduce((sum, each) => sum + each[i], 0) / chosen.length / 255);
}

export function drawWeights(canvas, attention, weights) {
  const rows = attention.rows.map(shownToken), columns = attention.columns.map(shownToken);
  ruler.font = FONT;
  const breadth = (texts) => texts.reduce((most, text) => Math.max(most, ruler.measureText(text).width), 0);
  const cell = Math.max(8, Math.min(MOST, Math.floor(640 / Math.max(rows.length, columns.length))));
  const left = Math.ceil(breadth(rows)) + 8, long = Math.ceil(breadth(columns));
  const top = Math.ceil(long * Math.sin(SLANT)) + 14, right = Math.ceil(long * Math.cos(SLANT)) + 8;
  const width = left + cell * columns.length + right, height = top + cell * rows.length + 4;
  const scale = window.devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  canvas.style.width = `${width}px`;
  const brush = canvas.getContext("2d");
  brush.scale(scale, scale);
  brush.font = FONT;
  brush.fillStyle = brush.strokeStyle = style.getPropertyValue("--ink");
  brush.textBaseline = "middle";
  brush.textAlign = "right";
  rows.forEach((text, i) => brush.fillText(text, left - 5, top + cell * (i + 0.5)));
  brush.textAlign = "left";
  columns.forEach((text, i) => {
    brush.save();
    brush.translate(left + cell * (i + 0.5), top - 5);
    brush.rotate(-SLANT);
    brush.fillText(text, 0, 0);
    brush.restore();
  });
  brush.fillStyle = style.getPropertyValue("--strong");
  weights.forEach((weight, i) => {
    brush.globalAlpha = weight;
    brush.fillRect(left + cell * (i % columns.length), top + cell * Math.floor(i / columns.length), cell - 1, cell - 1);
  });
  brush.globalAlpha = 0.3;
  brush.strokeRect(left - 0.5, top - 0.5, cell * columns.length, cell * rows.length);
}

// Of each row: its token, the column that it looks at most, and how much.
export function strongest(attention, weights) {
  const width = attention.columns.length;
  return attention.rows.map((token, row) => {
    let best = 0;
    for (let i = 1; i < width; i++) if (weights[row * width + i] > weights[row * width + best]) best = i;
    return [shownToken(token), shownToken(attention.columns[best]), weights[row * width + best].toFixed(2)];
  });
}
