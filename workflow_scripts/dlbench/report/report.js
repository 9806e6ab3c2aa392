/* Tables of the report: sorted by their headings, filtered by text and by column, drawn in slices.
   What is shown is only ever text: nothing becomes markup, and nothing is loaded. */
"use strict";

const SLICE = 60; // rows that are drawn at a time
const MAX_CHOICES = 25; // distinct texts of a column that is filtered by a list
const PRINTED = 9; // columns on paper
const NONE = "\u2013";
const KINDS = {
  ok: "good", faster: "good", unstable: "warn", stale: "warn", equivalent: "same",
  failed: "bad", oom: "bad", timeout: "bad", slower: "bad",
  undecided: "", skipped: "", excluded: "", pending: "", "too few runs": "",
};
const collator = new Intl.Collator("en", { numeric: true });

function made(tag, attributes = {}, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) element.setAttribute(name, value);
  }
  element.append(...content);
  return element;
}

/* Four digits, or all of them before the point, in groups of three. */
function digits(value) {
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return grouped(String(value));
  if (size >= 1000 && size < 1e15) return grouped(value.toFixed(0));
  return String(Number(value.toPrecision(4)));
}

function grouped(whole) {
  return whole.replace("-", "\u2212").replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/* One column: the text of a cell, what it is sorted by, and whether it passes a filter. */
class Column {
  constructor(plain, place) {
    Object.assign(this, plain);
    this.numeric = this.kind === "number" || this.kind === "interval";
    this.shown = !this.hidden;
    if (this.levels) {
      const order = [...this.levels.keys()].sort((a, b) =>
        collator.compare(this.levels[a], this.levels[b]));
      this.rank = [];
      order.forEach((code, place) => { this.rank[code] = place; });
      this.sorted = order.map((code) => this.levels[code]);
      this.long = this.levels.some((text) => text.length > (place ? 60 : 32));
    }
  }

  text(row) {
    if (this.levels) return this.codes[row] === null ? "" : this.levels[this.codes[row]];
    const value = this.values[row];
    if (value === null) return "";
    if (this.kind === "bool") return value ? "yes" : "no";
    if (this.kind === "interval") return value.map(digits).join(" to ");
    return this.kind === "number" ? digits(value) : value;
  }

  key(row) {
    if (this.levels) return this.codes[row] === null ? null : this.rank[this.codes[row]];
    const value = this.kind === "interval" && this.values[row] ? this.values[row][0]
      : this.values[row];
    return typeof value === "boolean" ? Number(value) : value;
  }

  /* A predicate of rows from the text of a filter, or null if that is empty. */
  filter(input) {
    const text = input.trim().toLowerCase();
    if (!text) return null;
    const number = "(-?[\\d.]+(?:e[+-]?\\d+)?)";
    const span = new RegExp(`^${number}\\s*(?:\\.\\.|to)\\s*${number}$`).exec(text);
    const bound = new RegExp(`^(<=|>=|<|>|=)?\\s*${number}$`).exec(text);
    if (this.numeric && (span || bound)) {
      const low = span ? Number(span[1]) : Number(bound[2]);
      const passes = span ? (v) => v >= low && v <= Number(span[2]) : {
        "<": (v) => v < low, ">": (v) => v > low, "<=": (v) => v <= low, ">=": (v) => v >= low,
      }[bound[1]] || ((v) => v === low || digits(v) === digits(low));
      return (row) => typeof this.key(row) === "number" && passes(this.key(row));
    }
    return (row) => this.text(row).toLowerCase().includes(text);
  }
}

class Table {
  constructor(place) {
    this.place = place;
    const plain = JSON.parse(place.querySelector("script[type='application/json']").textContent);
    this.columns = plain.columns.map((column, place) => new Column(column, place));
    this.all = Array.from({ length: plain.rows }, (_, row) => row);
    this.heading = place.dataset.heading;
    this.columnFilters = new Map(); // column: a predicate of rows
    this.words = [];
    this.sort = null;
    this.frame = place.querySelector(".frame");
    this.tools();
    this.look();
    this.frame.addEventListener("scroll", () => {
      const left = this.frame.scrollHeight - this.frame.scrollTop - this.frame.clientHeight;
      if (left < 400) this.slice();
    }, { passive: true });
  }

  tools() {
    const search = made("input", { type: "search", placeholder: "Filter rows",
      "aria-label": `Filter rows of ${this.heading}` });
    search.addEventListener("input", () => {
      this.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.rows();
    });
    this.by = made("button", { type: "button", "aria-expanded": "false" }, "Filter by column");
    this.by.addEventListener("click", () => {
      const open = this.by.getAttribute("aria-expanded") !== "true";
      this.by.setAttribute("aria-expanded", open);
      if (!open) this.columnFilters.clear();
      this.look();
      if (open) this.frame.querySelector(".filters :is(input, select)")?.focus();
    });
    this.count = made("output", { "aria-live": "polite" });
    this.place.querySelector(".tools").replaceChildren(search, this.by, this.choices(), this.count);
  }

  choices() {
    const box = made("div", { class: "choices" });
    for (const column of this.columns) {
      const tick = made("input", { type: "checkbox" });
      tick.checked = column.shown;
      tick.addEventListener("change", () => {
        column.shown = tick.checked;
        if (!tick.checked) this.columnFilters.delete(column);
        this.look();
      });
      box.append(made("label", {}, tick, ` ${column.name}`));
    }
    const menu = made("details", {}, made("summary", {}, "Columns"), box);
    menu.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        menu.open = false;
        menu.firstChild.focus();
      }
    });
    document.addEventListener("click", (event) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
    return menu;
  }

  /* Draw headings and filters anew: columns came or went. */
  look() {
    this.seen = this.columns.filter((column) => column.shown);
    const headings = made("tr");
    for (const column of this.seen) {
      const button = made("button", { type: "button", title: column.note || null }, column.name);
      if (column.unit) button.append(made("span", { class: "unit" }, column.unit));
      button.addEventListener("click", () => this.order(column));
      column.heading = made("th", { scope: "col", class: column.numeric ? "num" : null }, button);
      headings.append(column.heading);
    }
    const head = made("thead", {}, headings);
    if (this.by.getAttribute("aria-expanded") === "true") head.append(this.filters());
    this.body = made("tbody");
    const table = made("table", { class: "data", "aria-label": this.heading }, head, this.body);
    this.frame.replaceChildren(table);
    this.mark();
    this.rows();
  }

  filters() {
    const row = made("tr", { class: "filters" });
    for (const column of this.seen) {
      const label = `Filter ${column.name}`;
      let input;
      if (column.levels && column.levels.length <= MAX_CHOICES) {
        input = made("select", { "aria-label": label }, made("option", { value: "" }, "all"));
        for (const text of column.sorted) input.append(made("option", { value: text }, text));
      } else {
        const hint = column.numeric ? "> 1, 2..8" : "";
        input = made("input", { type: "search", "aria-label": label, placeholder: hint });
      }
      input.value = column.wanted && this.columnFilters.has(column) ? column.wanted : "";
      input.addEventListener("input", () => {
        column.wanted = input.value;
        const exact = input.tagName === "SELECT" && input.value;
        const passes = exact ? (r) => column.text(r) === input.value : column.filter(input.value);
        if (passes) this.columnFilters.set(column, passes);
        else this.columnFilters.delete(column);
        this.rows();
      });
      row.append(made("td", {}, input));
    }
    return row;
  }

  /* Ascending, descending, as it was. */
  order(column) {
    if (this.sort?.column !== column) this.sort = { column, way: 1 };
    else this.sort = this.sort.way === 1 ? { column, way: -1 } : null;
    this.mark();
    this.rows();
  }

  mark() {
    for (const column of this.seen) {
      const way = this.sort?.column === column ? this.sort.way : 0;
      if (way) column.heading.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      else column.heading.removeAttribute("aria-sort");
    }
  }

  /* Choose and sort the rows; what has no value comes last either way. */
  rows() {
    const filters = [...this.columnFilters.values()];
    if (this.words.length) filters.push((row) => this.words.every((w) => this.line(row).includes(w)));
    let chosen = this.all.filter((row) => filters.every((passes) => passes(row)));
    if (this.sort) {
      const { column, way } = this.sort;
      const keys = this.all.map((row) => column.key(row));
      const last = (key) => key === null || typeof key === "string" && column.numeric;
      chosen = chosen.sort((a, b) => {
        const [one, other] = [keys[a], keys[b]];
        if (last(one) || last(other)) return last(one) - last(other) || a - b;
        return way * (one < other ? -1 : one > other ? 1 : 0) || a - b;
      });
    }
    this.chosen = chosen;
    this.drawn = 0;
    this.body.replaceChildren();
    this.frame.scrollTop = 0;
    this.slice();
    const [total, found] = [this.all.length, chosen.length];
    this.count.textContent = found === total ? `${digits(total)} rows`
      : `${digits(found)} of ${digits(total)} rows`;
  }

  /* All that a row says, for the search. */
  line(row) {
    this.lines ??= [];
    this.lines[row] ??= this.columns.map((c) => c.text(row)).join("\n").toLowerCase();
    return this.lines[row];
  }

  slice() {
    const part = document.createDocumentFragment();
    for (const row of this.chosen.slice(this.drawn, this.drawn + SLICE)) {
      part.append(made("tr", {}, ...this.seen.map((column) => this.cell(column, row))));
    }
    if (!this.chosen.length) {
      part.append(made("tr", {}, made("td", { colspan: this.seen.length }, "No row is like that.")));
    }
    this.body.append(part);
    this.drawn = Math.min(this.drawn + SLICE, this.chosen.length);
    this.place.querySelector(".paper-only").textContent = this.onPaper();
  }

  /* What is not printed: see .data in the style for how many columns are. */
  onPaper() {
    const rows = this.drawn < this.all.length
      ? `the first ${digits(this.drawn)} of ${digits(this.all.length)} rows` : "";
    const columns = this.columns.length > PRINTED
      ? `the first ${Math.min(PRINTED, this.seen.length)} of ${this.columns.length} columns` : "";
    const printed = [rows, columns].filter(Boolean).join(" and ");
    return printed ? `Printed: ${printed}.` : "";
  }

  cell(column, row) {
    const text = column.text(row);
    const looks = column.numeric ? "num" : column.long ? "text" : null;
    if (text === "") return made("td", { class: `${looks || ""} none` }, NONE);
    const kind = ["status", "verdict"].includes(column.name) ? KINDS[text] : undefined;
    if (kind === undefined) return made("td", { class: looks }, text);
    return made("td", {}, made("span", { class: `badge ${kind}` }, text));
  }
}

for (const place of document.querySelectorAll(".table")) new Table(place);
