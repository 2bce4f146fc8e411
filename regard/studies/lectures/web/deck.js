
// Slides: one on screen at a time; keys, buttons, swipes and the address lead from one to the next.
const deck = (() => {
  const slides = () => [...document.querySelectorAll(".slide")];
  let at = 0;

  function go(to) {
    const all = slides();
    at = Math.max(0, Math.min(all.length - 1, to));
    all.forEach((slide, i) => { slide.hidden = i !== at; });
    document.getElementById("where").textContent = `${at + 1} / ${all.length}`;
    document.getElementById("back").disabled = at === 0;
    document.getElementById("next").disabled = at === all.length - 1;
    history.replaceState(null, "", `#${at + 1}`);
    scrollTo(0, 0);
  }

  const KEYS = { ArrowRight: 1, ArrowDown: 0, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1, Home: -Infinity, End: Infinity };

  function pressed(event) {
    const step = KEYS[event.key];
    const other = event.target.closest("input, select, textarea, .picture") || (event.key === " " && event.target.closest("button, a"));
    if (!step || other || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    go(step === Infinity ? slides().length - 1 : step === -Infinity ? 0 : at + (event.shiftKey && event.key === " " ? -1 : step));
  }

  // A finger that goes sideways, but not one that moves a figure or scrolls a table.
  function swipes() {
    let begun = null;
    document.addEventListener("touchstart", (event) => {
      const [touch] = event.touches;
      begun = event.touches.length > 1 || event.target.closest(".widget, input") ? null : [touch.clientX, touch.clientY];
    }, { passive: true });
    document.addEventListener("touchend", (event) => {
      if (!begun) return;
      const [touch] = event.changedTouches, across = touch.clientX - begun[0], down = touch.clientY - begun[1];
      if (Math.abs(across) > 60 && Math.abs(across) > 2 * Math.abs(down)) go(at - Math.sign(across));
      begun = null;
    });
  }

  function begin() {
    const asked = () => (Number(location.hash.slice(1)) || 1) - 1;
    document.addEventListener("keydown", pressed);
    document.getElementById("back").addEventListener("click", () => go(at - 1));
    document.getElementById("next").addEventListener("click", () => go(at + 1));
    addEventListener("hashchange", () => go(asked()));
    swipes();
    go(asked());
  }

  return { begin };
})();
