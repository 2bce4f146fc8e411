// The figures that move: positions, training, search, measures, and a recorded translation.
"use strict";
Object.assign(widgets, {
  // The product of two positions' vectors depends on their distance alone, and does not fall all the way.
  sinusoids(root) {
    const made = new Widget(root, [760, 420], (v, svg) => {
      const width = 2 ** v.width, here = formulas.sinusoid(v.position, width);
      const products = Array.from({ length: 101 }, (_, k) => formulas.dot(here, formulas.sinusoid(v.position + k, width)));
      for (let i = 0; i < Math.min(width, 32); i += 1) {
        for (let p = 0; p < 32; p += 1) {
          svg.append(drawn("rect", { x: 20 + i * 9, y: 40 + p * 9, width: 9, height: 9, class: "cell", style: "stroke: none",
            "fill-opacity": (formulas.sinusoid(p, width)[i] + 1) / 2 }));
        }
      }
      svg.append(...twice(20, 24, "32 positions down, dimensions across", "行：32 个位置；列：维", { class: "soft" }));
      const box = [370, 40, 370, 300];
      frame(svg, box, [0, 100], [0, width / 2], [["distance k", "距离 k"], ["PE(p) · PE(p + k)", "PE(p) · PE(p + k)"]]);
      curve(svg, box, [0, 100], [0, width / 2], products.map((y, x) => [x, y]));
      return { vector: ["the first four numbers of PE(p)", "PE(p) 的前四个数", here.slice(0, 4)], at: ["product at distances 0, 1, 10", "距离 0、1、10 处的点积", [0, 1, 10].map((k) => products[k])],
        rises: ["steps at which it rises, of 100", "100 步中上升的步数", products.slice(1).filter((y, k) => y > products[k]).length] };
    });
    made.slider("position", ["position p", "位置 p"], [0, 60, 1, 0]);
    made.slider("width", ["dimensions, as a power of 2", "维数（2 的幂）"], [2, 8, 1, 7]);
    return made;
  },

  // RoPE: query and key turn with their positions, and the product knows how far they are apart.
  rotation(root) {
    const query = [[1, 0.2], [0.6, 0.8]], key = [[0.9, -0.3], [0.2, 1]];
    const made = new Widget(root, [760, 380], (v, svg) => {
      const q = formulas.rotate(query, v.m), k = formulas.rotate(key, v.n);
      q.forEach((pair, i) => {
        const [x, y] = [190 + i * 380, 200];
        svg.append(drawn("circle", { cx: x, cy: y, r: 130, class: "axis" }));
        [[query[i], "line other", 0.35], [key[i], "line", 0.35], [pair, "line other", 1], [k[i], "line", 1]].forEach(([[a, b], kind, alpha]) =>
          svg.append(drawn("line", { x1: x, y1: y, x2: x + a * 125, y2: y - b * 125, class: kind, "stroke-opacity": alpha })));
        svg.append(written(x + pair[0] * 140, y - pair[1] * 140, "q"), written(x + k[i][0] * 140, y - k[i][1] * 140, "k"));
        svg.append(...twice(x, 30, `pair ${i + 1}: turns by ${shown(100 ** -i)} a position`, `第 ${i + 1} 对：每位置转 ${shown(100 ** -i)} 弧度`, { "text-anchor": "middle" }));
      });
      return { product: ["(R_m q) · (R_n k)", "(R_m q) · (R_n k)", formulas.dot(q.flat(), k.flat())],
        apart: ["q · (R_(n-m) k)", "q · (R_(n-m) k)", formulas.dot(query.flat(), formulas.rotate(key, v.n - v.m).flat())], distance: ["distance n - m", "距离 n - m", v.n - v.m] };
    });
    made.slider("m", ["the query's position m", "查询的位置 m"], [0, 60, 1, 3]);
    made.slider("n", ["the key's position n", "键的位置 n"], [0, 60, 1, 7]);
    return made;
  },

  // T5: near distances have a number each, far ones share.
  buckets(root) {
    const made = new Widget(root, [760, 320], (v, svg) => {
      const all = Array.from({ length: 301 }, (_, i) => i - 150), box = [60, 20, 680, 250];
      const count = 2 ** v.buckets, found = all.map((d) => [d, formulas.bucket(d, count, v.farthest)]);
      frame(svg, box, [-150, 150], [0, count], [["distance", "距离"], ["bucket", "桶"]]);
      curve(svg, box, [-150, 150], [0, count], found);
      const place = curve(svg, box, [-150, 150], [0, count], [[v.distance, 0], [v.distance, count]], "other");
      svg.append(drawn("circle", { cx: place([v.distance, 0])[0], cy: place([0, formulas.bucket(v.distance, count, v.farthest)])[1], r: 7, class: "orange" }));
      return { bucket: ["its bucket", "所在的桶", formulas.bucket(v.distance, count, v.farthest)], used: ["buckets in the picture", "图中用到的桶", new Set(found.map(([, b]) => b)).size] };
    });
    made.slider("distance", ["distance, key - query", "距离，键 - 查询"], [-150, 150, 1, 20]);
    made.slider("buckets", ["buckets, as a power of 2", "桶数（2 的幂）"], [3, 6, 1, 5]);
    made.slider("farthest", ["farthest that counts", "最远的距离"], [32, 150, 1, 128]);
    return made;
  },

  // Scores become shares: what raising to e does, and what dividing first does.
  temperature(root) {
    const made = new Widget(root, [760, 330], (v, svg) => {
      const scores = [v.a, v.b, v.c], weights = formulas.softmax(scores, v.temperature);
      bars(svg, [30, 50, 330, 230], ["a", "b", "c"], scores.map((x) => Math.exp(x / v.temperature)), "orange", Math.max(...scores.map((x) => Math.exp(x / v.temperature))));
      bars(svg, [400, 50, 330, 230], ["a", "b", "c"], weights);
      svg.append(written(40, 24, "exp(x / T)"), written(410, 24, "softmax(x / T)"));
      return { weights: ["weights", "权重", weights], entropy: ["entropy (nats)", "熵（奈特）", formulas.entropy(weights)] };
    });
    [["a", 1], ["b", 2], ["c", 3]].forEach(([name, value]) => made.slider(name, [`score ${name}`, `分数 ${name}`], [-4, 4, 0.1, value]));
    made.slider("temperature", ["temperature T", "温度 T"], [0.1, 5, 0.05, 1]);
    return made;
  },

  // What a model pays for how sure it is, and where it pays least.
  smoothing(root) {
    const made = new Widget(root, [760, 330], (v, svg) => {
      const box = [60, 20, 680, 260], points = [], best = 1 - v.epsilon + v.epsilon / v.words;
      for (let p = 0.005; p < 0.9995; p += 0.005) points.push([p, formulas.smoothed(p, v.epsilon, v.words)]);
      frame(svg, box, [0, 1], [0, 6], [["probability of the truth", "给正确词的概率"], ["loss (nats)", "损失（奈特）"]]);
      const place = curve(svg, box, [0, 1], [0, 6], points.filter(([, y]) => y <= 6));
      const sure = Math.min(best, 1 - 1e-9), least = formulas.smoothed(sure, v.epsilon, v.words);
      svg.append(drawn("circle", { cx: place([sure, least])[0], cy: place([sure, least])[1], r: 8, class: "orange" }));
      return { best: ["best probability, 1 - ε + ε / V", "最优概率 1 - ε + ε / V", best], here: ["loss at 0.9", "概率 0.9 时的损失", formulas.smoothed(0.9, v.epsilon, v.words)] };
    });
    made.slider("epsilon", ["ε", "ε"], [0, 0.5, 0.01, 0.1]);
    made.slider("words", ["V, words", "V，词数"], [2, 1000, 1, 100]);
    return made;
  },

  // The paper's learning rate: up in a line, down as one over the root.
  warmup(root) {
    const made = new Widget(root, [760, 330], (v, svg) => {
      const box = [80, 20, 660, 260], points = [], most = formulas.rate(v.warmup, v.width, v.warmup, v.factor);
      for (let n = 1; n <= 20000; n += 50) points.push([n, formulas.rate(n, v.width, v.warmup, v.factor)]);
      frame(svg, box, [0, 20000], [0, most * 1.1], [["update", "更新步"], ["learning rate", "学习率"]]);
      curve(svg, box, [0, 20000], [0, most * 1.1], points);
      return { most: ["highest, at the last warm-up update", "最高（预热结束时）", most], at: ["at updates 1, 1,000, 20,000", "第 1、1000、20000 步", [1, 1000, 20000].map((n) => formulas.rate(n, v.width, v.warmup, v.factor))] };
    });
    made.slider("warmup", ["warm-up updates", "预热步数"], [100, 10000, 100, 4000]);
    made.slider("width", ["d_model", "d_model"], [64, 1024, 64, 512]);
    made.slider("factor", ["factor", "倍数"], [0.2, 4, 0.1, 1]);
    return made;
  },

  // Hypotheses of the lecture's model ranked with and without their lengths.
  length(root) {
    const every = formulas.beam(64, 0).finished;
    const picked = [[3], [0, 3], [0, 1, 2, 3], [0, 2, 1, 3]].map((ids) => every.find((h) => String(h.ids) === String(ids)));
    const made = new Widget(root, [760, 300], (v, svg) => {
      const scores = picked.map((h) => h.log / formulas.PENALTIES[v.penalty](h.ids.length, v.alpha));
      const best = scores.indexOf(Math.max(...scores)), least = Math.min(...scores);
      picked.forEach((h, i) => {
        const y = 30 + i * 64, wide = (scores[i] / least) * 420;
        if (i === best) svg.append(drawn("rect", { x: 4, y: y - 22, width: 752, height: 56, rx: 8, class: "best" }));
        svg.append(written(14, y + 8, h.ids.map((w) => formulas.WORDS[w]).join(" "), i === best ? { class: "big" } : {}));
        svg.append(drawn("rect", { x: 200, y: y - 10, width: Math.max(1, wide), height: 26, rx: 4, class: i === best ? "green" : "grey" }));
        svg.append(written(208 + wide, y + 9, scores[i].toFixed(3)));
      });
      return { scores: ["scores", "得分", scores], best: ["best", "最优", picked[best].ids.map((w) => formulas.WORDS[w]).join(" ")] };
    });
    made.slider("alpha", ["α", "α"], [0, 2, 0.05, 0]);
    made.choice("penalty", ["log p divided by", "log p 除以"], [["power", "L^α"], ["gnmt", "((5 + L) / 6)^α"]], "power");
    return made;
  },

  // A beam search over the lecture's table as a tree that grows.
  beams(root) {
    const made = new Widget(root, [920, 560], (v, svg) => {
      const found = formulas.beam(v.width, v.alpha, v.penalty), places = { "": [30, 295] };
      found.steps.slice(0, v.step).forEach((candidates, t) => {
        const some = candidates.filter((one) => one.state !== "pruned" || candidates.length <= 14).slice(0, 14);
        some.sort((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : a.word - b.word));
        some.forEach((one, i) => {
          const [x, y] = [210 * (t + 1) - 10, 295 + (i - (some.length - 1) / 2) * Math.min(46, 500 / some.length)], [fx, fy] = places[one.from];
          places[one.id] = [x, y];
          svg.append(drawn("path", { class: `edge ${one.state}`, d: `M${fx + (one.from ? 64 : 12)},${fy}C${fx + 120},${fy} ${x - 110},${y} ${x - 44},${y}` }));
          svg.append(drawn("rect", { x: x - 44, y: y - 15, width: 108, height: 30, rx: 7, class: `box ${one.state}` }));
          svg.append(written(x - 36, y + 5, formulas.WORDS[one.word]), written(x + 58, y + 5, Math.exp(one.log).toPrecision(2), { class: "soft", style: "font-size: 12px", "text-anchor": "end" }));
        });
      });
      svg.append(drawn("circle", { cx: 40, cy: 295, r: 12, class: "blue" }));
      svg.append(...twice(8, 20, "blue: goes on; green: has ended; dashed: dropped. Beside a word, the probability so far.", "蓝：继续；绿：已结束；虚线：丢弃。词旁是到此为止的概率。", { class: "soft" }));
      const best = found.finished[0];
      return { best: ["best of all steps", "最终最优", best.ids.map((w) => formulas.WORDS[w]).join(" ")], score: ["its score", "其得分", best.score], probability: ["its probability", "其概率", Math.exp(best.log)],
        looked: ["continuations looked at", "看过的后续", formulas.sum(found.steps.map((s) => s.length))] };
    });
    made.slider("width", ["beam", "束宽"], [1, 4, 1, 2]);
    const step = made.slider("step", ["step", "步"], [0, 4, 1, 4]);
    made.slider("alpha", ["α", "α"], [0, 1.5, 0.05, 0.75]);
    made.choice("penalty", ["length penalty", "长度惩罚"], [["power", "L^α"], ["gnmt", "((5 + L) / 6)^α"]], "power");
    made.button(["Next step", "下一步"], () => { step.value = (Number(step.value) + 1) % 5; step.dispatchEvent(new Event("input")); });
    return made;
  },

  // BLEU and ROUGE of what is typed, words parted by spaces.
  measures(root) {
    const made = new Widget(root, [760, 260], (v, svg) => {
      const [guess, truth] = [v.guess, v.truth].map((text) => text.split(/\s+/).filter(Boolean)), found = formulas.bleu(guess, truth);
      bars(svg, [30, 40, 420, 170], ["p1", "p2", "p3", "p4"], found.shares.map(([right, all]) => (all ? right / all : 0)));
      bars(svg, [490, 40, 240, 170], ["b", "BLEU"], [found.brevity, found.bleu], "green");
      return { shares: ["n-grams found of all", "命中的 n 元组", found.shares.map(([right, all]) => `${right}/${all}`)], brevity: ["brevity penalty", "长度惩罚 b", found.brevity],
        bleu: ["BLEU", "BLEU", found.bleu], rouge: ["ROUGE-1, ROUGE-2 (recall)", "ROUGE-1、ROUGE-2（召回率）", [1, 2].map((n) => formulas.rouge(guess, truth, n))] };
    });
    made.text("guess", ["hypothesis", "译文"], "the cat sat on the the mat");
    made.text("truth", ["reference", "参考"], "the cat sat on the mat");
    return made;
  },

  // A translation recorded of a trained model, word by word.
  steps(root) {
    const recorded = JSON.parse(document.getElementById("recorded").textContent);
    let playing = 0;
    const made = new Widget(root, [900, 420], (v, svg) => {
      const { source, steps } = recorded, now = steps[Math.max(0, v.step - 1)], wide = 860 / source.length, tall = 860 / steps.length;
      source.forEach((token, s) => svg.append(written(30 + (s + 0.5) * wide, 40, token, { "text-anchor": "middle", class: "big" })));
      steps.slice(0, v.step).forEach((one, t) => svg.append(written(20 + (t + 0.5) * tall, 280, one.token, { "text-anchor": "middle", class: t === v.step - 1 ? "big" : "" })));
      if (v.step) {
        now.attention.forEach((weight, s) => {
          svg.append(drawn("rect", { x: 30 + s * wide + 4, y: 52, width: wide - 8, height: 8 + 40 * weight, class: "blue", "fill-opacity": 0.15 + 0.85 * weight, rx: 4 }));
          svg.append(drawn("line", { x1: 20 + (v.step - 0.5) * tall, y1: 258, x2: 30 + (s + 0.5) * wide, y2: 66 + 40 * weight, class: "line", style: `stroke-width: ${(10 * weight).toFixed(2)}` }));
        });
        now.likeliest.forEach(([token, p], i) => svg.append(drawn("rect", { x: 30, y: 310 + i * 34, width: 600 * p, height: 26, class: i ? "grey" : "green", rx: 4, "fill-opacity": 0.5 }), written(40, 329 + i * 34, `${token}  ${p.toFixed(3)}`)));
      }
      return { token: ["written", "写出", v.step ? now.token : "–"], attention: ["attention", "注意力", v.step ? now.attention : []], probability: ["its probability", "其概率", v.step ? now.likeliest[0][1] : 0] };
    });
    const step = made.slider("step", ["step", "步"], [0, recorded.steps.length, 1, 1]);
    const go = (to) => { step.value = to; step.dispatchEvent(new Event("input")); };
    const stop = () => { clearInterval(playing); playing = 0; };
    made.button(["Step", "下一步"], () => { stop(); go((Number(step.value) + 1) % (recorded.steps.length + 1)); });
    made.button(["Play or pause", "播放或暂停"], () => {
      if (playing) { stop(); return; }
      playing = setInterval(() => { if (Number(step.value) >= recorded.steps.length) stop(); else go(Number(step.value) + 1); }, 900);
      if (Number(step.value) >= recorded.steps.length) go(0);
    });
    return made;
  },
});
