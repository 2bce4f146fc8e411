// Numbers: how they are written, smoothed, thinned and read.

export function written(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en");
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return Number(value.toPrecision(digits)).toLocaleString("en", {maximumSignificantDigits: digits});
}

// The mean of what came before, newer values weighing more; right from the first value on.
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0, total = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

// The least and the greatest of each column of pixels, in order: no peak is lost.
export function thinned(points, columns) {
  if (points.length <= 2 * columns) return points;
  const first = points[0][0], width = (points[points.length - 1][0] - first) / columns || 1, kept = [];
  let at = 0;
  while (at < points.length) {
    const column = Math.floor((points[at][0] - first) / width);
    let least = points[at], greatest = points[at];
    while (at < points.length && Math.floor((points[at][0] - first) / width) === column) {
      if (points[at][1] < least[1]) least = points[at];
      if (points[at][1] > greatest[1]) greatest = points[at];
      at += 1;
    }
    if (least === greatest) kept.push(least);
    else kept.push(...(least[0] < greatest[0] ? [least, greatest] : [greatest, least]));
  }
  return kept;
}

// About `count` round numbers between two.
export function ticks(least, greatest, count) {
  const span = greatest - least || Math.abs(least) || 1;
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  const found = [];
  for (let value = Math.ceil(least / step) * step; value <= greatest + step * 1e-9; value += step) {
    found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  }
  return found;
}

// The value at `x` of a curve whose xs rise, between its points by a straight line.
export function between(xs, ys, x) {
  if (!xs.length) return null;
  let low = 0, high = xs.length - 1;
  if (x <= xs[0]) return ys[0];
  if (x >= xs[high]) return ys[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  const part = (x - xs[low]) / (xs[high] - xs[low] || 1);
  return ys[low] === null || ys[high] === null ? ys[low] : ys[low] + part * (ys[high] - ys[low]);
}

export function bytesOf(text) {
  const plain = atob(text), bytes = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) bytes[i] = plain.charCodeAt(i);
  return bytes;
}

// Of two lists of words, for each of the second whether it is new: not in their longest common sequence.
export function changed(before, after) {
  const length = before.map(() => new Uint16Array(after.length + 1)).concat([new Uint16Array(after.length + 1)]);
  for (let i = before.length - 1; i >= 0; i--) for (let j = after.length - 1; j >= 0; j--) {
    length[i][j] = before[i] === after[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  }
  const found = after.map(() => true);
  for (let i = 0, j = 0; i < before.length && j < after.length;) {
    if (before[i] === after[j]) { found[j] = false; i += 1; j += 1; }
    else if (length[i + 1][j] >= length[i][j + 1]) i += 1;
    else j += 1;
  }
  return found;
}
