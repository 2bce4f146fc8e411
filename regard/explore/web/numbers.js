// Weights of attention: read from the page, chosen, averaged, merged into words.

import { $ } from "./frame.js";

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const plain = atob(text), bytes = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) bytes[i] = plain.charCodeAt(i);
  return bytes;
}

const decoded = new WeakMap();
// All weights of a part, (L, H, T, S), as whole numbers; `part.data` has them, or an element of the page that it names.
export function weights(part) {
  if (!decoded.has(part)) {
    const bytes = fromBase64(part.data ?? $(part.from).textContent.trim());
    decoded.set(part, part.bits === 8 ? bytes : new Uint16Array(bytes.buffer));
  }
  return decoded.get(part);
}

// The mean, or the sum, of layers and heads (sets of numbers from 1): cells (T, S), or (N, M) between words; and the count
// of those that the sum was divided by.
export function matrix(part, layers, heads, combine, unit) {
  const [, H, T, S] = part.shape, all = weights(part), size = T * S, found = new Float32Array(size);
  let there = 0;  // a head that was pruned or is off has no weights
  for (const layer of layers) for (const head of heads) {
    const at = ((layer - 1) * H + head - 1) * size;
    let any = 0;
    for (let i = 0; i < size; i++) { found[i] += all[at + i]; any |= all[at + i]; }
    if (any) there += 1;
  }
  const count = combine === "sum" ? 1 : Math.max(there, 1);
  const scale = 1 / ((part.bits === 8 ? 255 : 65535) * count);
  for (let i = 0; i < size; i++) found[i] *= scale;
  return {cells: unit === "words" ? merged(part, found, S) : found, count};
}

// A looked-at word's weight is the sum over its tokens, a looking one's the mean over its own.
function merged(part, found, S) {
  const N = part.rows.words.length, M = part.columns.words.length;
  const sums = new Float64Array(N), into = new Float32Array(N * M);
  part.rows.shares.forEach((mine, t) => mine.forEach(([n, a]) => {
    sums[n] += a;
    part.columns.shares.forEach((its, s) => its.forEach(([m, b]) => { into[n * M + m] += a * b * found[t * S + s]; }));
  }));
  return into.map((weight, i) => weight / sums[Math.floor(i / M)]);
}

export const upTo = (count) => new Set(Array.from({length: count}, (_, i) => i + 1));
export const inOrder = (chosen) => [...chosen].sort((a, b) => a - b);
