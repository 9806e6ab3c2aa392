/* Search: all words of the query have to be in the text, in any order. */
const MOST = 30; // results that are shown

const input = made("input", { type: "search", placeholder: "machine, condition, study, session",
  "aria-label": "Search", "aria-controls": "found", autocomplete: "off" });
const count = made("output", { "aria-live": "polite" });
const list = made("ul", { id: "found", class: "found" });
added(made("div", { class: "tools", role: "search" }, input, count));
added(list);
const texts = data.map(([kind, text]) => `${kind} ${text}`.toLowerCase());

function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length
    ? data.filter((_, place) => words.every((word) => texts[place].includes(word))) : [];
  list.replaceChildren(...found.slice(0, MOST).map(([kind, text, href]) =>
    made("li", {}, made("a", { href }, text), made("small", {}, kind))));
  const shown = found.length > MOST ? `, the first ${MOST} are shown` : "";
  count.textContent = words.length ? `${found.length} found${shown}` : "";
}

input.addEventListener("input", search);
search();
