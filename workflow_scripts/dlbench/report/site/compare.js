/* Compare: tables of ratios of the chosen machines to the first one. The choice is in the address,
   so that it can be linked to. */
const chosen = new Set();
let base = 0;

function number(value) {
  return value >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(4)));
}

function range(value, low, high) {
  return low === null ? value : `${value} (${low} to ${high})`;
}

/* The ratio of two levels with its interval: half-widths on logarithms add up as squares. */
function ratio([, value, low, high], [, other, otherLow, otherHigh]) {
  const found = value / other;
  if (low === null || otherLow === null) return [found, null, null];
  const half = Math.hypot(Math.log(high / low), Math.log(otherHigh / otherLow)) / 2;
  return [found, found * Math.exp(-half), found * Math.exp(half)];
}

function kind(low, high, better) {
  if (low === null || (low <= 1 && high >= 1) || !["higher", "lower"].includes(better)) return "same";
  return (low > 1) === (better === "higher") ? "good" : "bad";
}

function cell(heading, ...content) {
  return made("td", { "data-of": heading }, made("span", {}, ...content));
}

function badge(colour, text) {
  return made("span", { class: `badge ${colour}` }, text);
}

function draw() {
  boxes.forEach((box, place) => { box.disabled = place === base; });
  const others = [...chosen].filter((place) => place !== base).sort((a, b) => a - b);
  const machines = [base, ...others].map((place) => data.machines[place]);
  const of = [base, ...others].map((place) =>
    new Map(data.levels[place].map((level) => [level[0], level])));
  const common = [...of[0].keys()].filter((key) => of.every((levels) => levels.has(key)));
  const headings = ["condition", ...machines.map(([label]) => label)];
  const rows = common.map((key) => {
    const [label, metric, unit, better, href] = data.conditions[key];
    const [, value, low, high] = of[0].get(key);
    const level = range(`${number(value)} ${unit}`, low && number(low), high && number(high));
    const ratios = of.slice(1).map((levels, place) => {
      const [found, from, to] = ratio(levels.get(key), of[0].get(key));
      const text = range(found.toFixed(3), from && from.toFixed(3), to && to.toFixed(3));
      return cell(headings[place + 2], badge(kind(from, to, better), text));
    });
    return made("tr", {},
      cell("condition", made("a", { href }, label), made("small", {}, metric)),
      cell(headings[1], level), ...ratios);
  });
  const head = made("tr", {}, ...headings.map((text) => made("th", { scope: "col" }, text)));
  const parts = [made("p", { role: "status" }, others.length === 0
    ? "Choose the machines to compare with it."
    : `${common.length} conditions in common`)];
  if (others.length && common.length) {
    parts.push(made("table", {}, made("thead", {}, head), made("tbody", {}, ...rows)));
  }
  tables.replaceChildren(...parts);
}

function remember() {
  const places = [base, ...[...chosen].filter((place) => place !== base)];
  const addresses = places.map((place) => data.machines[place][2]);
  history.replaceState(null, "", `#${addresses.join(",")}`);
  draw();
}

/* The choice that the address of the page has; without one the first two machines. */
function recall() {
  const known = data.machines.map(([, , address]) => address);
  const named = location.hash.slice(1).split(",").map((name) => known.indexOf(name));
  const places = named.filter((place) => place >= 0);
  base = places.length ? places[0] : 0;
  chosen.clear();
  for (const place of places.length ? places.slice(1) : [1]) {
    if (place < known.length) chosen.add(place);
  }
  select.value = base;
  boxes.forEach((box, place) => { box.checked = chosen.has(place); });
}

const select = made("select", { id: "base" }, ...data.machines.map(([label, hardware], place) =>
  made("option", { value: place }, `${label}: ${hardware}`)));
const boxes = data.machines.map((_, place) => made("input", { type: "checkbox", value: place }));
const labels = data.machines.map(([label, hardware], place) =>
  made("label", {}, boxes[place], made("span", {}, `${label}: ${hardware}`)));
const tables = made("div");
select.addEventListener("change", () => { base = Number(select.value); remember(); });
boxes.forEach((box, place) => box.addEventListener("change", () => {
  if (box.checked) chosen.add(place); else chosen.delete(place);
  remember();
}));
if (data.machines.length) {
  added(made("div", { class: "tools" }, made("label", { for: "base" }, "first machine"), select));
  added(made("fieldset", { class: "choices" }, made("legend", {}, "compared with"), ...labels));
  added(tables);
  recall();
  draw();
  window.addEventListener("hashchange", () => { recall(); draw(); });
}
