"use strict";
/* Code shared by both pages. Text is inserted as text only, never as markup. */
const facts = JSON.parse(document.getElementById("facts").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) node.append(child instanceof Node ? child : String(child));
  return node;
}
const element = (tag, attributes, ...children) =>
  filled(document.createElement(tag), attributes, children);
const shape = (tag, attributes, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

const whole = (value) => Math.round(value).toLocaleString("en");
const short = (value) =>
  value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toString();
const score = (value) => (value === null ? "–" : value.toFixed(3));
const percent = (share) => {
  const size = Math.abs(share);
  return size < 5e-4 ? "0%" : `${(100 * share).toFixed(size < 0.1 ? 1 : 0)}%`;
};
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

/* Colours distinguishable on light and dark pages; after ten, hues a golden angle apart. */
const HUES = ["#3f86c6", "#e5812f", "#3da564", "#d4525a", "#8f6cc4", "#23a39b", "#c79f1c",
  "#a3725a", "#d86ca4", "#7f8d3b"];
function colourOf(code, ordered, count) {
  if (ordered) {
    const share = count > 1 ? code / (count - 1) : 0;
    return `hsl(${265 - 215 * share} 60% ${44 + 10 * share}%)`;
  }
  if (code < HUES.length) return HUES[code];
  return `hsl(${(code * 137.508) % 360} 52% 52%)`;
}
const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* A chart that is redrawn if the width or the colour scheme changes. */
function chart(host, height, draw) {
  const fresh = () => {
    const width = Math.max(240, Math.floor(host.clientWidth));
    const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    draw(svg, width, height);
    host.replaceChildren(svg);
  };
  let known = 0;
  new ResizeObserver(() => {
    if (host.clientWidth && host.clientWidth !== known) {
      known = host.clientWidth;
      fresh();
    }
  }).observe(host);
  return fresh;
}

function niceTicks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) ticks.push(at);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return ticks.map((at) => [at, at.toFixed(digits)]);
}
function logTicks(low, high, most) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const one of [1, 2, 5]) {
      const at = one * 10 ** power;
      if (at >= low * 0.999 && at <= high * 1.001) ticks.push([at, whole(at)]);
    }
  }
  while (ticks.length > most) {
    for (let place = ticks.length - 2; place > 0; place -= 2) ticks.splice(place, 1);
    if (ticks.length <= 3) break;
  }
  return ticks;
}
const linear = (low, high, from, to) => (value) =>
  from + ((value - low) / (high - low || 1)) * (to - from);
const logarithmic = (low, high, from, to) => {
  const inside = linear(Math.log(low), Math.log(high), from, to);
  return (value) => inside(Math.log(value));
};
function axes(svg, box, x, y, xTicks, yTicks, xTitle, yTitle) {
  for (const [at, words] of yTicks) {
    const height = y(at);
    svg.append(
      shape("line", { x1: box.left, x2: box.right, y1: height, y2: height, stroke: "var(--line)" }),
      shape("text", { x: box.left - 7, y: height + 4, "text-anchor": "end" }, words),
    );
  }
  for (const [at, words] of xTicks) {
    svg.append(shape("text", { x: x(at), y: box.bottom + 18, "text-anchor": "middle" }, words));
  }
  svg.append(
    shape("text", { x: box.right, y: box.bottom + 35, "text-anchor": "end" }, xTitle),
    shape("text", { x: box.left - 7, y: box.top - 14, "text-anchor": "start", dx: "-18" }, yTitle),
  );
}
/* A headline of the kind "50 rows … are worth 480 random ones (410–560)", its numbers in colour. */
function titled(title, text) {
  const parts = /^(Your )?(\d+ rows?)( .*?are worth )((?:more than )?\d+(?: or more| or fewer)?)( random ones)(.*)$/.exec(text);
  title.replaceChildren();
  if (!parts) {
    title.append(text);
    return;
  }
  const [, your, rows, words, count, ones, ends] = parts;
  title.append(your || "", element("span", { class: "big" }, rows), words, element("span", { class: "random-rows" }, count), ones);
  title.append(element("span", { class: "ends" }, ends));
}
const way = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const band = (upper, lower) => `${way(upper)}L${way([...lower].reverse()).slice(1)}Z`;

function tableOf(caption, heads, rows, numbers) {
  const kind = (place) => (numbers.includes(place) ? "number" : null);
  const head = element("tr", {}, ...heads.map((one, i) => element("th", { scope: "col", class: kind(i) }, one)));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell, i) =>
    i === 0 ? element("th", { scope: "row", class: kind(i) }, cell) : element("td", { class: kind(i) }, cell))));
  const table = element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
}
/* A table of a picture's numbers is built when it is opened. */
function whenOpened(details, make) {
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(make());
  });
}
function definitions(host, pairs) {
  for (const [name, value] of pairs) host.append(element("dt", {}, name), element("dd", {}, value));
}
async function copied(text, from, words) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(from);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    document.execCommand("copy");
  }
  byId("copied").textContent = words;
}
function afterwords() {
  definitions(byId("parameters"), facts.parameters);
  if (facts.notes.length) {
    byId("notes").append(element("details", {}, element("summary", {}, plural(facts.notes.length, "note")),
      element("ul", {}, ...facts.notes.map((note) => element("li", {}, note)))));
  }
  if (facts.command) {
    byId("command").textContent = facts.command;
    byId("command-panel").hidden = false;
    byId("copy-command").addEventListener("click", () =>
      copied(facts.command, byId("command"), "The command is copied."));
  }
  byId("footer").textContent =
    `bicore ${facts.version}. This file is self-contained and works offline.`;
}
function playing(button, slider, move) {
  let timer = 0;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    button.textContent = "▶";
  };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) >= Number(slider.max)) move(Number(slider.min));
    button.textContent = "❚❚";
    const steps = Number(slider.max) - Number(slider.min);
    const stride = Math.max(1, Math.round(steps / 120));
    timer = setInterval(() => {
      move(Math.min(Number(slider.max), Number(slider.value) + stride));
      if (Number(slider.value) >= Number(slider.max)) stop();
    }, Math.max(60, Math.min(600, 5000 / Math.max(steps, 1))));
  });
  slider.addEventListener("input", stop);
}
byId("sizer").addEventListener("submit", (event) => event.preventDefault());
