
/* Picks on both pages: a gallery, the balance of their groups, a map of the data, scores by class.
   A page sets which picks they are; the size says how many of the first ones are seen. */
const shown = facts.shown;
const groups = facts.groups || { kind: "none", names: [], counts: [] };
const ordered = groups.kind === "range";
const NO_PICKS = { rows: [], codes: [], labels: null, weights: null, places: [], cards: [], bars: null };
const state = { size: 0, focus: -1, last: -1 };
let picks = NO_PICKS;
let pickOfRow = new Map();
/* Columns of picks in order; bars are shares of the widest one, if there are any. */
function setPicks(columns) {
  picks = columns;
  pickOfRow = new Map(picks.rows.map((row, pick) => [row, pick]));
  state.focus = -1;
  byId("map-now").textContent = "";
  byId("tip").hidden = true;
  gallery();
}
const groupColour = (code) => colourOf(code, ordered, groups.names.length);
const labelOf = (pick) =>
  groups.kind === "none" ? "" : picks.labels ? picks.labels[pick] : groups.names[picks.codes[pick]];
const pickWords = (pick) => {
  const label = labelOf(pick);
  return `pick ${pick + 1}: row ${picks.rows[pick]}${label === "" ? "" : `, ${groups.kind === "class" ? "label" : "target"} ${label}`}`;
};
const countsOf = (codes) => {
  const counts = new Array(groups.names.length).fill(0);
  for (const code of codes) counts[code] += 1;
  return counts;
};
const indices = (rows) => `[${rows.join(", ")}]`;
function copyingIndices(rows) {
  byId("copy-indices").addEventListener("click", () =>
    copied(indices(rows()), byId("indices"), `${plural(rows().length, "index").replace("indexs", "indices")} copied.`));
}

/* --- the gallery ----------------------------------------------------------------------------- */
let cards = [];
function picture(address, words) {
  const image = element("img", { alt: words, decoding: "async" });
  if (address.startsWith("data:image/png;base64,")) image.src = address;
  return image;
}
function gainBar(pick) {
  const inside = element("i", {});
  inside.style.width = `${100 * picks.bars[pick]}%`;
  return element("div", { class: "gain", "aria-hidden": "true" }, inside);
}
function cardOf(pick, value) {
  const button = element("button", { type: "button", class: "card", tabindex: pick ? "-1" : "0", "aria-pressed": "false" });
  if (shown.kind === "images") button.append(picture(value, pickWords(pick)));
  else button.append(element("span", { class: "quote" }, value));
  button.append(element("span", { class: "line" }, element("b", {}, labelOf(pick)), element("span", {}, `${pick + 1}`)));
  if (picks.bars) button.append(gainBar(pick));
  button.setAttribute("aria-label", pickWords(pick) + (shown.kind === "text" ? `: ${value}` : ""));
  return button;
}
function gallery() {
  const host = byId("gallery");
  cards = [];
  if (shown.kind === "images" || shown.kind === "text") {
    const list = element("ol", { class: `gallery ${shown.kind}` });
    picks.cards.forEach((value, pick) => {
      const button = cardOf(pick, value);
      const item = element("li", {}, button);
      button.addEventListener("click", () => focusOn(state.focus === pick ? -1 : pick));
      cards.push({ node: item, mark: button });
      list.append(item);
    });
    list.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -cards.length, End: cards.length }[event.key];
      const at = cards.findIndex((one) => one.mark === document.activeElement);
      if (!step || at < 0) return;
      event.preventDefault();
      const next = Math.max(0, Math.min(Math.min(cards.length, state.size) - 1, at + step));
      cards[at].mark.tabIndex = -1;
      cards[next].mark.tabIndex = 0;
      cards[next].mark.focus();
    });
    host.replaceChildren(list);
    [visible, marked] = [cards.length, null];
    return;
  }
  const heads = ["rank", "row", ...(groups.kind === "none" ? [] : [ordered ? "target" : "label"]), ...(picks.bars ? ["gain"] : []), ...shown.columns];
  const scroll = tableOf("Selected rows in order", heads, [], []);
  const body = scroll.querySelector("tbody");
  picks.cards.forEach((cells, pick) => {
    const button = element("button", { type: "button", "aria-pressed": "false", "aria-label": `Show ${pickWords(pick)} on the map` }, `${pick + 1}`);
    const row = element("tr", { class: "pickable" }, element("th", { scope: "row" }, button), element("td", {}, `${picks.rows[pick]}`));
    if (groups.kind !== "none") row.append(element("td", {}, labelOf(pick)));
    if (picks.bars) row.append(element("td", {}, gainBar(pick)));
    row.append(...cells.map((cell) => element("td", { title: cell }, cell)));
    row.addEventListener("click", () => focusOn(state.focus === pick ? -1 : pick));
    cards.push({ node: row, mark: button });
    body.append(row);
  });
  host.replaceChildren(scroll);
  [visible, marked] = [cards.length, null];
}
let visible = 0;
let marked = null;
function moveGallery() {
  const now = Math.min(state.size, cards.length);
  for (let pick = Math.min(now, visible); pick < Math.max(now, visible); pick += 1) {
    cards[pick].node.hidden = pick >= now;
  }
  visible = now;
  if (marked) marked.classList.remove("last");
  const last = cards[state.last];
  marked = last ? (last.node.tagName === "TR" ? last.node : last.mark) : null;
  if (marked) marked.classList.add("last");
}
const beyond = () => (cards.length < picks.rows.length ? ` The first ${whole(cards.length)} are shown.` : "");
function focusOn(pick) {
  if (cards[state.focus]) cards[state.focus].mark.setAttribute("aria-pressed", "false");
  state.focus = pick;
  if (cards[pick]) cards[pick].mark.setAttribute("aria-pressed", "true");
  byId("map-now").textContent = pick < 0 ? "" : pickWords(pick);
  drawMarks();
}
/* --- the balance ----------------------------------------------------------------------------- */
const balanceRows = [];
/* Scale for shares up to `most`, which a bar may exceed; lines are shares of `of`. */
function balance(most, of) {
  if (groups.kind === "none") {
    byId("balance").hidden = true;
    return;
  }
  byId("balance-words").textContent = ordered
    ? `Bar: share of the selected rows with a target in each range. Line: the same share in ${of}.`
    : `Bar: share of each class in the selected rows. Line: its share in ${of}.`;
  const brief = groups.names.every((name) => name.length <= 3);
  const every = groups.counts.reduce((sum, one) => sum + one, 0);
  const scale = 1.15 * Math.max(Math.max(...groups.counts) / every, most);
  groups.names.forEach((name, code) => {
    const bar = element("i", {});
    const line = element("u", {});
    const share = groups.counts[code] / every;
    line.style.left = `calc(${100 * Math.min(1, share / scale)}% - 1px)`;
    bar.style.background = groupColour(code);
    const count = element("span", { class: "count" });
    byId("balance-rows").append(element("div", { class: brief ? "row short" : "row", role: "listitem" },
      element("span", { class: "name", title: name }, name), element("span", { class: "bar", "aria-hidden": "true" }, bar, line), count));
    balanceRows.push({ bar, count, share, scale });
  });
}
function moveBalance() {
  if (!balanceRows.length) return;
  const counts = countsOf(picks.codes.slice(0, state.size));
  balanceRows.forEach((row, code) => {
    const share = counts[code] / Math.max(1, state.size);
    row.bar.style.width = `${100 * Math.min(1, share / row.scale)}%`;
    row.count.textContent = `${counts[code]} · ${percent(share)}`;
  });
}

/* --- the map --------------------------------------------------------------------------------- */
const plane = facts.plane || { count: 0, of: 0, share: 0, x: "", y: "", codes: "", rows: null };
const GRID = 65535;
function unpacked(text, kind) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
  return new kind(bytes.buffer);
}
const places = {
  x: unpacked(plane.x, Uint16Array), y: unpacked(plane.y, Uint16Array), codes: unpacked(plane.codes, Uint16Array),
  rows: plane.rows === null ? null : unpacked(plane.rows, Uint32Array),
};
const CELLS = 128;
/* Up to this many points are drawn round, which takes longer. */
const ROUND = 6000;
const OPACITY = 0.42;
const view = { zoom: 1, x: 0.5, y: 0.5 };
const canvas = byId("points");
const marks = byId("marks");
const PAD = 14;
const screenOf = (x, y) => [
  frame.width / 2 + (x / GRID - view.x) * view.zoom * (frame.width - 2 * PAD),
  frame.height / 2 - (y / GRID - view.y) * view.zoom * (frame.height - 2 * PAD)];
/* Points are sorted by group, so that the colour changes once per group. */
const byGroup = Uint32Array.from({ length: plane.count }, (_, place) => place)
  .sort((a, b) => places.codes[a] - places.codes[b]);
/* A grid of cells with their points, to find the point under the pointer. */
const cellStarts = new Uint32Array(CELLS * CELLS + 1);
const cellPoints = new Uint32Array(plane.count);
const cellOf = (x, y) => {
  const column = Math.min(CELLS - 1, Math.floor((x / (GRID + 1)) * CELLS));
  return Math.min(CELLS - 1, Math.floor((y / (GRID + 1)) * CELLS)) * CELLS + column;
};
function sortIntoCells() {
  for (let place = 0; place < plane.count; place += 1) cellStarts[cellOf(places.x[place], places.y[place]) + 1] += 1;
  for (let cell = 0; cell < CELLS * CELLS; cell += 1) cellStarts[cell + 1] += cellStarts[cell];
  const next = cellStarts.slice();
  for (let place = 0; place < plane.count; place += 1) {
    const cell = cellOf(places.x[place], places.y[place]);
    cellPoints[next[cell]] = place;
    next[cell] += 1;
  }
}
/* Sizes and colours are read only when they change, because reading them forces a new layout. */
const frame = { width: 0, height: 0, ratio: 1, ink: "", paper: "" };
function measured() {
  frame.ratio = Math.min(2, devicePixelRatio || 1);
  [frame.width, frame.height] = [canvas.clientWidth, canvas.clientHeight];
  [frame.ink, frame.paper] = [paint("--ink"), paint("--card")];
  for (const one of [canvas, marks]) {
    one.width = Math.round(frame.width * frame.ratio);
    one.height = Math.round(frame.height * frame.ratio);
  }
  drawMap();
}
function penOf(one) {
  const pen = one.getContext("2d");
  pen.setTransform(frame.ratio, 0, 0, frame.ratio, 0, 0);
  pen.clearRect(0, 0, frame.width, frame.height);
  return pen;
}
function drawPoints() {
  if (!frame.width) return;
  const side = Math.max(1.3, Math.min(4, 260 / Math.sqrt(plane.count))) * Math.min(2, Math.sqrt(view.zoom));
  if (plane.count <= ROUND) drawRound(penOf(canvas), 0.62 * side);
  else drawSquare(penOf(canvas), Math.max(1, Math.round(side * frame.ratio)));
}
function drawRound(pen, radius) {
  pen.globalAlpha = 0.5;
  for (const place of byGroup) {
    const [x, y] = screenOf(places.x[place], places.y[place]);
    pen.fillStyle = groupColour(places.codes[place]);
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
  }
  pen.globalAlpha = 1;
}
/* Many points are written as pixels, which takes a tenth of the time of drawing them. */
function drawSquare(pen, side) {
  const picture = pen.createImageData(canvas.width, canvas.height);
  const { data, width, height } = picture;
  const inks = groups.names.map((_, code) => {
    /* Any colour name is read back as #rrggbb. */
    pen.fillStyle = groupColour(code);
    return [1, 3, 5].map((at) => parseInt(pen.fillStyle.slice(at, at + 2), 16));
  });
  const stepX = (view.zoom * (frame.width - 2 * PAD) * frame.ratio) / GRID;
  const stepY = (view.zoom * (frame.height - 2 * PAD) * frame.ratio) / GRID;
  const left = width / 2 - view.x * GRID * stepX - side / 2;
  const top = height / 2 + view.y * GRID * stepY - side / 2;
  for (const place of byGroup) {
    const x = Math.round(left + places.x[place] * stepX);
    const y = Math.round(top - places.y[place] * stepY);
    const ink = inks[places.codes[place]];
    for (let row = Math.max(0, y); row < Math.min(height, y + side); row += 1) {
      for (let column = Math.max(0, x); column < Math.min(width, x + side); column += 1) {
        const at = 4 * (row * width + column);
        const kept = (data[at + 3] / 255) * (1 - OPACITY);
        const now = kept + OPACITY;
        for (let part = 0; part < 3; part += 1) data[at + part] = (ink[part] * OPACITY + data[at + part] * kept) / now;
        data[at + 3] = 255 * now;
      }
    }
  }
  pen.putImageData(picture, 0, 0);
}
function drawMarks() {
  if (!frame.width) return;
  const pen = penOf(marks);
  const { ink, paper } = frame;
  const heaviest = picks.weights ? Math.max(...picks.weights) : 1;
  const plain = picks.rows.length > 300 ? 3.4 : 5.2;
  for (let pick = 0; pick < state.size; pick += 1) {
    const [x, y] = screenOf(picks.places[pick][0], picks.places[pick][1]);
    const weight = picks.weights ? 0.6 + 0.8 * Math.sqrt(picks.weights[pick] / heaviest) : 1;
    const last = pick === state.last || pick === state.focus;
    pen.beginPath();
    pen.arc(x, y, plain * weight + (last ? 2.5 : 0), 0, 2 * Math.PI);
    pen.fillStyle = groupColour(picks.codes[pick]);
    pen.fill();
    pen.lineWidth = last ? 4.2 : 3;
    pen.strokeStyle = paper;
    pen.stroke();
    pen.lineWidth = last ? 2.4 : 1.3;
    pen.strokeStyle = ink;
    pen.stroke();
  }
  if (state.focus >= 0) {
    const [x, y] = screenOf(picks.places[state.focus][0], picks.places[state.focus][1]);
    pen.beginPath();
    pen.arc(x, y, 15, 0, 2 * Math.PI);
    pen.lineWidth = 2;
    pen.strokeStyle = ink;
    pen.stroke();
  }
}
const drawMap = () => { drawPoints(); drawMarks(); };
const REACH = 14;
/* The point nearest to the pointer, among those of the cells within reach. */
function nearest(left, top) {
  const { width, height } = frame;
  const atX = ((left - width / 2) / (view.zoom * (width - 2 * PAD)) + view.x) * GRID;
  const atY = (-(top - height / 2) / (view.zoom * (height - 2 * PAD)) + view.y) * GRID;
  const reach = [(REACH * GRID) / (view.zoom * (width - 2 * PAD)), (REACH * GRID) / (view.zoom * (height - 2 * PAD))];
  const cell = (value) => Math.max(0, Math.min(CELLS - 1, Math.floor((value / (GRID + 1)) * CELLS)));
  let best = -1;
  let least = REACH * REACH;
  for (let row = cell(atY - reach[1]); row <= cell(atY + reach[1]); row += 1) {
    for (let column = cell(atX - reach[0]); column <= cell(atX + reach[0]); column += 1) {
      for (let at = cellStarts[row * CELLS + column]; at < cellStarts[row * CELLS + column + 1]; at += 1) {
        const [x, y] = screenOf(places.x[cellPoints[at]], places.y[cellPoints[at]]);
        const distance = (x - left) ** 2 + (y - top) ** 2;
        if (distance < least) [best, least] = [cellPoints[at], distance];
      }
    }
  }
  return best;
}
function nearestPick(left, top) {
  for (let pick = 0; pick < state.size; pick += 1) {
    const [x, y] = screenOf(picks.places[pick][0], picks.places[pick][1]);
    if ((x - left) ** 2 + (y - top) ** 2 < 64) return pick;
  }
  return -1;
}
function pointed(event) {
  const box = marks.getBoundingClientRect();
  const [left, top] = [event.clientX - box.left, event.clientY - box.top];
  const pick = nearestPick(left, top);
  const place = pick >= 0 ? -1 : nearest(left, top);
  const tip = byId("tip");
  tip.hidden = pick < 0 && place < 0;
  if (tip.hidden) return -1;
  if (pick >= 0) {
    tip.textContent = pickWords(pick);
  } else {
    const row = places.rows ? places.rows[place] : place;
    const known = pickOfRow.get(row);
    const group = groups.kind === "none" ? "" : ` · ${groups.names[places.codes[place]]}`;
    tip.textContent = known === undefined ? `row ${row}${group}` : pickWords(known);
  }
  tip.style.left = `${Math.max(70, Math.min(box.width - 70, left))}px`;
  tip.style.top = `${Math.max(38, top)}px`;
  return pick;
}
function zoomed(factor) {
  view.zoom = Math.max(1, Math.min(64, view.zoom * factor));
  if (state.focus >= 0 && factor > 1) {
    view.x = picks.places[state.focus][0] / GRID;
    view.y = picks.places[state.focus][1] / GRID;
  }
  if (view.zoom === 1) [view.x, view.y] = [0.5, 0.5];
  drawMap();
}
function map(every) {
  sortIntoCells();
  const part = plane.count < plane.of ? ` ${whole(plane.count)} of ${whole(plane.of)} rows are drawn.` : "";
  byId("map-words").textContent =
    `${every}, projected on the first two principal components (${percent(plane.share)} of the variance). Selected rows are ringed.${part} Point at a row to see its details, or press a selected row above.`;
  if (groups.kind !== "none") {
    groups.names.slice(0, 24).forEach((name, code) => {
      const dot = element("i", { "aria-hidden": "true" });
      dot.style.background = groupColour(code);
      byId("map-legend").append(element("li", {}, dot, element("span", { title: name }, name)));
    });
    if (groups.names.length > 24) byId("map-legend").append(element("li", {}, `and ${groups.names.length - 24} more`));
  }
  new ResizeObserver(measured).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", measured);
  let from = null;
  marks.addEventListener("pointermove", (event) => {
    if (!from || view.zoom === 1) { pointed(event); return; }
    view.x -= (event.clientX - from[0]) / (view.zoom * marks.clientWidth);
    view.y += (event.clientY - from[1]) / (view.zoom * marks.clientHeight);
    from = [event.clientX, event.clientY];
    byId("tip").hidden = true;
    requestAnimationFrame(drawMap);
  });
  marks.addEventListener("pointerdown", (event) => {
    from = [event.clientX, event.clientY];
    const pick = pointed(event);
    if (pick >= 0) focusOn(pick);
  });
  for (const end of ["pointerup", "pointerleave", "pointercancel"]) {
    marks.addEventListener(end, () => { from = null; });
  }
  marks.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  byId("zoom-in").addEventListener("click", () => zoomed(1.6));
  byId("zoom-out").addEventListener("click", () => zoomed(1 / 1.6));
  byId("zoom-reset").addEventListener("click", () => zoomed(0));
}

/* --- by class -------------------------------------------------------------------------------- */
/* Scores of classes by the chosen and by random rows, and how many of the picks each class has. */
function whoGains(scores, counts, trained) {
  const rows = [...scores].sort((a, b) => a.gap - b.gap);
  const sure = (one, sign) => one.half !== null && sign * one.gap > one.half;
  const losers = rows.filter((one) => sure(one, -1));
  const winners = rows.filter((one) => sure(one, 1));
  const named = (list) => list.slice(0, 6).map((one) => `${groups.names[one.code]} (${one.gap > 0 ? "+" : "−"}${score(Math.abs(one.gap))})`).join(", ") + (list.length > 6 ? " …" : "");
  const lost = losers.length ? `${plural(losers.length, "class").replace("classs", "classes")} score${losers.length === 1 ? "s" : ""} significantly worse: ${named(losers)}.` : "No class scores significantly worse.";
  const won = winners.length ? ` Significantly better: ${named([...winners].reverse())}.` : "";
  byId("classes-words").textContent =
    `Accuracy on held-out rows of each class, of a model trained on ${trained} and of one trained on as many random rows. ${lost}${won}`;
  const reach = Math.max(...rows.map((one) => Math.abs(one.gap) + Math.min(one.half === null ? 0 : one.half, Math.abs(one.gap))), 1e-9);
  const bar = (one) => {
    const inside = element("i", {});
    const at = (value) => 50 + 50 * Math.max(-1, Math.min(1, value / reach));
    inside.style.left = `${Math.min(50, at(one.gap))}%`;
    inside.style.width = `${Math.abs(at(one.gap) - 50)}%`;
    const node = element("span", { class: one.gap < 0 ? "gap loses" : "gap", "aria-hidden": "true" }, inside);
    if (one.half !== null) {
      const line = element("u", {});
      line.style.left = `${at(one.gap - one.half)}%`;
      line.style.width = `${at(one.gap + one.half) - at(one.gap - one.half)}%`;
      node.append(line);
    }
    return node;
  };
  const verdict = (one) => sure(one, -1) ? element("b", { class: "loses" }, "worse") : sure(one, 1) ? element("b", { class: "gains" }, "better") : element("span", { class: "soft" }, "no significant difference");
  byId("classes-table").replaceChildren(tableOf("Accuracy by class, lowest difference first. The line is the 95% interval of the difference.",
    ["class", "rows", "selected rows", "accuracy, selected", "accuracy, random", "difference", "", ""],
    rows.map((one) => [groups.names[one.code], whole(groups.counts[one.code]), `${counts[one.code]}`, score(one.chosen), score(one.random),
      `${one.gap < 0 ? "−" : "+"}${score(Math.abs(one.gap))}`, bar(one), verdict(one)]), [1, 2, 3, 4, 5]));
}
