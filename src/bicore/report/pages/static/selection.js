
/* The page of a selection. One number, the size, moves everything. */
const { picks, groups, answer, curve, shown } = facts;
const total = picks.rows.length;
const ordered = groups.kind === "range";
const listeners = [];
const state = { size: total, focus: -1 };
const groupColour = (code) => colourOf(code, ordered, groups.names.length);
const labelOf = (pick) =>
  groups.kind === "none" ? "" : picks.labels ? picks.labels[pick] : groups.names[picks.codes[pick]];
const before = (pick) => (pick ? picks.objectives[pick - 1] : picks.empty);
/* What a pick took off, as a share of what was left before it. */
const shareOf = (pick) => {
  const left = before(pick);
  const gain = picks.gains[pick];
  return left > 0 && gain !== undefined && gain !== null ? gain / left : null;
};
const shares = picks.rows.map((_, pick) => shareOf(pick));
const hasGains = shares.some((one) => one !== null);
const largest = Math.max(...shares.map((one) => one || 0), 1e-12);
const pickWords = (pick) => {
  const label = labelOf(pick);
  return `pick ${pick + 1}: row ${picks.rows[pick]}${label === "" ? "" : `, ${groups.kind === "class" ? "label" : "target"} ${label}`}`;
};

/* --- the answer ------------------------------------------------------------------------------ */
function headline() {
  document.title = `${facts.name}: ${total} of ${whole(facts.rows)} rows · bicore`;
  byId("kicker").append(element("b", {}, facts.name), ` · ${whole(total)} of ${plural(facts.rows, "row")} chosen`);
  const title = byId("headline");
  if (!answer) {
    title.textContent = `${whole(total)} of ${plural(facts.rows, "row")}, best first`;
    byId("lede").textContent = "What they are worth in random rows was not judged here.";
    document.querySelector(".hero").classList.add("alone");
    return;
  }
  titled(title, answer.headline);
  const others = answer.rivals.slice(1).map((one) => `, and ${one.words}`).join("");
  const told = answer.headline === answer.sentence ? "" : `${answer.sentence}${others}. `;
  const beside = told || !others ? "" : `${others.slice(2, 3).toUpperCase()}${others.slice(3)}. `;
  byId("lede").textContent = `${told}${beside}`;
  byId("lede").append(element("span", { class: "soft" }, `${answer.how.charAt(0).toUpperCase()}${answer.how.slice(1)}.`));
  pair();
}
function pair() {
  const random = answer.rivals[0];
  const end = random.high || random.rows || random.sizes[random.sizes.length - 1];
  const most = Math.max(end, answer.size);
  const width = (value) => `${(100 * Math.min(value, most)) / most}%`;
  const bar = (kind, words, value, ends) => {
    const filledBar = element("i", {});
    filledBar.style.width = width(value);
    const line = element("dd", {}, filledBar);
    if (ends) {
      const whisker = element("span", { class: "ends" });
      whisker.style.left = width(ends[0]);
      whisker.style.width = `calc(${width(ends[1])} - ${width(ends[0])})`;
      line.append(whisker);
    }
    return element("div", { class: kind }, element("dt", {}, words), line);
  };
  const rows = random.rows === null ? random.sizes[random.sizes.length - 1] : random.rows;
  const tail = random.rows === null ? "+" : "";
  byId("pair").append(
    bar("chosen", `${whole(answer.size)} chosen`, answer.size),
    bar("random", `${whole(rows)}${tail} random`, rows, [random.low || 0, random.high || most]));
  byId("pair").hidden = false;
}

/* --- the curve ------------------------------------------------------------------------------- */
const judgedSizes = curve
  ? [...curve.prefixes, { ...curve.whole, worth: { rows: answer.rows, low: answer.low, high: answer.high } }]
  : [];
function between(size, value, inLog) {
  const after = judgedSizes.findIndex((one) => one.size >= size);
  if (after < 0) return null;
  const right = judgedSizes[after];
  if (right.size === size) return value(right);
  if (after === 0) return null;
  const left = judgedSizes[after - 1];
  const [a, b] = [value(left), value(right)];
  if (!a || !b) return null;
  const share = Math.log(size / left.size) / Math.log(right.size / left.size);
  return inLog ? a * (b / a) ** share : a + share * (b - a);
}
const scoreAt = (size) => between(size, (one) => one.score, false);
const worthAt = (size) => between(size, (one) => one.worth.rows, true);
function randomCurve() {
  const uniform = answer.rivals[0];
  const points = new Map(curve.prefixes.map((one) => [one.size, [one.size, one.random, one.random_spread]]));
  uniform.sizes.forEach((size, i) => points.set(size, [size, uniform.means[i], uniform.spreads[i]]));
  return [...points.values()].sort((a, b) => a[0] - b[0]);
}
function drawCurve() {
  const random = randomCurve();
  const low = Math.min(random[0][0], judgedSizes[0].size);
  const high = Math.max(random[random.length - 1][0], total * 1.5);
  const values = [...random.flatMap(([, mean, spread]) => [mean - spread, mean + spread]),
    ...judgedSizes.flatMap((one) => [one.score - one.spread, one.score + one.spread])];
  const floor = curve.metric === "accuracy" ? 0 : -0.5;
  const bottom = Math.max(floor, Math.min(...values));
  const top = Math.min(1, Math.max(...values) + 0.02);
  let moved = () => {};
  const fresh = chart(byId("curve"), 340, (svg, width, height) => {
    const box = { left: 46, right: width - 12, top: 30, bottom: height - 44 };
    const x = logarithmic(low, high, box.left + 6, box.right - 6);
    const y = linear(bottom, top, box.bottom, box.top);
    const kept = (value) => Math.max(bottom, Math.min(top, value));
    axes(svg, box, x, y, logTicks(low, high, width / 52), niceTicks(bottom, top, 5), "rows (logarithmic)", curve.metric);
    const span = shape("rect", { y: box.top, height: box.bottom - box.top, fill: "var(--random-wash)" });
    const path = (points) => way(points.map(([size, value]) => [x(size), y(kept(value))]));
    const arrow = shape("line", { stroke: "var(--ink)", "stroke-width": 1.4, "stroke-dasharray": "3 4" });
    const there = shape("circle", { r: 5, fill: "none", stroke: "var(--random)", "stroke-width": 2.2 });
    const here = shape("circle", { r: 6.5, fill: "var(--accent)", stroke: "var(--paper)", "stroke-width": 2 });
    const edge = (sign) => random.map(([size, mean, spread]) => [x(size), y(kept(mean + sign * spread))]);
    svg.append(span,
      shape("path", { d: band(edge(1), edge(-1)), fill: "var(--random-wash)" }),
      shape("path", { d: path(random), fill: "none", stroke: "var(--random)", "stroke-width": 2 }));
    for (const other of answer.rivals.slice(1)) {
      svg.append(shape("path", { d: path(other.sizes.map((size, i) => [size, other.means[i]])), fill: "none", stroke: "var(--random)", "stroke-width": 1.3, "stroke-dasharray": "1 4", "stroke-linecap": "round" }));
    }
    svg.append(
      shape("path", { d: path(judgedSizes.map((one) => [one.size, one.score])), fill: "none", stroke: "var(--accent)", "stroke-width": 2.6 }),
      ...judgedSizes.map((one) => shape("circle", { cx: x(one.size), cy: y(kept(one.score)), r: 3, fill: "var(--accent)" })),
      arrow, there, here);
    const known = judgedSizes[Math.max(0, judgedSizes.length - 2)];
    const middle = random[Math.floor(0.72 * (random.length - 1))];
    svg.append(
      shape("text", { x: x(known.size) - 10, y: y(kept(known.score)) - 10, "text-anchor": "end", class: "strong" }, "chosen"),
      shape("text", { x: Math.min(x(middle[0]), box.right - 60), y: y(kept(middle[1])) + 26, class: "strong" }, "random"));
    moved = () => {
      const value = scoreAt(state.size);
      const rows = worthAt(state.size);
      const visible = value !== null;
      for (const one of [here, arrow, there]) one.setAttribute("visibility", visible ? "visible" : "hidden");
      span.setAttribute("visibility", "hidden");
      if (!visible) return;
      const height = y(kept(value));
      const judgedHere = judgedSizes.find((one) => one.size === state.size);
      const end = rows ? x(Math.min(rows, high)) : rows === null && judgedHere ? x(high) : x(state.size);
      filled(here, { cx: x(state.size), cy: height }, []);
      filled(there, { cx: end, cy: height, visibility: rows ? "visible" : "hidden" }, []);
      filled(arrow, { x1: x(state.size), x2: end, y1: height, y2: height }, []);
      if (judgedHere && (judgedHere.worth.low || judgedHere.worth.high)) {
        const from = x(Math.max(low, judgedHere.worth.low || low));
        const to = x(Math.min(high, judgedHere.worth.high || high));
        filled(span, { x: from, width: Math.max(0, to - from), visibility: "visible" }, []);
      }
    };
    moved();
  });
  listeners.push(() => moved());
  byId("curve-caption").textContent =
    `${curve.metric} by the number of rows: the first picks (solid), random rows (with a band of one standard deviation)` +
    `${answer.rivals.length > 1 ? ", random rows drawn evenly from the classes (dotted)" : ""}. The shaded stretch is the 95% interval.`;
  byId("curve-figure").hidden = false;
  whenOpened(byId("curve-details"), () => {
    const chosen = new Map(judgedSizes.map((one) => [one.size, one]));
    const drawn = new Map(random.map((one) => [one[0], one]));
    const sizes = [...new Set([...chosen.keys(), ...drawn.keys()])].sort((a, b) => a - b);
    return tableOf(`${curve.metric}, mean ± standard deviation`, ["rows", "chosen", "random"], sizes.map((size) => [
      whole(size),
      chosen.has(size) ? `${score(chosen.get(size).score)} ± ${score(chosen.get(size).spread)}` : "",
      drawn.has(size) ? `${score(drawn.get(size)[1])} ± ${score(drawn.get(size)[2])}` : ""]), [0, 1, 2]);
  });
  return fresh;
}

/* --- the gallery ----------------------------------------------------------------------------- */
const cards = [];
function picture(address, words) {
  const image = element("img", { alt: words, decoding: "async" });
  if (address.startsWith("data:image/png;base64,")) image.src = address;
  return image;
}
function gainBar(pick) {
  const inside = element("i", {});
  inside.style.width = `${100 * Math.sqrt(Math.max(0, shares[pick] || 0) / largest)}%`;
  return element("div", { class: "gain", "aria-hidden": "true" }, inside);
}
function cardOf(pick, value) {
  const button = element("button", { type: "button", class: "card", tabindex: pick ? "-1" : "0", "aria-pressed": "false" });
  if (shown.kind === "images") button.append(picture(value, pickWords(pick)));
  else button.append(element("span", { class: "quote" }, value));
  button.append(element("span", { class: "line" }, element("b", {}, labelOf(pick)), element("span", {}, `${pick + 1}`)));
  if (hasGains) button.append(gainBar(pick));
  button.setAttribute("aria-label", pickWords(pick) + (shown.kind === "text" ? `: ${value}` : ""));
  return button;
}
function gallery() {
  const host = byId("gallery");
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
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -total, End: total }[event.key];
      const at = cards.findIndex((one) => one.mark === document.activeElement);
      if (!step || at < 0) return;
      event.preventDefault();
      const next = Math.max(0, Math.min(Math.min(cards.length, state.size) - 1, at + step));
      cards[at].mark.tabIndex = -1;
      cards[next].mark.tabIndex = 0;
      cards[next].mark.focus();
    });
    host.append(list);
    return;
  }
  const heads = ["pick", "row", ...(groups.kind === "none" ? [] : [ordered ? "target" : "label"]), ...(hasGains ? ["gain"] : []), ...shown.columns];
  const scroll = tableOf("The picks in order", heads, [], []);
  const body = scroll.querySelector("tbody");
  picks.cards.forEach((cells, pick) => {
    const button = element("button", { type: "button", "aria-pressed": "false", "aria-label": `Show ${pickWords(pick)} on the map` }, `${pick + 1}`);
    const row = element("tr", { class: "pickable" }, element("th", { scope: "row" }, button), element("td", {}, `${picks.rows[pick]}`));
    if (groups.kind !== "none") row.append(element("td", {}, labelOf(pick)));
    if (hasGains) row.append(element("td", {}, gainBar(pick)));
    row.append(...cells.map((cell) => element("td", { title: cell }, cell)));
    row.addEventListener("click", () => focusOn(state.focus === pick ? -1 : pick));
    cards.push({ node: row, mark: button });
    body.append(row);
  });
  host.append(scroll);
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
  const last = cards[state.size - 1];
  marked = last ? (last.node.tagName === "TR" ? last.node : last.mark) : null;
  if (marked) marked.classList.add("last");
  const beyond = cards.length < total ? ` The first ${whole(cards.length)} are shown.` : "";
  byId("picks-words").textContent =
    `Best first: each pick adds what the ones before it lack. Press one to find it on the map.${beyond}`;
}
function focusOn(pick) {
  if (cards[state.focus]) cards[state.focus].mark.setAttribute("aria-pressed", "false");
  state.focus = pick;
  if (cards[pick]) cards[pick].mark.setAttribute("aria-pressed", "true");
  byId("map-now").textContent = pick < 0 ? "" : pickWords(pick);
  drawMarks();
}
function picksTable() {
  const heads = ["pick", "row", ...(groups.kind === "none" ? [] : [ordered ? "target" : "label"]), "weight", "objective after it", "gain"];
  const rows = picks.rows.map((row, pick) => [
    `${pick + 1}`, `${row}`, ...(groups.kind === "none" ? [] : [labelOf(pick)]),
    picks.weights ? short(picks.weights[pick]) : "1", short(picks.objectives[pick]), short(picks.gains[pick])]);
  return tableOf("All picks in order", heads, rows, [0, 1]);
}

/* --- the balance ----------------------------------------------------------------------------- */
const balanceRows = [];
function balance() {
  if (groups.kind === "none") {
    byId("balance").hidden = true;
    return;
  }
  byId("balance-words").textContent = ordered
    ? "The share of picks whose target lies in each range; the line marks the range's share of all rows."
    : "The share of picks of each class; the line marks the class's share of all rows.";
  const brief = groups.names.every((name) => name.length <= 3);
  const every = groups.counts.reduce((sum, one) => sum + one, 0);
  const chosen = new Array(groups.names.length).fill(0);
  for (const code of picks.codes) chosen[code] += 1;
  /* Room for all shares of the whole selection; of its first picks one class may hold more. */
  const scale = 1.15 * Math.max(Math.max(...groups.counts) / every, Math.max(...chosen) / total);
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
  const counts = new Array(groups.names.length).fill(0);
  for (let pick = 0; pick < state.size; pick += 1) counts[picks.codes[pick]] += 1;
  balanceRows.forEach((row, code) => {
    const share = counts[code] / state.size;
    row.bar.style.width = `${100 * Math.min(1, share / row.scale)}%`;
    row.count.textContent = `${counts[code]} · ${percent(share)}`;
  });
}

/* --- the gains ------------------------------------------------------------------------------- */
function gains() {
  if (!hasGains) {
    byId("gains").hidden = true;
    return;
  }
  let clip = null;
  let width = 0;
  const moved = () => {
    if (clip) clip.setAttribute("width", Math.max(0, (width * state.size) / total));
    const pick = state.size - 1;
    const share = shares[pick];
    const words = share === null ? "" : ` Pick ${state.size} took ${percent(Math.max(0, share))} off what was left: objective ${short(before(pick))} → ${short(picks.objectives[pick])}.`;
    byId("gains-words").textContent = `The share of the remaining loss that each pick takes off.${words}`;
  };
  chart(byId("gains-chart"), 220, (svg, wide, height) => {
    const box = { left: 46, right: wide - 8, top: 26, bottom: height - 40 };
    width = box.right - box.left;
    const lowest = Math.min(0, ...shares.map((one) => one || 0));
    const y = linear(lowest, largest, box.bottom, box.top);
    const x = linear(0, total, box.left, box.right);
    const ticks = niceTicks(lowest, largest, 4).map(([at]) => [at, percent(at)]);
    const numbers = niceTicks(0, total, Math.min(8, wide / 60)).filter(([at]) => at >= 1 && Number.isInteger(at));
    axes(svg, box, x, y, numbers.map(([at, words]) => [at, words]), ticks, "pick", "of what was left");
    const thin = total > 120 ? 0 : Math.min(2, 0.2 * width / total);
    const bars = shares.map((one, pick) => {
      const [left, right] = [x(pick) + thin / 2, x(pick + 1) - thin / 2];
      return `M${left.toFixed(2)} ${y(0).toFixed(2)}V${y(one || 0).toFixed(2)}H${right.toFixed(2)}V${y(0).toFixed(2)}Z`;
    }).join("");
    clip = shape("rect", { x: box.left, y: 0, height, width });
    svg.append(shape("clipPath", { id: "seen" }, clip),
      shape("path", { d: bars, fill: "var(--soft)", opacity: 0.25 }),
      shape("path", { d: bars, fill: "var(--accent)", "clip-path": "url(#seen)" }));
    moved();
  });
  listeners.push(moved);
}

/* --- the map --------------------------------------------------------------------------------- */
const plane = facts.plane;
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
/* So few points may take the time that a round one needs. */
const ROUND = 6000;
const OPACITY = 0.42;
const view = { zoom: 1, x: 0.5, y: 0.5 };
const canvas = byId("points");
const marks = byId("marks");
const PAD = 14;
const screenOf = (x, y) => [
  frame.width / 2 + (x / GRID - view.x) * view.zoom * (frame.width - 2 * PAD),
  frame.height / 2 - (y / GRID - view.y) * view.zoom * (frame.height - 2 * PAD)];
/* Points of one group lie together, so that the pen changes its colour once a group. */
const byGroup = Uint32Array.from({ length: plane.count }, (_, place) => place)
  .sort((a, b) => places.codes[a] - places.codes[b]);
/* A grid of cells, each with its points, finds what lies under the pointer. */
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
/* Sizes and colours are read when they change: asking for them would lay the page out anew. */
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
/* Many points are laid into the pixels themselves, which takes a tenth of the time of as many strokes. */
function drawSquare(pen, side) {
  const picture = pen.createImageData(canvas.width, canvas.height);
  const { data, width, height } = picture;
  const inks = groups.names.map((_, code) => {
    pen.fillStyle = groupColour(code);  // whatever it is called, it is read back as #rrggbb
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
  const plain = total > 300 ? 3.4 : 5.2;
  for (let pick = 0; pick < state.size; pick += 1) {
    const [x, y] = screenOf(plane.picks[pick][0], plane.picks[pick][1]);
    const weight = picks.weights ? 0.6 + 0.8 * Math.sqrt(picks.weights[pick] / heaviest) : 1;
    const last = pick === state.size - 1 || pick === state.focus;
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
    const [x, y] = screenOf(plane.picks[state.focus][0], plane.picks[state.focus][1]);
    pen.beginPath();
    pen.arc(x, y, 15, 0, 2 * Math.PI);
    pen.lineWidth = 2;
    pen.strokeStyle = ink;
    pen.stroke();
  }
}
const drawMap = () => { drawPoints(); drawMarks(); };
const pickOfRow = new Map(picks.rows.map((row, pick) => [row, pick]));
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
    const [x, y] = screenOf(plane.picks[pick][0], plane.picks[pick][1]);
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
    view.x = plane.picks[state.focus][0] / GRID;
    view.y = plane.picks[state.focus][1] / GRID;
  }
  if (view.zoom === 1) [view.x, view.y] = [0.5, 0.5];
  drawMap();
}
function map() {
  sortIntoCells();
  const part = plane.count < plane.of ? ` ${whole(plane.count)} of ${whole(plane.of)} are drawn.` : "";
  byId("map-words").textContent =
    `Every row in the plane of its two main directions, which hold ${percent(plane.share)} of the variance; the ringed ones are picked.${part} Point at one to read it, or press a pick above.`;
  if (groups.kind !== "none") {
    groups.names.slice(0, 24).forEach((name, code) => {
      const dot = element("i", { "aria-hidden": "true" });
      dot.style.background = groupColour(code);
      byId("legend").append(element("li", {}, dot, element("span", { title: name }, name)));
    });
    if (groups.names.length > 24) byId("legend").append(element("li", {}, `and ${groups.names.length - 24} more`));
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

/* --- by class, and labels to look at ----------------------------------------------------------- */
function classes() {
  if (!facts.classes.length) return;
  const rows = [...facts.classes].sort((a, b) => a.gap - b.gap);
  const sure = (one, sign) => one.half !== null && sign * one.gap > one.half;
  const losers = rows.filter((one) => sure(one, -1));
  const winners = rows.filter((one) => sure(one, 1));
  const named = (list) => list.slice(0, 6).map((one) => `${groups.names[one.code]} (${one.gap > 0 ? "+" : "−"}${score(Math.abs(one.gap))})`).join(", ") + (list.length > 6 ? " …" : "");
  const lost = losers.length ? `${plural(losers.length, "class").replace("classs", "classes")} lose${losers.length === 1 ? "s" : ""}: ${named(losers)}.` : "No class clearly loses.";
  const won = winners.length ? ` Clearly better: ${named([...winners].reverse())}.` : "";
  byId("classes-words").textContent =
    `Accuracy on rows of each class that nobody chose from, trained on the ${whole(answer.size)} picks and on as many random rows. ${lost}${won}`;
  const reach = Math.max(...rows.map((one) => Math.abs(one.gap) + Math.min(one.half === null ? 0 : one.half, Math.abs(one.gap))), 1e-9);
  const counts = new Array(groups.names.length).fill(0);
  for (const code of picks.codes) counts[code] += 1;
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
  const verdict = (one) => sure(one, -1) ? element("b", { class: "loses" }, "loses") : sure(one, 1) ? element("b", { class: "gains" }, "gains") : element("span", { class: "soft" }, "as good");
  byId("classes-table").append(tableOf("Accuracy by class, least gain first; the line is the 95% interval of the difference",
    ["class", "rows", "picks", "chosen", "random", "difference", "", ""],
    rows.map((one) => [groups.names[one.code], whole(groups.counts[one.code]), `${counts[one.code]}`, score(one.chosen), score(one.random),
      `${one.gap < 0 ? "−" : "+"}${score(Math.abs(one.gap))}`, bar(one), verdict(one)]), [1, 2, 3, 4, 5]));
  byId("classes").hidden = false;
}
function doubts() {
  const found = facts.doubts;
  if (!found) return;
  byId("doubts").hidden = false;
  const kind = ordered ? "target" : "label";
  byId("doubts-title").textContent = ordered ? "Targets to look at" : "Labels to look at";
  const chosen = found.rows.filter((row) => pickOfRow.has(row)).length;
  byId("doubts-words").textContent = found.count
    ? `Of ${plural(found.asked, "row")}, ${whole(found.count)} (${percent(found.count / found.asked)}) carry a ${kind} that a model of the other rows clearly denies; ${chosen ? `${chosen} of them ${chosen === 1 ? "is a pick" : "are picks"}` : "none is a pick"}. Some ${kind}s are wrong, some rows are only unusual: look before you change them.`
    : `A model of the other rows denies none of the ${whole(found.asked)} ${kind}s clearly.`;
  byId("doubts-details").hidden = !found.count;
  whenOpened(byId("doubts-details"), () => element("pre", { tabindex: "0" }, found.rows.join(", ")));
  if (shown.kind === "images" || shown.kind === "text") {
    byId("doubts-cards").append(element("ul", { class: `gallery ${shown.kind}` }, ...found.first.map((one) => {
      const words = `row ${one.row}: labelled ${one.label}, the others say ${one.said}`;
      const inside = shown.kind === "images" ? picture(one.shown, words) : element("span", { class: "quote" }, one.shown);
      return element("li", { class: "panel card doubt" }, inside,
        element("span", { class: "line" }, element("b", {}, one.label), element("span", {}, `row ${one.row}`)),
        element("span", { class: "said" }, `others: ${one.said}`));
    })));
  } else if (found.count) {
    byId("doubts-cards").append(tableOf("Rows in doubt, clearest first", ["row", kind, "others say", ...shown.columns],
      found.first.map((one) => [`${one.row}`, one.label, one.said, ...one.shown]), []));
  }
}

/* --- together -------------------------------------------------------------------------------- */
function nowWords() {
  if (!curve) return `The first ${plural(state.size, "pick")}.`;
  const value = scoreAt(state.size);
  const judgedHere = judgedSizes.find((one) => one.size === state.size);
  const rows = worthAt(state.size);
  if (value === null) return `The first ${plural(state.size, "pick")}: too few to be judged.`;
  const about = judgedHere ? "" : "about ";
  const { low, high } = judgedHere ? judgedHere.worth : {};
  const ends = judgedHere && low && high ? ` (${whole(low)}–${whole(high)})` : "";
  const worth = rows ? ` · worth ${about}${whole(rows)} random rows${ends}` : "";
  return `The first ${plural(state.size, "pick")}: ${curve.metric} ${about}${score(value)}${worth}`;
}
function moveTo(size) {
  state.size = Math.max(1, Math.min(total, size));
  byId("size").value = String(state.size);
  const words = nowWords();
  byId("size-words").textContent = `${whole(state.size)} of ${whole(total)}`;
  byId("now").textContent = words;
  byId("size").setAttribute("aria-valuetext", `${state.size} of ${total}. ${words}`);
  for (const listener of listeners) listener();
}
function start() {
  headline();
  gallery();
  visible = cards.length;
  balance();
  map();
  listeners.push(moveGallery, moveBalance, drawMarks);
  if (curve) drawCurve();
  gains();
  classes();
  doubts();
  afterwords();
  whenOpened(byId("picks-details"), picksTable);
  byId("indices").textContent = `[${picks.rows.join(", ")}]`;
  byId("copy-indices").addEventListener("click", () =>
    copied(`[${picks.rows.slice(0, state.size).join(", ")}]`, byId("indices"), `${plural(state.size, "index").replace("indexs", "indices")} copied.`));
  const slider = byId("size");
  slider.max = String(total);
  slider.addEventListener("input", () => moveTo(Number(slider.value)));
  playing(byId("play"), slider, moveTo);
  moveTo(total);
}
start();
