// The figures that move: attention. A widget is a function of its place in the page; its name is the key.
"use strict";
const { drawn, written, twice, shown, Widget } = page;

// Bars for weights, each named.
function bars(svg, [x, y, width, height], names, values, colour = "blue", most = 1) {
  const step = width / values.length;
  values.forEach((value, i) => {
    const tall = Math.max(0, (value / most) * height);
    svg.append(drawn("rect", { x: x + i * step + 4, y: y + height - tall, width: step - 8, height: tall, class: colour, rx: 3 }));
    svg.append(written(x + (i + 0.5) * step, y + height + 18, names[i], { "text-anchor": "middle", class: "soft" }));
    svg.append(written(x + (i + 0.5) * step, y + height - tall - 6, value.toFixed(2), { "text-anchor": "middle" }));
  });
  svg.append(drawn("line", { x1: x, x2: x + width, y1: y + height, y2: y + height, class: "axis" }));
}

// A matrix as shades of one colour, its numbers written in.
function matrix(svg, [x, y, cell], rows, names, other = names, digits = 2) {
  rows.forEach((row, t) => {
    svg.append(written(x - 8, y + (t + 0.62) * cell, names[t], { "text-anchor": "end", class: "soft" }));
    row.forEach((value, s) => {
      svg.append(drawn("rect", { x: x + s * cell, y: y + t * cell, width: cell - 2, height: cell - 2, class: "cell",
        "fill-opacity": Math.min(1, Math.max(0, value)) * 0.75, rx: 3 }));
      if (digits >= 0) {
        svg.append(written(x + (s + 0.5) * cell - 1, y + (t + 0.6) * cell, value ? value.toFixed(digits) : "0",
          { "text-anchor": "middle", style: `font-size: ${Math.min(15, cell / 3.2)}px` }));
      }
    });
  });
  other.forEach((name, s) => svg.append(written(x + (s + 0.5) * cell, y - 8, name, { "text-anchor": "middle", class: "soft" })));
}

// A curve through points, in a box that goes from `from` to `to`.
function curve(svg, [x, y, width, height], [x0, x1], [y0, y1], points, kind = "") {
  const place = ([a, b]) => [x + ((a - x0) / (x1 - x0)) * width, y + height - ((b - y0) / (y1 - y0)) * height];
  svg.append(drawn("path", { class: `line ${kind}`, d: `M${points.map((p) => place(p).map((v) => v.toFixed(2)).join(",")).join("L")}` }));
  return place;
}

function frame(svg, [x, y, width, height], [x0, x1], [y0, y1], [across, up]) {
  svg.append(drawn("rect", { x, y, width, height, class: "axis" }));
  svg.append(written(x, y + height + 20, shown(x0), { class: "soft" }), written(x + width, y + height + 20, shown(x1), { class: "soft", "text-anchor": "end" }));
  svg.append(written(x - 8, y + height, shown(y0), { class: "soft", "text-anchor": "end" }), written(x - 8, y + 12, shown(y1), { class: "soft", "text-anchor": "end" }));
  svg.append(...twice(x + width / 2, y + height + 20, ...across, { "text-anchor": "middle", class: "soft" }), ...twice(x + 6, y + 18, ...up, { class: "soft" }));
}

const KEYS = [[1.6, 0.3], [0.9, 1.3], [-0.8, 1.1], [-1.4, -0.6], [0.5, -1.3]];
const NAMES = ["k1", "k2", "k3", "k4", "k5"];
const WORDS = ["the", "cat", "sat", "down", "."];
const SCORES = [[1.2, 0.1, -0.4, 0.3, -0.6], [0.4, 1.5, 0.2, -0.3, -0.9], [-0.2, 1.1, 0.8, 0.4, -0.5], [0.1, 0.3, 1.4, 0.9, 0.2], [-0.5, 0.2, 0.6, 0.7, 1.0]];
const DRAWN = [0.9, -1.3, 0.2, 1.6, -0.4, 0.5, -0.8, 1.1];
const LONG = [[0.9, -0.4, 1.2, 0.3, -1.1, 0.6, 0.2, -0.7], [-0.3, 1.4, 0.5, -0.8, 0.7, 0.1, -1.2, 0.9], [1.1, 0.2, -0.6, 1.3, 0.4, -0.9, 0.8, -0.2], [-0.7, 0.6, 0.1, -0.5, 1.2, 1.0, -0.3, 0.4]];

const widgets = {
  // One query over five keys in the plane, and what it takes home: the keys are their own values.
  query(root) {
    const made = new Widget(root, [760, 430], (v, svg) => {
      const query = [v.x, v.y], at = ([a, b]) => [210 + a * 95, 215 - b * 95];
      const found = formulas.attend(v.score, query, KEYS, KEYS, v.temperature);
      svg.append(drawn("line", { x1: 10, x2: 410, y1: 215, y2: 215, class: "axis" }), drawn("line", { x1: 210, x2: 210, y1: 10, y2: 420, class: "axis" }));
      KEYS.forEach((key, i) => {
        const [x, y] = at(key);
        svg.append(drawn("circle", { cx: x, cy: y, r: 6 + 30 * found.weights[i], class: "blue", "fill-opacity": 0.45 }));
        svg.append(written(x + 8, y - 12, NAMES[i]));
      });
      const [qx, qy] = at(query), [cx, cy] = at(found.context);
      svg.append(drawn("line", { x1: 210, y1: 215, x2: qx, y2: qy, class: "line other" }), drawn("line", { x1: 210, y1: 215, x2: cx, y2: cy, class: "line third" }));
      svg.append(drawn("circle", { cx: qx, cy: qy, r: 11, class: "handle" }), written(qx + 14, qy + 5, "q", { class: "big" }));
      svg.append(drawn("rect", { x: cx - 7, y: cy - 7, width: 14, height: 14, class: "green" }), ...twice(cx - 14, cy + 24, "context", "上下文", { "text-anchor": "end" }));
      svg.append(...twice(450, 24, "weights", "权重"));
      bars(svg, [440, 60, 300, 260], NAMES, found.weights);
      return { scores: ["scores", "分数", found.scores], weights: ["weights", "权重", found.weights],
        context: ["context vector", "上下文向量", found.context], entropy: ["entropy (nats)", "熵（奈特）", formulas.entropy(found.weights)] };
    });
    const x = made.slider("x", ["query, across", "查询，横向"], [-2, 2, 0.05, 1]);
    const y = made.slider("y", ["query, up", "查询，纵向"], [-2, 2, 0.05, 0.6]);
    made.choice("score", ["score", "打分函数"], [["dot", "q · k"], ["scaled", "q · k / √d"], ["cosine", "cos(q, k)"], ["additive", "vᵀ tanh(q + k)"]], "scaled");
    made.slider("temperature", ["temperature", "温度"], [0.1, 4, 0.05, 1]);
    const follow = (event) => {
      if (!event.buttons) return;
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(made.svg.getScreenCTM().inverse());
      if (point.x > 415) return;
      x.value = (point.x - 210) / 95;
      y.value = (215 - point.y) / 95;
      [x, y].forEach((one) => one.dispatchEvent(new Event("input")));
    };
    ["pointerdown", "pointermove"].forEach((name) => made.svg.addEventListener(name, follow));
    return made;
  },

  // Eight scores of random vectors: their spread grows with the width, and softmax saturates.
  scaling(root) {
    const made = new Widget(root, [760, 330], (v, svg) => {
      const raw = DRAWN.map((z) => z * Math.sqrt(v.width)), names = DRAWN.map((_, i) => `k${i + 1}`);
      const [plain, scaled] = [formulas.softmax(raw), formulas.softmax(raw.map((x) => x / Math.sqrt(v.width)))];
      svg.append(...twice(20, 24, "softmax(q · k)", "softmax(q · k)"), ...twice(400, 24, "softmax(q · k / √d)", "softmax(q · k / √d)"));
      bars(svg, [10, 60, 350, 220], names, plain, "orange");
      bars(svg, [390, 60, 350, 220], names, scaled);
      return { plain: ["weights without √d", "不除 √d 的权重", plain], scaled: ["weights with √d", "除以 √d 的权重", scaled],
        entropies: ["entropy, without and with", "熵：不除与除", [formulas.entropy(plain), formulas.entropy(scaled)]],
        slopes: ["gradient of softmax, without and with", "softmax 的梯度：不除与除", [formulas.slope(plain), formulas.slope(scaled)]] };
    });
    made.slider("width", ["d_k, the keys' width", "d_k，键的维数"], [1, 512, 1, 64]);
    return made;
  },

  // Who may look at whom: what is masked gets exactly 0.
  masks(root) {
    const made = new Widget(root, [560, 420], (v, svg) => {
      const weights = formulas.masked(SCORES, v);
      svg.append(...twice(90, 24, "down: the word that looks; across: what it looks at", "行：正在看的词；列：被看的词", { class: "soft" }));
      matrix(svg, [90, 70, 66], weights, WORDS);
      return { sums: ["sum of each row", "各行之和", weights.map(formulas.sum)],
        first: ["first row", "第一行", weights[0]], last: ["last row", "最后一行", weights[4]] };
    });
    made.tick("causal", ["causal: nobody sees the future", "因果掩码：看不到未来"]);
    made.slider("window", ["window to each side (0: none)", "两侧窗口（0：不限）"], [0, 4, 1, 0]);
    made.slider("padding", ["words at the end that are padding", "末尾的填充词数"], [0, 4, 1, 0]);
    return made;
  },

  // Luong's local-p: a Gaussian around the place that the model expects.
  window(root) {
    const names = Array.from({ length: 12 }, (_, i) => String(i + 1));
    const scores = names.map((_, i) => Math.sin(1.7 * i) + (i % 5 === 3 ? 1.2 : 0));
    const made = new Widget(root, [760, 330], (v, svg) => {
      const weights = formulas.softmax(scores), local = formulas.local(scores, v.centre - 1, v.reach);
      svg.append(...twice(20, 24, "global weights (pale) and local-p", "全局权重（浅色）与 local-p"));
      const most = Math.max(...weights, ...local);
      weights.forEach((w, i) => svg.append(drawn("rect", { x: 24 + i * 60, y: 60 + 220 * (1 - w / most), width: 52, height: (220 * w) / most, class: "grey", "fill-opacity": 0.3 })));
      bars(svg, [20, 60, 720, 220], names, local, "blue", most);
      return { local: ["local weights", "局部权重", local], kept: ["share that is kept", "保留的份额", formulas.sum(local)] };
    });
    made.slider("centre", ["position p that is expected", "预测的位置 p"], [1, 12, 0.1, 5]);
    made.slider("reach", ["window D (σ = D / 2)", "窗口 D（σ = D / 2）"], [1, 10, 0.5, 3]);
    return made;
  },

  // The width shared out to heads: each has weights of its own, and all cost what one would.
  heads(root) {
    const made = new Widget(root, [900, 330], (v, svg) => {
      const count = 2 ** v.heads, found = formulas.heads(LONG, LONG, count), cell = [56, 46, 40, 24][v.heads];
      found.forEach((weights, h) => {
        const across = h % 4, down = Math.floor(h / 4);
        svg.append(...twice(40 + across * 215, 22 + down * 160, `head ${h + 1}`, `第 ${h + 1} 头`));
        matrix(svg, [60 + across * 215, 50 + down * 160, cell], weights, ["1", "2", "3", "4"], ["1", "2", "3", "4"], v.heads === 3 ? -1 : 2);
      });
      return { width: ["width of a head, of 8", "每头的维数（共 8）", 8 / count], parameters: ["parameters of the projections, 4 d²", "投影的参数，4 d²", 4 * 8 * 8],
        first: ["first head, first word", "第一头，第一个词", found[0][0]], last: ["last head, first word", "最后一头，第一个词", found[count - 1][0]] };
    });
    made.slider("heads", ["heads, as a power of 2", "头数（2 的幂）"], [0, 3, 1, 1]);
    return made;
  },
};
