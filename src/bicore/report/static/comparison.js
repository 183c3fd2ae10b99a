
/* The page of a comparison. The evaluation model, the method and the size update everything. */
const { sizes, methods, judges } = facts;
/* Picks of the first seed; streams do not have them. */
const told = facts.picks || null;
Object.assign(state, { place: facts.start, judge: 0, method: -1 });
const colours = new Map(methods.map((name, code) => [name, name === facts.random ? "var(--random)" : colourOf(code, false, methods.length)]));
const own = () => judges[state.judge];
const at = (method, size) => own().entries.find((one) => one.method === method && one.size === size);
const better = (a, b) => (own().larger ? b.mean - a.mean : a.mean - b.mean);
const margin = (entry) => entry.error || 0;
let moveCurve = () => {};

function drawCurve() {
  return chart(byId("curve"), 360, (svg, width, height) => {
    const entries = own().entries;
    const references = own().references.filter((one) => one.name === "all data");
    const values = [...entries.flatMap((one) => [one.mean - margin(one), one.mean + margin(one)]), ...references.map((one) => one.mean)];
    const floor = own().measure === "R²" ? -0.5 : -Infinity;
    const low = Math.max(floor, Math.min(...values));
    const high = Math.max(...values, low + 1e-6);
    const box = { left: 46, right: width - 12, top: 30, bottom: height - 44 };
    const [first, last] = [sizes[0], sizes[sizes.length - 1]];
    const x = first === last ? () => (box.left + box.right) / 2 : logarithmic(first, last, box.left + 10, box.right - 10);
    const y = linear(low, high, box.bottom, box.top);
    const kept = (value) => Math.max(low, value);
    const ticks = sizes.length <= 8 ? sizes.map((one) => [one, whole(one)]) : logTicks(first, last, width / 52);
    axes(svg, box, x, y, ticks, niceTicks(low, high, 5), `${facts.along} (logarithmic)`, own().measure);
    for (const one of references) {
      const level = y(one.mean);
      svg.append(shape("line", { x1: box.left, x2: box.right, y1: level, y2: level, stroke: "var(--soft)", "stroke-dasharray": "2 5" }),
        shape("text", { x: box.right, y: level + 16, "text-anchor": "end" }, one.name));
    }
    const here = shape("circle", { r: 6.5, stroke: "var(--paper)", "stroke-width": 2 });
    const marker = shape("line", { y1: box.top, y2: box.bottom, stroke: "var(--ink)", "stroke-width": 1.2, opacity: 0.5 });
    svg.append(marker);
    const best = own().entries.filter((one) => one.best).map((one) => one.method);
    for (const name of [...methods].reverse()) {
      const series = entries.filter((one) => one.method === name);
      if (!series.length) continue;
      const edge = (sign) => series.map((one) => [x(one.size), y(kept(one.mean + sign * margin(one)))]);
      const wide = best.includes(name) || name === facts.random || name === methods[state.method];
      svg.append(
        shape("path", { d: band(edge(1), edge(-1)), fill: colours.get(name), opacity: wide ? 0.16 : 0.07 }),
        shape("path", { d: way(series.map((one) => [x(one.size), y(kept(one.mean))])), fill: "none", stroke: colours.get(name), "stroke-width": wide ? 2.6 : 1.4, opacity: wide ? 1 : 0.75 }),
        ...series.map((one) => shape("circle", { cx: x(one.size), cy: y(kept(one.mean)), r: wide ? 3.4 : 2.2, fill: colours.get(name) })));
    }
    svg.append(here);
    moveCurve = () => {
      const size = sizes[state.place];
      filled(marker, { x1: x(size), x2: x(size) }, []);
      const one = at(methods[state.method], size);
      here.setAttribute("visibility", one ? "visible" : "hidden");
      if (one) filled(here, { cx: x(size), cy: y(kept(one.mean)), fill: colours.get(one.method) }, []);
    };
    moveCurve();
  });
}
function rank() {
  const size = sizes[state.place];
  const entries = own().entries.filter((one) => one.size === size).sort(better);
  const means = entries.map((one) => one.mean);
  const all = own().references.map((one) => one.mean);
  const low = own().larger ? Math.max(0, Math.min(...means, ...all) - 0.05) : 0;
  const high = Math.max(...means, ...all, low + 1e-9);
  const width = (value) => 100 * Math.max(0.004, Math.min(1, (value - low) / (high - low)));
  byId("rank-rows").replaceChildren(...entries.map((one) => {
    const bar = element("i", {});
    bar.style.width = `${width(one.mean)}%`;
    bar.style.background = colours.get(one.method);
    const line = element("u", {});
    line.style.left = `${width(one.mean - margin(one))}%`;
    line.style.width = `${width(one.mean + margin(one)) - width(one.mean - margin(one))}%`;
    const mark = one.best ? " ★" : one.tied ? " ≈" : one.complete ? "" : ` (${one.seeds})`;
    const spoken = one.best ? "best" : one.tied ? "may be as good as the best" : "";
    return element("div", { class: one.best ? "row best" : "row", role: "listitem" },
      element("span", { class: "name", title: one.method }, one.method),
      element("span", { class: "bar", "aria-hidden": "true" }, bar, line),
      element("span", { class: "value" }, `${score(one.mean)}${one.error === null ? "" : ` ± ${score(one.error)}`}`,
        element("span", { "aria-hidden": "true" }, mark), element("span", { class: "skip" }, ` ${spoken}`)));
  }));
  const difference = own().detectable[state.place];
  byId("rank-words").textContent =
    `Mean ${own().measure} over seeds ± one standard error, of the ${own().judge} model. ★ best mean; ≈ no significant difference from the best (paired, 95%).` +
    `${difference === null ? "" : ` These seeds can detect a difference of ${score(difference)} or more.`}`;
}
function every() {
  const last = sizes[sizes.length - 1];
  const names = methods.filter((name) => own().entries.some((one) => one.method === name));
  names.sort((a, b) => (at(a, last) && at(b, last) ? better(at(a, last), at(b, last)) : 0));
  const cell = (name, size) => {
    const one = at(name, size);
    if (!one) return "–";
    return `${score(one.mean)}${one.error === null ? "" : ` ± ${score(one.error)}`}${one.best ? " ★" : one.tied ? " ≈" : ""}`;
  };
  const worths = own().entries.some((one) => one.worth !== null);
  const worth = (name) => sizes.map((size) => at(name, size)).map((one) => (one && one.worth) || "–").join(" / ");
  const rows = names.map((name) => [name, ...sizes.map((size) => cell(name, size)), ...(worths ? [name === facts.random ? "" : worth(name)] : []),
    short((at(name, last) || { seconds: null }).seconds)]);
  for (const one of own().references) rows.push([one.name, ...sizes.map(() => score(one.mean)), ...(worths ? [""] : []), ""]);
  byId("every-table").replaceChildren(tableOf(`${own().measure} of the ${own().judge} model`,
    ["method", ...sizes.map((size) => whole(size)), ...(worths ? ["worth"] : []), "seconds"], rows, sizes.map((_, i) => i + 1)));
  byId("every-words").textContent = worths
    ? "Worth: the number of random rows with the same mean score at each size, interpolated between the compared sizes."
    : "";
}
function headline() {
  titled(byId("headline"), own().headlines[state.place]);
  byId("lede").textContent = own().headlines[state.place] === "Random is enough here"
    ? `At ${whole(sizes[state.place])} rows no method is significantly better than random rows.`
    : `A model is trained on each selection alone and tested on held-out rows.`;
}
/* --- the picks of one method ------------------------------------------------------------------- */
const selection = (method, place) => told.selections[method][place];
function chosenBy(found) {
  const column = (values) => values && found.at.map((at) => values[at]);
  return {
    rows: column(told.rows), codes: column(told.codes), labels: column(told.labels), places: column(told.places),
    cards: column(told.cards).slice(0, told.depth), weights: found.weights, bars: null,
  };
}
function moveGains(name, size) {
  const scores = own().classes[state.method][state.place];
  byId("classes").hidden = !own().classes.some((places) => places.some((one) => one.length));
  byId("classes-table").replaceChildren();
  if (scores.length) {
    whoGains(scores, countsOf(picks.codes), `${whole(size)} rows by ${name}`);
    byId("classes-words").append(` Accuracies are means over the seeds; rows are counted for seed ${told.seed}.`);
    return;
  }
  byId("classes-words").textContent = name === facts.random
    ? "These are the random rows; choose another method to compare it with them."
    : `The records hold no accuracy by class of ${name} at ${whole(size)} rows.`;
}
function movePicks() {
  if (!told) return;
  const [name, size] = [methods[state.method], sizes[state.place]];
  const found = selection(state.method, state.place);
  setPicks(found ? chosenBy(found) : NO_PICKS);
  state.size = picks.rows.length;
  const fewer = found && state.size < size ? ` It selected only ${whole(state.size)}.` : "";
  byId("picks-title").textContent = `The ${whole(size)} rows selected by ${name}`;
  byId("picks-words").textContent = found
    ? `In the order of selection, for seed ${told.seed}. Press a row to find it on the map.${fewer}${beyond()}`
    : `The records hold no selection of ${whole(size)} rows by ${name}.`;
  byId("indices").textContent = indices(picks.rows);
  byId("indices-words").textContent =
    `The ${plural(state.size, "row")} selected by ${name} from the pool of seed ${told.seed} (${whole(told.pool)} of ${plural(told.of, "row")}), counted from 0.${picks.weights ? " Their weights are in the records." : ""}`;
  moveBalance();
  drawMarks();
  moveGains(name, size);
}
function startPicks(redrawn) {
  if (!told) return;
  const known = methods.map((_, method) => method).filter((method) => told.selections[method].some((one) => one));
  const best = own().entries.find((one) => one.best && one.size === sizes[state.place]);
  const first = best ? methods.indexOf(best.method) : -1;
  state.method = known.includes(first) ? first : known[0];
  const choice = byId("method");
  choice.append(...known.map((method) => element("option", { value: method }, methods[method])));
  choice.value = String(state.method);
  choice.addEventListener("change", () => {
    state.method = Number(choice.value);
    redrawn();
    movePicks();
  });
  for (const id of ["chosen", "method-choice", "indices-panel"]) byId(id).hidden = false;
  const shares = told.selections.flat().filter((one) => one)
    .map((one) => Math.max(...countsOf(one.at.map((at) => told.codes[at]))) / one.at.length);
  balance(Math.max(...shares), "the pool");
  map(`Every row of the pool of seed ${told.seed}`);
  copyingIndices(() => picks.rows);
}
function moveTo(place) {
  state.place = Math.max(0, Math.min(sizes.length - 1, place));
  const size = byId("size");
  size.value = String(state.place);
  byId("size-words").textContent = `${whole(sizes[state.place])} rows`;
  byId("now").textContent = own().headlines[state.place];
  size.setAttribute("aria-valuetext", `${sizes[state.place]} rows. ${own().headlines[state.place]}`);
  headline();
  rank();
  moveCurve();
  movePicks();
}
function start() {
  document.title = `${facts.name}: ${methods.length} methods compared · bicore`;
  byId("kicker").append(element("b", {}, facts.name), ` · ${plural(methods.length, "method")} compared`);
  byId("curve-caption").textContent = `${own().measure} by ${facts.along}, with a band of one standard error; the numbers are in the tables below.`;
  const redrawn = drawCurve();
  if (judges.length > 1) {
    byId("judge").append(...judges.map((one, place) => element("option", { value: place }, one.judge)));
    byId("judge-choice").hidden = false;
    byId("judge").addEventListener("change", () => {
      state.judge = Number(byId("judge").value);
      redrawn();
      every();
      moveTo(state.place);
    });
  }
  methods.forEach((name) => {
    const dot = element("i", { "aria-hidden": "true" });
    dot.style.background = colours.get(name);
    byId("legend").append(element("li", {}, dot, element("span", { title: name }, name)));
  });
  every();
  startPicks(redrawn);
  if (facts.failed.length) {
    definitions(byId("failures"), facts.failed);
    byId("failed").hidden = false;
  }
  afterwords();
  const slider = byId("size");
  slider.max = String(sizes.length - 1);
  slider.addEventListener("input", () => moveTo(Number(slider.value)));
  playing(byId("play"), slider, moveTo);
  moveTo(facts.start);
}
start();
