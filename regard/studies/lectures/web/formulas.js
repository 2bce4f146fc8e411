// The lectures' formulas. Each is the library's own, written again; tests/studies/test_lectures_browser.py holds them equal.
"use strict";
const formulas = (() => {
  const sum = (x) => x.reduce((a, b) => a + b, 0);
  const dot = (a, b) => sum(a.map((x, i) => x * b[i]));
  const norm = (a) => Math.sqrt(dot(a, a));

  // A position with a score of -Infinity gets no weight; a row of nothing else gets zeros.
  function softmax(scores, temperature = 1) {
    const most = Math.max(...scores);
    if (most === -Infinity) return scores.map(() => 0);
    const raised = scores.map((x) => Math.exp((x - most) / temperature));
    const total = sum(raised);
    return raised.map((x) => x / total);
  }

  const SCORES = {
    dot: (q, k) => dot(q, k),
    scaled: (q, k) => dot(q, k) / Math.sqrt(q.length),
    cosine: (q, k) => dot(q, k) / (norm(q) * norm(k)),
    // v · tanh(q + k), v all ones: Bahdanau's with both projections the identity.
    additive: (q, k) => sum(q.map((x, i) => Math.tanh(x + k[i]))),
  };

  function attend(kind, query, keys, values, temperature = 1) {
    const scores = keys.map((key) => SCORES[kind](query, key));
    const weights = softmax(scores, temperature);
    const context = values[0].map((_, d) => sum(weights.map((w, i) => w * values[i][d])));
    return { scores, weights, context };
  }

  const entropy = (p) => -sum(p.map((x) => (x > 0 ? x * Math.log(x) : 0)));

  // The Frobenius norm of the softmax's Jacobian, diag(p) - p pᵀ.
  function slope(p) {
    let total = 0;
    p.forEach((a, i) => p.forEach((b, j) => { total += ((i === j ? a : 0) - a * b) ** 2; }));
    return Math.sqrt(total);
  }

  // Weights (T, S) of scores under a causal mask, a window of so many positions to each side, and padding at the end.
  function masked(scores, { causal = false, window = 0, padding = 0 }) {
    const width = scores[0].length;
    return scores.map((row, t) => softmax(row.map((score, s) => {
      const seen = !(causal && s > t) && !(window && Math.abs(s - t) > window) && s < width - padding;
      return seen ? score : -Infinity;
    })));
  }

  // Luong's local-p: the softmax within D of p, times a Gaussian around p, sigma = D / 2.
  const local = (scores, centre, reach) =>
    softmax(scores.map((x, s) => (Math.abs(s - centre) <= reach ? x : -Infinity)))
      .map((w, s) => w * Math.exp(-((s - centre) ** 2) / (2 * (reach / 2) ** 2)));

  // Multi-head attention without projections: head h reads and writes its own slice of the width.
  function heads(queries, keys, count) {
    const width = queries[0].length / count;
    return Array.from({ length: count }, (_, h) => queries.map((q) => softmax(keys.map((k) =>
      dot(q.slice(h * width, (h + 1) * width), k.slice(h * width, (h + 1) * width)) / Math.sqrt(width)))));
  }

  function sinusoid(position, width, base = 10000) {
    return Array.from({ length: width }, (_, i) => {
      const angle = position / base ** ((i - (i % 2)) / width);
      return i % 2 ? Math.cos(angle) : Math.sin(angle);
    });
  }

  // Pairs (x1, x2), each turned by position · base^(-2i/width).
  function rotate(pairs, position, base = 10000) {
    return pairs.map(([a, b], i) => {
      const angle = position / base ** (i / pairs.length);
      return [a * Math.cos(angle) - b * Math.sin(angle), a * Math.sin(angle) + b * Math.cos(angle)];
    });
  }

  // T5's bucket of a distance (key - query), both sides seen.
  function bucket(distance, buckets = 32, farthest = 128) {
    const side = buckets / 2, near = side / 2, far = Math.abs(distance);
    const offset = distance > 0 ? side : 0;
    if (far < near) return offset + far;
    const grown = near + Math.floor((Math.log(far / near) / Math.log(farthest / near)) * (side - near));
    return offset + Math.min(grown, side - 1);
  }

  const sigmoid = (x) => 1 / (1 + Math.exp(-x));

  // Cells of one number: every input is written in; what stays is up to the gate's bias, or to Elman's weight.
  function cells(inputs, { forget, update, weight }) {
    let [cell, gru, elman] = [0, 0, 0];
    const made = { lstm: [], gru: [], elman: [] };
    inputs.forEach((x) => {
      const kept = sigmoid(update - 8 * x);
      cell = sigmoid(forget) * cell + sigmoid(4 * x) * Math.tanh(x);
      gru = kept * gru + (1 - kept) * Math.tanh(x);
      elman = Math.tanh(x + weight * elman);
      made.lstm.push(sigmoid(4) * Math.tanh(cell));
      made.gru.push(gru);
      made.elman.push(elman);
    });
    return made;
  }

  // Multiplications of a layer over n positions of width d.
  const costs = (n, d, kernel) => ({ attention: 2 * n * n * d, projected: 2 * n * n * d + 4 * n * d * d, recurrence: n * d * d,
    lstm: 8 * n * d * d, convolution: kernel * n * d * d });

  const rate = (step, width, warmup, factor = 1) =>
    factor * width ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);

  // What a model pays that gives the truth p and shares the rest out evenly, if ε is smoothed over V words.
  const smoothed = (p, epsilon, words) => {
    const other = (1 - p) / (words - 1);
    return -(1 - epsilon + epsilon / words) * Math.log(p) - (words - 1) * (epsilon / words) * Math.log(other);
  };

  const PENALTIES = {
    none: () => 1,
    power: (length, alpha) => length ** alpha,
    gnmt: (length, alpha) => ((5 + length) / 6) ** alpha,
  };

  // The lecture's table as a model: log-probabilities after what was written.
  const TABLE = [[0.5, 0.2, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2], [0.2, 0.2, 0.4, 0.2], [0, 0.2, 0.2, 0.6]];
  const AFTER_AC = [[0.1, 0.6, 0.2, 0.1], [0.1, 0.2, 0.1, 0.6]];
  const WORDS = ["A", "B", "C", "<eos>"], END = 3;
  function next(ids) {
    if (ids.length < 2) return TABLE[ids.length];
    return (ids[0] === 0 && ids[1] === 2 ? AFTER_AC : TABLE.slice(2))[Math.min(ids.length, 3) - 2];
  }

  // Every step of a beam search over the table: all candidates with what became of them, and what has finished.
  function beam(width, alpha, penalty = "power", longest = 4) {
    let open = [{ ids: [], log: 0, id: "" }];
    const finished = [], steps = [];
    for (let length = 1; length <= longest && open.length; length += 1) {
      const candidates = open.flatMap((from) => next(from.ids).map((p, word) => ({
        from: from.id, ids: [...from.ids, word], log: from.log + Math.log(p), id: `${from.id}/${word}`, word,
      }))).filter((one) => one.log > -Infinity);
      candidates.sort((a, b) => b.log - a.log);
      const kept = [];
      candidates.slice(0, 2 * width).forEach((one, rank) => {
        const ended = one.word === END, cut = length === longest;
        if ((ended || cut) && (rank < width || cut)) {
          one.state = "finished";
          one.score = one.log / PENALTIES[penalty](length, alpha);
          finished.push(one);
        } else if (!ended && kept.length < width) {
          one.state = "live";
          kept.push(one);
        }
      });
      candidates.forEach((one) => { one.state = one.state || "pruned"; });
      steps.push(candidates);
      open = kept;
    }
    finished.sort((a, b) => b.score - a.score);
    return { steps, finished };
  }

  function grams(words, n) {
    const found = new Map();
    for (let i = 0; i + n <= words.length; i += 1) {
      const gram = words.slice(i, i + n).join(" ");
      found.set(gram, (found.get(gram) || 0) + 1);
    }
    return found;
  }

  function precision(candidate, reference, n) {
    const held = grams(reference, n);
    let right = 0, all = 0;
    grams(candidate, n).forEach((count, gram) => { right += Math.min(count, held.get(gram) || 0); all += count; });
    return [right, all];
  }

  function bleu(candidate, reference, longest = 4) {
    const shares = Array.from({ length: longest }, (_, i) => precision(candidate, reference, i + 1));
    const longer = candidate.length > reference.length;
    const brevity = longer ? 1 : candidate.length ? Math.exp(1 - reference.length / candidate.length) : 0;
    if (shares.some(([right]) => !right)) return { shares, brevity, bleu: 0 };
    const mean = sum(shares.map(([right, all]) => Math.log(right / all))) / longest;
    return { shares, brevity, bleu: brevity * Math.exp(mean) };
  }

  function rouge(candidate, reference, n) {
    const [right] = precision(candidate, reference, n), all = sum([...grams(reference, n).values()]);
    return all ? right / all : 0;
  }

  return { sum, dot, norm, softmax, SCORES, attend, entropy, slope, masked, local, heads, sinusoid, rotate, bucket,
    sigmoid, cells, costs, rate, smoothed, PENALTIES, WORDS, END, next, beam, precision, bleu, rouge };
})();
