"use strict";
// Lines with bands on two axes, drawn as SVG from plain numbers. Text is only ever set as text.
const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const MARKS = [
  (r) => `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`,
  (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
  (r) => `M0 ${-1.3 * r}L${1.2 * r} ${r}H${-1.2 * r}Z`,
  (r) => `M0 ${-1.4 * r}L${1.4 * r} 0L0 ${1.4 * r}L${-1.4 * r} 0Z`,
];

function element(name, attributes = {}, parent = null, text = null) {
  const made = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

const colour = (line) => `var(--c${line.colour % 7})`;
const known = (values) => (values || []).filter((value) => value !== null);

function shownNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
  if (size >= 1e4) return Math.round(value).toLocaleString("en");
  return size !== 0 && size < 1e-3 ? value.toExponential(2) : String(+value.toPrecision(4));
}

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
  const out = [];
  for (let i = Math.ceil(low / size - 1e-9); i * size <= high + size * 1e-9; i++) out.push(+(i * size).toPrecision(12));
  return out;
}

// The range of y: all values and marks, and of the bands so much that the lines stay legible.
function range(plot) {
  const values = plot.lines.flatMap((line) => known(line.y));
  const marked = plot.lines.filter((line) => line.marks || plot.axis === "K").flatMap((line) => [...known(line.low), ...known(line.high)]);
  let low = Math.min(...values, ...marked), high = Math.max(...values, ...marked);
  const room = 0.5 * (high - low || Math.abs(high));
  const ends = plot.lines.flatMap((line) => [...known(line.low), ...known(line.high)]);
  if (ends.length) [low, high] = [Math.min(low, Math.max(Math.min(...ends), low - room)), Math.max(high, Math.min(Math.max(...ends), high + room))];
  if (plot.band !== null) [low, high] = [Math.min(low, -1.2 * plot.band), Math.max(high, 1.2 * plot.band)];
  if (plot.floor) low = Math.min(0, low);
  if (low === high) [low, high] = plot.floor ? [low, low + 1] : [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
  const most = plot.unit.startsWith("%") && high <= 100 ? 100 : Infinity;
  return [low - (plot.floor && low === 0 ? 0 : 0.04 * (high - low)), Math.min(most, high + 0.04 * (high - low))];
}

// Marks alone, which are held-out problems, are hollow.
const filled = (line) => (line.marks ? { fill: "var(--paper)", stroke: colour(line), "stroke-width": 2 } : { fill: colour(line), stroke: "var(--paper)" });

function swatch(line, parent) {
  const svg = element("svg:svg", { viewBox: "0 0 34 12", "aria-hidden": "true" }, parent);
  if (!line.marks) element("svg:path", { d: "M1 6H33", stroke: colour(line), "stroke-width": 2.2, "stroke-dasharray": DASHES[line.dash % 4] }, svg);
  element("svg:path", { d: MARKS[line.dash % 4](3.6), transform: "translate(17 6)", ...filled(line) }, svg);
}

// Draws a plot into a box; `height` in pixels.
function drawChart(box, plot, height) {
  box.replaceChildren();
  box.dataset.key = plot.key;
  element("h3", {}, box, plot.title + (plot.unit ? `, ${plot.unit}` : ""));
  const width = Math.max(260, box.clientWidth), left = 58, right = 12, top = 8, bottom = 42;
  const xs = plot.lines.flatMap((line) => line.x);
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  if (x0 === x1) [x0, x1] = plot.axis === "K" ? [x0 / 1.4, x1 * 1.4] : [x0 - 1, x1 + 1];
  const [y0, y1] = range(plot);
  const bend = plot.axis === "K" ? Math.log2 : (value) => value;
  const X = (value) => left + ((bend(value) - bend(x0)) / (bend(x1) - bend(x0))) * (width - left - right);
  const Y = (value) => top + ((y1 - value) / (y1 - y0)) * (height - top - bottom);
  const told = plot.lines.filter((line) => !line.thin).map((line) => `${line.label}: ${shownNumber(line.y[0])} to ${shownNumber(line.y.at(-1))}`);
  const svg = element("svg:svg", { class: "axes", role: "img", "aria-label": `${plot.title}. ${told.join("; ")}`, viewBox: `0 0 ${width} ${height}`, height }, box);
  const clip = `clip-${plot.key}-${Math.random().toString(36).slice(2)}`;
  element("svg:rect", { x: left, y: top, width: width - left - right, height: height - top - bottom }, element("svg:clipPath", { id: clip }, svg));
  for (const value of ticks(y0, y1, height < 240 ? 4 : 5)) {
    element("svg:line", { class: value === 0 ? "zero" : "grid", x1: left, x2: width - right, y1: Y(value), y2: Y(value) }, svg);
    element("svg:text", { x: left - 7, y: Y(value) + 4, "text-anchor": "end" }, svg, shownNumber(value));
  }
  const steps = plot.axis === "K" ? [...new Set(xs)].sort((a, b) => a - b) : ticks(x0, x1, width < 460 ? 4 : 8).filter(Number.isInteger);
  const every = Math.ceil((steps.length * 34) / (width - left - right));
  steps.forEach((value, i) => {
    element("svg:line", { class: "grid", x1: X(value), x2: X(value), y1: height - bottom, y2: height - bottom + 5 }, svg);
    if (i % every === 0) element("svg:text", { x: X(value), y: height - bottom + 17, "text-anchor": "middle" }, svg, shownNumber(value));
  });
  element("svg:text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, svg, plot.axis);
  const inside = element("svg:g", { "clip-path": `url(#${clip})` }, svg);
  if (plot.band !== null) element("svg:rect", { class: "calm", x: left, width: width - left - right, y: Y(plot.band), height: Y(-plot.band) - Y(plot.band) }, inside);
  const bands = plot.lines.filter((line) => line.low && !line.marks);
  for (const line of bands) drawBand(line, X, Y, inside, bands.length > 3 ? 0.06 : 0.15);
  for (const line of plot.lines) drawLine(line, X, Y, inside, svg);
  const legend = element("ul", { class: "legend" }, box);
  for (const line of plot.lines.filter((one) => !one.thin)) {
    const item = element("li", {}, legend);
    swatch(line, item);
    item.append(line.label);
  }
  if (plot.note) element("p", { class: "muted" }, box, plot.note);
  const links = element("p", { class: "muted" }, box);
  const csv = `data:text/csv;charset=utf-8,${encodeURIComponent(csvOf(plot))}`;
  element("a", { href: csv, download: `${plot.key}.csv` }, links, "CSV");
  links.append(plot.short ? " of what is drawn (means of a few steps)" : "", document.body.dataset.live ? "" : `; PNG: report/${plot.key}.png`);
  hover(svg, plot, { X, Y, left, right, top, bottom, width, height });
}

function drawBand(line, X, Y, parent, opacity) {
  let run = [];
  const close = () => {
    if (run.length > 1) {
      const d = `M${run.map((i) => `${X(line.x[i])} ${Y(line.high[i])}`).join("L")}L${run.reverse().map((i) => `${X(line.x[i])} ${Y(line.low[i])}`).join("L")}Z`;
      element("svg:path", { d, fill: colour(line), opacity }, parent);
    }
    run = [];
  };
  line.x.forEach((_, i) => (line.low[i] === null || line.high[i] === null ? close() : run.push(i)));
  close();
}

function drawLine(line, X, Y, inside, svg) {
  const there = line.x.map((_, i) => i).filter((i) => line.y[i] !== null);
  if (line.marks) {
    for (const i of there.filter((one) => line.low && line.low[one] !== null))
      element("svg:path", { d: `M${X(line.x[i])} ${Y(line.low[i])}V${Y(line.high[i])}`, stroke: colour(line), "stroke-width": 1.4 }, inside);
  } else {
    let d = "", joined = false;
    line.x.forEach((x, i) => {
      if (line.y[i] !== null) d += `${joined ? "L" : "M"}${X(x).toFixed(1)} ${Y(line.y[i]).toFixed(1)}`;
      joined = line.y[i] !== null;
    });
    const look = line.thin ? { "stroke-width": 0.8, opacity: 0.45 } : { "stroke-width": 2, "stroke-dasharray": DASHES[line.dash % 4] };
    element("svg:path", { class: "line", d, fill: "none", stroke: colour(line), ...look }, inside);
  }
  if (line.thin || (!line.marks && there.length > 30)) return;
  const size = line.marks ? 4.6 : 3;
  for (const i of there)
    element("svg:path", { class: "mark", d: MARKS[line.dash % 4](size), transform: `translate(${X(line.x[i])} ${Y(line.y[i])})`, ...filled(line) }, svg);
}

function csvOf(plot) {
  const cell = (value) => (value === null || value === undefined ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const rows = plot.lines.flatMap((line) => line.x.map((x, i) => [line.thin ? `${line.label} (single steps)` : line.label, x, line.y[i], line.low?.[i], line.high?.[i]]));
  return [["line", plot.axis, plot.key, "low", "high"], ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

// The values at the nearest x, beside the pointer.
function hover(svg, plot, { X, left, right, top, bottom, width, height }) {
  const cursor = element("svg:line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" }, svg);
  const places = [...new Set(plot.lines.flatMap((line) => line.x))];
  svg.addEventListener("pointermove", (event) => {
    const at = ((event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width) * width;
    if (at < left - 8 || at > width - right + 8) return hideTip(cursor);
    const x = places.reduce((best, one) => (Math.abs(X(one) - at) < Math.abs(X(best) - at) ? one : best));
    const told = plot.lines.filter((line) => !line.thin && line.x.includes(x)).map((line) => {
      const i = line.x.indexOf(x), ends = line.low && line.low[i] !== null ? ` [${shownNumber(line.low[i])}, ${shownNumber(line.high[i])}]` : "";
      return `${line.label}: ${shownNumber(line.y[i])}${ends}`;
    });
    for (const name of ["x1", "x2"]) cursor.setAttribute(name, X(x));
    cursor.setAttribute("visibility", "visible");
    showTip([`${plot.axis} ${shownNumber(x)}`, ...told].join("\n"), event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", () => hideTip(cursor));
}

function showTip(text, x, y) {
  const tip = document.getElementById("tip");
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18}px`;
}

function hideTip(cursor) {
  document.getElementById("tip").hidden = true;
  if (cursor) cursor.setAttribute("visibility", "hidden");
}
