// Draws the rows of `trace`. A slice is seven numbers: kind, begin, length, name, site, epoch, bytes.
"use strict";
const WIDTH = 7, LEFT = 150, TOP = 24, HIGH = 16, GAP = 3, BETWEEN = 10;
const [WAIT, MOVE, KERNEL, CALL] = [1, 2, 3, 5];
const canvas = document.getElementById("canvas"), tip = document.getElementById("tip");
const draw = canvas.getContext("2d");
let [from, to] = [trace.from, Math.max(trace.to, trace.from + 1)];
let hovered = null, chosen = null;

// The place of each row. Lanes are on the row of their stream, unless they are asked for.
let lanes = false, rows = [], height = 0;
function place() {
  let y = TOP;
  rows = trace.rows.filter((row, index) => lanes || row.main === index);
  rows.forEach((row, index) => {
    if (index > 0 && rows[index - 1].rank !== row.rank) y += BETWEEN;
    row.y = y;
    y += HIGH + GAP;
  });
  height = y + BETWEEN;
}
// The row on which something of a row is shown.
const shown = (index) => trace.rows[lanes ? index : trace.rows[index].main];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const width = () => canvas.clientWidth - LEFT;
const x = (time) => LEFT + (time - from) / (to - from) * width();
const time = (ns) => {
  const a = Math.abs(ns);
  if (a >= 1e9) return (ns / 1e9).toFixed(3) + " s";
  if (a >= 1e6) return (ns / 1e6).toFixed(3) + " ms";
  if (a >= 1e3) return (ns / 1e3).toFixed(2) + " us";
  return ns + " ns";
};

function ticks(paint) {
  let step = Math.pow(10, Math.floor(Math.log10((to - from) / 4)));
  while ((to - from) / step > 8) step *= (to - from) / step > 16 ? 5 : 2;
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) paint(at);
}

function paint() {
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = canvas.clientWidth * scale;
  canvas.height = height * scale;
  draw.setTransform(scale, 0, 0, scale, 0, 0);
  const colours = trace.kinds.map((_, kind) => colour("--k" + kind));
  const [text, faint, grid, panel, mark] = ["--text", "--faint", "--grid", "--panel", "--mark"].map(colour);
  draw.fillStyle = panel;
  draw.fillRect(0, 0, canvas.clientWidth, height);
  draw.font = "11px system-ui, sans-serif";
  draw.textBaseline = "middle";
  ticks((at) => {
    draw.fillStyle = grid;
    draw.fillRect(x(at), TOP - 6, 1, height);
    draw.fillStyle = faint;
    draw.textAlign = "center";
    if (x(at) > LEFT + 20 && x(at) < canvas.clientWidth - 30) draw.fillText(time(at), x(at), 9);
  });
  draw.save();
  draw.beginPath();
  draw.rect(LEFT, 0, width(), height);
  draw.clip();
  for (const row of rows) {
    const s = row.slices;
    // What is too short to see is drawn once for each pixel.
    const drawn = [-1, -1, -1, -1, -1, -1], labels = [];
    for (let i = 0; i < s.length; i += WIDTH) {
      const [kind, begun, long] = [s[i], s[i + 1], s[i + 2]];
      if (begun + long < from || begun > to) continue;
      const left = Math.max(x(begun), LEFT - 2), right = Math.min(x(begun + long), canvas.clientWidth + 2);
      if (right - left < 1 && Math.floor(left) === drawn[kind]) continue;
      drawn[kind] = Math.floor(left);
      const wide = Math.max(right - left - (right - left > 3 ? 0.5 : 0), 1);
      draw.fillStyle = colours[kind];
      draw.fillRect(left, row.y, wide, HIGH);
      // On the row of a stream, the waits and moves of a batch lie within it, and its own name says more.
      const inside = (kind === WAIT || kind === MOVE) && !row.name.includes(": lane ");
      if (wide > 40 && !inside) labels.push([kind, trace.texts[s[i + 3]], left, wide]);
    }
    draw.textAlign = "left";
    for (const [kind, name, left, wide] of labels) {
      draw.fillStyle = kind === MOVE || kind === KERNEL || kind === CALL ? panel : mark;
      const most = Math.floor((wide - 6) / 5.6);
      draw.fillText(name.length > most ? name.slice(0, most - 1) + "…" : name, left + 4, row.y + HIGH / 2 + 0.5);
    }
  }
  for (const slice of [hovered, chosen]) {
    if (!slice) continue;
    const s = slice.row.slices, i = slice.at;
    draw.strokeStyle = text;
    draw.lineWidth = 1.5;
    draw.strokeRect(x(s[i + 1]), slice.row.y - 1, Math.max(x(s[i + 1] + s[i + 2]) - x(s[i + 1]), 2), HIGH + 2);
    arrows(slice).forEach((arrow) => paint_arrow(arrow, text));
  }
  draw.restore();
  draw.textAlign = "left";
  rows.forEach((row, index) => {
    const first = index === 0 || rows[index - 1].rank !== row.rank;
    if (first) {
      draw.fillStyle = grid;
      if (index > 0) draw.fillRect(0, row.y - BETWEEN / 2 - GAP / 2, canvas.clientWidth, 1);
      draw.fillStyle = text;
      draw.font = "600 11px system-ui, sans-serif";
      draw.fillText("rank " + row.rank, 0, row.y + HIGH / 2);
      draw.font = "11px system-ui, sans-serif";
    }
    draw.fillStyle = faint;
    const name = row.name.length > 15 ? row.name.slice(0, 14) + "…" : row.name;
    draw.fillText(name, 58, row.y + HIGH / 2);
  });
}

function paint_arrow([from_row, sent, to_row, seen], ink) {
  const [x0, x1] = [x(sent), x(seen)];
  const [y0, y1] = [from_row, to_row].map((row) => shown(row).y + HIGH / 2);
  const middle = Math.max(Math.abs(x1 - x0) / 2, 12);
  draw.strokeStyle = draw.fillStyle = ink;
  draw.beginPath();
  draw.moveTo(x0, y0);
  draw.bezierCurveTo(x0 + middle, y0, x1 - middle, y1, x1, y1);
  draw.stroke();
  draw.beginPath();
  draw.moveTo(x1, y1);
  draw.lineTo(x1 - 7, y1 - 4);
  draw.lineTo(x1 - 7, y1 + 4);
  draw.fill();
}

// The arrows from and to a slice.
function arrows(slice) {
  const s = slice.row.slices, i = slice.at;
  const touches = (row, at) => shown(row) === slice.row && s[i + 1] <= at && at <= s[i + 1] + s[i + 2];
  const found = [], a = trace.arrows;
  for (let k = 0; k < a.length && found.length < 100; k += 4) {
    if (touches(a[k], a[k + 1]) || touches(a[k + 2], a[k + 3])) found.push(a.slice(k, k + 4));
  }
  return found;
}

// The slice at a point: of several, the shortest.
function slice_at(px, py) {
  const row = rows.find((row) => row.y - 1 <= py && py <= row.y + HIGH + 1);
  if (!row || px < LEFT) return null;
  const s = row.slices;
  let best = null;
  for (let i = 0; i < s.length; i += WIDTH) {
    const left = x(s[i + 1]) - 2, right = x(s[i + 1] + s[i + 2]) + 2;
    if (left <= px && px <= right && (best === null || s[i + 2] <= s[best + 2])) best = i;
  }
  return best === null ? null : { row, at: best };
}

function describe({ row, at }) {
  const s = row.slices;
  const lines = [trace.texts[s[at + 3]], "rank " + row.rank + ", " + row.name + ", " + trace.kinds[s[at]]];
  lines.push((s[at + 2] ? time(s[at + 2]) + " from " : "at ") + time(s[at + 1]));
  if (s[at + 5] >= 0) lines.push("epoch " + s[at + 5]);
  if (s[at + 6] > 0) lines.push(s[at + 6].toLocaleString("en") + " bytes");
  if (trace.texts[s[at + 4]]) lines.push(trace.texts[s[at + 4]]);
  return lines.join("\n");
}

function show(begin, end) {
  const least = 100, all = trace.to - trace.from;
  const long = Math.min(Math.max(end - begin, least), all);
  begin = Math.min(Math.max(begin, trace.from), trace.to - long);
  [from, to] = [begin, begin + long];
  requestAnimationFrame(paint);
}

canvas.addEventListener("wheel", (event) => {
  // A page of many ranks must scroll, too.
  if (event.shiftKey) return;
  event.preventDefault();
  const at = from + (event.offsetX - LEFT) / width() * (to - from);
  const factor = Math.exp(event.deltaY * 0.002);
  show(at - (at - from) * factor, at + (to - at) * factor);
}, { passive: false });

let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.offsetX, from, to, moved: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (drag) {
    const by = (event.offsetX - drag.x) / width() * (drag.to - drag.from);
    drag.moved ||= Math.abs(event.offsetX - drag.x) > 3;
    if (drag.moved) show(drag.from - by, drag.to - by);
    return;
  }
  const over = slice_at(event.offsetX, event.offsetY);
  tip.hidden = !over;
  if (over) {
    tip.textContent = describe(over);
    const right = event.offsetX > canvas.clientWidth / 2;
    tip.style.left = right ? "auto" : event.offsetX + canvas.offsetLeft + 14 + "px";
    tip.style.right = right ? canvas.parentElement.clientWidth - canvas.offsetLeft - event.offsetX + 14 + "px" : "auto";
    tip.style.top = event.offsetY + canvas.offsetTop + 14 + "px";
  }
  if (over?.row !== hovered?.row || over?.at !== hovered?.at) {
    hovered = over;
    requestAnimationFrame(paint);
  }
});
canvas.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved) chosen = slice_at(event.offsetX, event.offsetY);
  drag = null;
  requestAnimationFrame(paint);
});
canvas.addEventListener("pointerleave", () => {
  hovered = null;
  tip.hidden = true;
  requestAnimationFrame(paint);
});
document.getElementById("lanes").addEventListener("click", () => {
  lanes = !lanes;
  hovered = chosen = null;
  place();
  paint();
});
document.getElementById("all").addEventListener("click", () => show(trace.from, trace.to));
window.addEventListener("resize", paint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
place();
// A link can lead to a part of the trace: #FROM-TO, in nanoseconds.
const part = location.hash.match(/^#(\d+)-(\d+)$/);
if (part) show(Number(part[1]), Number(part[2]));
paint();
