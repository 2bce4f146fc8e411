// Correct and learn: a translation is edited and taught to the server, listed, taken back; and the memory's matches.

const $ = (id) => document.getElementById(id);

// `ask(path, body, signal, method)` talks to the server, `say` has the page's words, `again` translates once more.
export function teacher({ ask, say, again }) {
  let shown = null, taken = false, last = [];

  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });

  function close() {
    $("teach").hidden = true;
    $("correct").setAttribute("aria-expanded", "false");
  }

  function open() {
    if (!shown) return;
    $("corrected").value = shown.translations[0].lines.map((line) => line.text).join("\n");
    $("corrected").lang = shown.target;
    $("teach").hidden = false;
    $("correct").setAttribute("aria-expanded", "true");
    $("corrected").focus();
  }

  async function learn(event) {
    event.preventDefault();
    const { text, source, target } = shown;
    const sources = text.split("\n"), before = shown.translations[0].lines, after = $("corrected").value.split("\n");
    if (after.length !== sources.length) { $("taught").textContent = say("lines-differ", sources.length); return; }
    const changed = sources.map((line, at) => [line, after[at].trim(), before[at].text]).filter(([, now, was]) => now && now !== was.trim());
    if (!changed.length) { $("taught").textContent = say("nothing-changed"); return; }
    $("learn").disabled = true;
    $("taught").textContent = say("learning");
    try {
      const made = [];
      for (const [line, now] of changed) made.push(...(await ask("v1/corrections", { source, target, text: line, translation: now }, undefined, "PUT")).corrections);
      last = made.map((one) => one.id);
      close();
      await list();
      await again();
      $("taught").textContent = say("learnt");
      $("untaught").hidden = !last.length;
    } catch (error) {
      $("taught").textContent = error.message;
    }
    $("learn").disabled = false;
  }

  async function undo(ids) {
    try {
      for (const id of ids) await ask(`v1/corrections/${encodeURIComponent(id)}`, undefined, undefined, "DELETE");
      last = last.filter((id) => !ids.includes(id));
      $("taught").textContent = say("undone");
    } catch (error) {
      $("taught").textContent = error.message;
    }
    $("untaught").hidden = !last.length;
    await list();
    await again();
  }

  // What the server has learnt; it may take no corrections, or want a key first.
  async function list() {
    let found;
    try { found = await ask("v1/corrections", undefined, undefined, "GET"); } catch { found = { corrections: [], taken: false }; }
    taken = found.taken;
    $("corrections").hidden = !taken;
    $("correct").hidden = !taken || !shown;
    $("learnt").replaceChildren(...found.corrections.map((one) => {
      const item = element("li", ""), button = element("button", say("undo"));
      button.type = "button";
      button.setAttribute("aria-label", `${say("undo")}: ${one.text}`);
      button.addEventListener("click", () => undo([one.id]));
      const text = element("span", `${one.text} → `), right = element("bdi", one.translation);
      text.lang = one.source;
      right.lang = one.target;
      item.append(text, right, " ", button);
      return item;
    }));
    if (!found.corrections.length) $("learnt").replaceChildren(element("li", say("none-learnt")));
  }

  // The pairs of the memory that are like the text, of all its lines, likest first.
  function matches(found) {
    const near = (found?.translations[0].lines ?? []).flatMap((line) => line.matches ?? []);
    const best = near.sort((one, other) => other.similarity - one.similarity).slice(0, 5);
    $("matches").hidden = !best.length;
    $("near").replaceChildren(...best.map((one) => {
      const item = element("li", ""), right = element("bdi", one.translation), text = element("bdi", one.text);
      text.lang = found.source;
      right.lang = found.target;
      const origin = one.origin === "correction" ? say("a-correction") : one.origin;
      item.append(element("strong", `${Math.round(100 * one.similarity)} % `), text, " → ", right, " ", Object.assign(element("span", origin), { className: "note" }));
      return item;
    }));
  }

  $("correct").addEventListener("click", () => $("teach").hidden ? open() : close());
  $("cancel").addEventListener("click", () => { close(); $("correct").focus(); });
  $("teach").addEventListener("submit", learn);
  $("untaught").addEventListener("click", () => undo(last));

  return {
    list,
    shown(found) {
      if (found?.text !== shown?.text) { close(); $("taught").textContent = ""; $("untaught").hidden = true; }
      shown = found;
      $("correct").hidden = !taken || !found;
      matches(found);
    },
  };
}
