
/* The page of a selection. The size updates everything. */
const { answer, curve } = facts;
const own = facts.picks;
const total = own.rows.length;
const listeners = [];
const before = (pick) => (pick ? own.objectives[pick - 1] : own.empty);
/* The decrease by a pick, as a share of the objective before it. */
const shareOf = (pick) => {
  const left = before(pick);
  const gain = own.gains[pick];
  return left > 0 && gain !== undefined && gain !== null ? gain / left : null;
};
const shares = own.rows.map((_, pick) => shareOf(pick));
const hasGains = shares.some((one) => one !== null);
const largest = Math.max(...shares.map((one) => one || 0), 1e-12);
const widths = shares.map((one) => Math.sqrt(Math.max(0, one || 0) / largest));

/* --- the answer ------------------------------------------------------------------------------ */
function headline() {
  document.title = `${facts.name}: ${total} of ${whole(facts.rows)} rows · bicore`;
  byId("kicker").append(element("b", {}, facts.name), ` · ${whole(total)} of ${plural(facts.rows, "row")} selected`);
  const title = byId("headline");
  if (!answer) {
    title.textContent = `${whole(total)} of ${plural(facts.rows, "row")}, most useful first`;
    byId("lede").textContent = "This report has no estimate of the equivalent number of random rows.";
    document.querySelector(".hero").classList.add("alone");
    return;
  }
  titled(title, answer.headline);
  const others = answer.baselines.slice(1).map((one) => `, and ${one.words}`).join("");
  const told = answer.headline === answer.sentence ? "" : `${answer.sentence}${others}. `;
  const inAddition = told || !others ? "" : `They are also worth${others.slice(5)}. `;
  byId("lede").textContent = `${told}${inAddition}`;
  byId("lede").append(element("span", { class: "soft" }, `${answer.how.charAt(0).toUpperCase()}${answer.how.slice(1)}.`));
  pair();
}
function pair() {
  const random = answer.baselines[0];
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
  const tail = random.rows === null ? " or more" : "";
  byId("pair").append(
    bar("chosen", `${whole(answer.size)} selected`, answer.size),
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
  const uniform = answer.baselines[0];
  const points = new Map(curve.prefixes.map((one) => [one.size, [one.size, one.random, one.random_spread]]));
  uniform.sizes.forEach((size, i) => points.set(size, [size, uniform.means[i], uniform.spreads[i]]));
  return [...points.values()].sort((a, b) => a[0] - b[0]);
}
function drawCurve() {
  const random = randomCurve();
  const others = answer.baselines.slice(1);
  const drawnSizes = [...random.map(([size]) => size), ...others.flatMap((one) => one.sizes)];
  const low = Math.min(...drawnSizes, judgedSizes[0].size);
  const high = Math.max(...drawnSizes, total * 1.5);
  const values = [...random.flatMap(([, mean, spread]) => [mean - spread, mean + spread]),
    ...others.flatMap((one) => one.means),
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
    for (const other of others) {
      svg.append(shape("path", { d: path(other.sizes.map((size, i) => [size, other.means[i]])), fill: "none", stroke: "var(--random)", "stroke-width": 1.3, "stroke-dasharray": "1 4", "stroke-linecap": "round" }));
    }
    svg.append(
      shape("path", { d: path(judgedSizes.map((one) => [one.size, one.score])), fill: "none", stroke: "var(--accent)", "stroke-width": 2.6 }),
      ...judgedSizes.map((one) => shape("circle", { cx: x(one.size), cy: y(kept(one.score)), r: 3, fill: "var(--accent)" })),
      arrow, there, here);
    const known = judgedSizes[Math.max(0, judgedSizes.length - 2)];
    const middle = random[Math.floor(0.72 * (random.length - 1))];
    const level = y(kept(known.score));
    const below = level < box.top + 24;  /* above it the axis has its title */
    svg.append(
      shape("text", { x: Math.max(x(known.size) - 10, box.left + 60), y: below ? level + 20 : level - 10, "text-anchor": "end", class: "strong" }, "selected"),
      shape("text", { x: Math.min(x(middle[0]), box.right - 60), y: Math.min(y(kept(middle[1])) + 26, box.bottom - 6), class: "strong" }, "random"));
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
    `${curve.metric} by the number of rows: selected rows, most useful first (solid), and random rows (with a band of one standard deviation)` +
    `${others.length ? ", and class-balanced random rows (dotted)" : ""}. The shaded range is the 95% interval of the equivalent number of random rows.`;
  byId("curve-figure").hidden = false;
  whenOpened(byId("curve-details"), () => {
    const chosen = new Map(judgedSizes.map((one) => [one.size, one]));
    const drawn = new Map(random.map((one) => [one[0], one]));
    const sizes = [...new Set([...chosen.keys(), ...drawn.keys()])].sort((a, b) => a - b);
    return tableOf(`${curve.metric}, mean ± standard deviation`, ["rows", "selected", "random"], sizes.map((size) => [
      whole(size),
      chosen.has(size) ? `${score(chosen.get(size).score)} ± ${score(chosen.get(size).spread)}` : "",
      drawn.has(size) ? `${score(drawn.get(size)[1])} ± ${score(drawn.get(size)[2])}` : ""]), [0, 1, 2]);
  });
  return fresh;
}

function picksTable() {
  const heads = ["rank", "row", ...(groups.kind === "none" ? [] : [ordered ? "target" : "label"]), "weight", "objective", "gain"];
  const rows = own.rows.map((row, pick) => [
    `${pick + 1}`, `${row}`, ...(groups.kind === "none" ? [] : [labelOf(pick)]),
    own.weights ? short(own.weights[pick]) : "1", short(own.objectives[pick]), short(own.gains[pick])]);
  return tableOf("All selected rows in order", heads, rows, [0, 1]);
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
    const words = share === null ? "" : ` The row of rank ${state.size} removes ${percent(Math.max(0, share))}: objective ${short(before(pick))} → ${short(own.objectives[pick])}.`;
    const worse = own.gains[0] < 0 ? " The first bar is negative: a model trained on one row has a higher loss than predicting without any row." : "";
    byId("gains-words").textContent = `Share of the remaining loss that each added row removes.${words}${worse}`;
  };
  chart(byId("gains-chart"), 220, (svg, wide, height) => {
    const box = { left: 46, right: wide - 8, top: 26, bottom: height - 40 };
    width = box.right - box.left;
    const lowest = Math.min(0, ...shares.map((one) => one || 0));
    const y = linear(lowest, largest, box.bottom, box.top);
    const x = linear(0, total, box.left, box.right);
    const ticks = niceTicks(lowest, largest, 4).map(([at]) => [at, percent(at)]);
    const numbers = niceTicks(0, total, Math.min(8, wide / 60)).filter(([at]) => at >= 1 && Number.isInteger(at));
    axes(svg, box, x, y, numbers.map(([at, words]) => [at, words]), ticks, "rank", "share of remaining loss");
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

/* --- suspect labels -------------------------------------------------------------------------- */
function suspects() {
  const found = facts.suspects;
  if (!found) return;
  byId("suspects").hidden = false;
  const kind = ordered ? "target" : "label";
  byId("suspects-title").textContent = ordered ? "Targets to check" : "Labels to check";
  const chosen = found.rows.filter((row) => pickOfRow.has(row)).length;
  byId("suspects-words").textContent = found.count
    ? `${whole(found.count)} of ${plural(found.examined, "row")} (${percent(found.count / found.examined)}) have a ${kind} that clearly contradicts the prediction of a model of the other rows; ${chosen ? `${chosen} of them ${chosen === 1 ? "is" : "are"} selected` : "none of them is selected"}. A ${kind} may be wrong, or the row only unusual: check before you change it.`
    : `None of the ${whole(found.examined)} ${kind}s clearly contradicts the prediction of a model of the other rows.`;
  byId("suspects-details").hidden = !found.count;
  whenOpened(byId("suspects-details"), () => element("pre", { tabindex: "0" }, found.rows.join(", ")));
  if (shown.kind === "images" || shown.kind === "text") {
    byId("suspects-cards").append(element("ul", { class: `gallery ${shown.kind}` }, ...found.first.map((one) => {
      const words = `row ${one.row}: labelled ${one.label}, predicted ${one.predicted}`;
      const inside = shown.kind === "images" ? picture(one.shown, words) : element("span", { class: "quote" }, one.shown);
      return element("li", { class: "panel card suspect" }, inside,
        element("span", { class: "line" }, element("b", {}, one.label), element("span", {}, `row ${one.row}`)),
        element("span", { class: "predicted" }, `predicted: ${one.predicted}`));
    })));
  } else if (found.count) {
    byId("suspects-cards").append(tableOf("Contradicting rows, clearest first", ["row", kind, "predicted", ...shown.columns],
      found.first.map((one) => [`${one.row}`, one.label, one.predicted, ...one.shown]), []));
  }
}

/* --- together -------------------------------------------------------------------------------- */
function nowWords() {
  if (!curve) return `The first ${plural(state.size, "row")}.`;
  const value = scoreAt(state.size);
  const judgedHere = judgedSizes.find((one) => one.size === state.size);
  const rows = worthAt(state.size);
  if (value === null) return `The first ${plural(state.size, "row")}: too few to evaluate.`;
  const about = judgedHere ? "" : "about ";
  const { low, high } = judgedHere ? judgedHere.worth : {};
  const ends = judgedHere && low && high ? ` (${whole(low)}–${whole(high)})` : "";
  const beyondPool = judgedHere && judgedHere.worth.rows === null;
  const most = answer.baselines[0].sizes[answer.baselines[0].sizes.length - 1];
  const many = rows ? `${about}${whole(rows)}` : beyondPool ? `${whole(most)} or more` : "";
  const worth = many ? ` · worth ${many} random rows${ends}` : "";
  return `The first ${plural(state.size, "row")}: ${curve.metric} ${about}${score(value)}${worth}`;
}
function moveTo(size) {
  state.size = Math.max(1, Math.min(total, size));
  state.last = state.size - 1;
  byId("size").value = String(state.size);
  const words = nowWords();
  byId("size-words").textContent = `${whole(state.size)} of ${whole(total)}`;
  byId("now").textContent = words;
  byId("size").setAttribute("aria-valuetext", `${state.size} of ${total}. ${words}`);
  for (const listener of listeners) listener();
}
function start() {
  headline();
  setPicks({ ...own, bars: hasGains ? widths : null });
  byId("picks-words").textContent =
    `The most useful first: each row complements the rows before it. Press a row to find it on the map.${beyond()}`;
  const counts = countsOf(own.codes);
  balance(Math.max(...counts) / total, "all rows");
  map("Every row");
  listeners.push(moveGallery, moveBalance, drawMarks);
  if (curve) drawCurve();
  gains();
  if (facts.classes.length) {
    whoGains(facts.classes, counts, `the ${whole(answer.size)} selected rows`);
    byId("classes").hidden = false;
  }
  suspects();
  afterwords();
  whenOpened(byId("picks-details"), picksTable);
  byId("indices").textContent = indices(own.rows);
  copyingIndices(() => own.rows.slice(0, state.size));
  const slider = byId("size");
  slider.max = String(total);
  slider.addEventListener("input", () => moveTo(Number(slider.value)));
  playing(byId("play"), slider, moveTo);
  moveTo(total);
}
start();
