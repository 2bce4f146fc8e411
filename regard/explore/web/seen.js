// HTML as it stands on the screen, as a picture {width, height, paint} that either surface of drawing.js can take.

import { fontOf, paints } from "./drawing.js";

const CLEAR = "rgba(0, 0, 0, 0)", SIDES = ["Top", "Right", "Bottom", "Left"];
const ruler = document.createElement("canvas").getContext("2d");

// Boxes and words of an element, also those that are scrolled out of sight. Fields and pictures in it are left out.
export function seen(root) {
  const drawn = [], origin = root.getBoundingClientRect();
  let width = 0, height = 0;
  function visit(element, right, down) {
    const style = getComputedStyle(element), found = element.getBoundingClientRect();
    if (!element.getClientRects().length || element.matches("select, input, textarea, canvas")) return;
    const box = {x: found.x + right, y: found.y + down, width: found.width, height: found.height};
    const above = element.matches("fieldset") ? element.firstElementChild.offsetHeight / 2 : 0;  // a legend is on the border
    width = Math.max(width, box.x + box.width); height = Math.max(height, box.y + box.height);
    drawn.push((to) => paintBox(element, style, {...box, y: box.y + above, height: box.height - above}, to));
    right += element.scrollLeft; down += element.scrollTop;
    for (const node of element.childNodes) {
      if (node.nodeType === Node.ELEMENT_NODE) visit(node, right, down);
      if (node.nodeType !== Node.TEXT_NODE) continue;
      for (const {text, place} of linesOf(node)) {
        const [x, y] = [place.x + right, place.y + down];
        drawn.push((to) => paintText(text, style, x, y, place.width, to));
      }
    }
  }
  visit(root, -Math.floor(origin.x), -Math.floor(origin.y));  // what falls between pixels does so on the screen too
  [width, height] = [Math.ceil(width), Math.ceil(height)];
  return {width, height, paint(to) {
    to.rect(0, 0, width, height, paints.ink.paper);
    for (const draw of drawn) draw(to);
  }};
}

// The lines into which a text is broken, {text, place}, without the spaces around them.
function linesOf(node) {
  const text = node.data, last = text.trimEnd().length, range = document.createRange(), lines = [];
  const within = (from, to) => { range.setStart(node, from); range.setEnd(node, to); return range.getBoundingClientRect(); };
  const end = (from, to) => {
    const line = text.slice(from, to), place = within(from, from + line.trimEnd().length);
    if (place.width) lines.push({text: line.trim(), place});
  };
  let from = text.search(/\S/), at = from;
  if (from < 0) return lines;
  const broken = within(from, last).height >= 2 * within(from, from + 1).height;
  for (const sign of broken ? text.slice(from, last) : "") {
    if (sign.trim() && within(at, at + sign.length).top >= within(from, from + 1).bottom) { end(from, at); from = at; }
    at += sign.length;
  }
  end(from, last);
  return lines;
}

function paintText(text, style, x, y, width, to) {
  const font = {size: parseFloat(style.fontSize), weight: style.fontWeight, width};
  if (style.fontFamily !== getComputedStyle(document.body).fontFamily) font.family = style.fontFamily;
  ruler.font = fontOf(font);
  to.text(text, x, y + ruler.measureText(text).fontBoundingBoxAscent - 5, style.color, "left", 0, font);
}

function paintBox(element, style, box, to) {
  const [x, y] = [Math.round(box.x), Math.round(box.y)];  // whole pixels, as on a screen
  const [width, height] = [Math.round(box.x + box.width) - x, Math.round(box.y + box.height) - y];
  const share = Number(style.getPropertyValue("--share")), round = parseFloat(style.borderTopLeftRadius) || 0;
  const [top, right, bottom, left] = SIDES.map((side) => parseFloat(style[`border${side}Width`]));
  if (element.matches("legend")) to.rect(x, y, width, height, paints.ink.paper);  // it stands on its box's border
  if (style.backgroundColor !== CLEAR) to.rect(x, y, width, height, style.backgroundColor, round);
  if (element.matches(".bar")) to.rect(x, y, width * share, height, paints.ink.fill);
  if (top && right && bottom && left) {
    to.frame(x + left / 2, y + top / 2, width - left, height - top, style.borderTopColor, top, round);
  } else if (bottom) to.rect(x, y + height - bottom, width, bottom, style.borderBottomColor);
  if (style.outlineStyle === "solid" && element !== document.activeElement) {
    const more = parseFloat(style.outlineWidth);
    to.frame(x - more / 2, y - more / 2, width + more, height + more, style.outlineColor, more, round);
  }
}
