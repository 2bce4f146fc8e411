// The figures that move: what a recurrent cell remembers, and what a layer costs.
"use strict";
Object.assign(widgets, {
  // One signal at the first word, then silence: how much of it each cell still holds.
  cells(root) {
    const inputs = Array.from({ length: 20 }, (_, t) => (t ? 0 : 1));
    const made = new Widget(root, [520, 350], (v, svg) => {
      const found = formulas.cells(inputs, v), box = [50, 50, 450, 240];
      frame(svg, box, [1, 20], [0, 1], [["word", "词"], ["state", "状态"]]);
      [["lstm", "LSTM", ""], ["gru", "GRU", "other"], ["elman", "Elman", "third"]].forEach(([key, name, kind], i) => {
        curve(svg, box, [1, 20], [0, 1], found[key].map((y, t) => [t + 1, y]), kind);
        svg.append(drawn("line", { x1: 60 + i * 120, x2: 90 + i * 120, y1: 25, y2: 25, class: `line ${kind}` }), written(98 + i * 120, 30, name));
      });
      const gate = formulas.sigmoid;
      return { gates: ["forget gate (LSTM), update gate (GRU)", "遗忘门（LSTM）、更新门（GRU）", [gate(v.forget), gate(v.update)]],
        last: ["states after word 20: LSTM, GRU, Elman", "第 20 个词后的状态：LSTM、GRU、Elman", ["lstm", "gru", "elman"].map((key) => found[key][19])] };
    });
    made.svg.classList.add("narrow");
    made.slider("forget", ["LSTM: bias of the forget gate", "LSTM：遗忘门的偏置"], [-4, 6, 0.1, 3]);
    made.slider("update", ["GRU: bias of the update gate", "GRU：更新门的偏置"], [-4, 6, 0.1, 2]);
    made.slider("weight", ["Elman: weight of the state before", "Elman：上一状态的权重"], [0, 1.5, 0.05, 0.8]);
    return made;
  },

  // Multiplications of each kind of layer: 2 n² d for the products of attention, so many n d² for the others.
  costs(root) {
    const names = [["attention", "attention, 2 n² d", "注意力，2 n² d"], ["projected", "with its projections", "含投影的注意力"],
      ["recurrence", "recurrence, n d²", "循环，n d²"], ["lstm", "LSTM cell, 8 n d²", "LSTM 单元，8 n d²"], ["convolution", "convolution, k n d²", "卷积，k n d²"]];
    const made = new Widget(root, [520, 330], (v, svg) => {
      const n = 2 ** v.length, d = 2 ** v.width, found = formulas.costs(n, d, v.kernel), most = Math.max(...Object.values(found));
      svg.append(...twice(20, 28, `n = ${n} words, d = ${d}`, `n = ${n} 个词，d = ${d}`, { class: "big" }));
      names.forEach(([key, en, zh], i) => {
        const y = 56 + i * 54, wide = (found[key] / most) * 210;
        svg.append(...twice(20, y + 21, en, zh), drawn("rect", { x: 205, y, width: Math.max(1, wide), height: 30, rx: 4, class: i < 2 ? "blue" : "orange" }));
        svg.append(written(212 + wide, y + 21, found[key].toExponential(2)));
      });
      return { costs: ["multiplications, from top to bottom", "乘法次数，自上而下", names.map(([key]) => found[key])],
        ratio: ["attention / recurrence = 2 n / d", "注意力 / 循环 = 2 n / d", found.attention / found.recurrence],
        steps: ["steps between the ends: attention, recurrence, convolution", "首尾之间的步数：注意力、循环、卷积", [1, n, Math.ceil((n - 1) / (v.kernel - 1))]] };
    });
    made.svg.classList.add("narrow");
    made.slider("length", ["n, as a power of 2", "n（2 的幂）"], [3, 14, 1, 6]);
    made.slider("width", ["d, as a power of 2", "d（2 的幂）"], [5, 12, 1, 9]);
    made.slider("kernel", ["width k of the convolution", "卷积宽度 k"], [2, 9, 1, 3]);
    return made;
  },
});
