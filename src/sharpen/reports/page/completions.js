// Completions: filters, pages, and tokens coloured by advantage or by log-probability.
const ON_A_PAGE = 10;
const book = { rows: [], problems: [], found: [], page: 0, most: 1 };

function openBook(held) {
  book.rows = held.rows;
  book.problems = held.problems;
  book.most = Math.max(1e-9, ...book.rows.flatMap((row) => [row.v].flat().map((value) => Math.abs(value ?? 0))));
  const form = document.getElementById("filters"), places = [...new Set(book.rows.map((row) => row.w))];
  form.hidden = !book.rows.length;
  document.querySelector(".pager").hidden = form.hidden;
  const chosen = form.place.value;
  form.place.replaceChildren(...places.map((one) => new Option(one === "training" ? "training" : `held-out, ${one}`, one)));
  form.place.value = places.includes(chosen) ? chosen : places[0] ?? "";
  if (!form.dataset.opened) form.colour.value = book.rows.some((row) => row.v !== null) ? "advantage" : "logprob";
  form.dataset.opened = "yes";
  document.getElementById("problem-ids").replaceChildren(...book.problems.slice(0, 500).map((one) => new Option(one.id, one.id)));
  filterBook(false);
}

function matches(row, wanted) {
  const problem = book.problems[row.p];
  if (row.w !== wanted.place) return false;
  if (wanted.first !== "" && row.s < +wanted.first) return false;
  if (wanted.last !== "" && row.s > +wanted.last) return false;
  if (wanted.problem && !problem.id.toLowerCase().includes(wanted.problem.toLowerCase())) return false;
  if (wanted.least !== "" && (row.r === null || row.r < +wanted.least)) return false;
  if (wanted.most !== "" && (row.r === null || row.r > +wanted.most)) return false;
  if (wanted.right !== "" && row.c !== +wanted.right) return false;
  if (!wanted.text) return true;
  const text = wanted.text.toLowerCase();
  return row.t.toLowerCase().includes(text) || problem.q.toLowerCase().includes(text) || (row.a ?? "").toLowerCase().includes(text);
}

function filterBook(first = true) {
  const wanted = Object.fromEntries(new FormData(document.getElementById("filters")));
  const rewards = (row, none) => (row.r === null ? none : row.r);
  const orders = {
    step: (a, b) => a.s - b.s,
    high: (a, b) => rewards(b, -Infinity) - rewards(a, -Infinity) || a.s - b.s,
    low: (a, b) => rewards(a, Infinity) - rewards(b, Infinity) || a.s - b.s,
    long: (a, b) => b.n - a.n,
  };
  book.found = book.rows.filter((row) => matches(row, wanted)).sort((a, b) => orders[wanted.order](a, b) || 0);
  book.page = first ? 0 : Math.min(book.page, Math.max(0, Math.ceil(book.found.length / ON_A_PAGE) - 1));
  showPage();
}

function showPage() {
  const pages = Math.max(1, Math.ceil(book.found.length / ON_A_PAGE)), start = book.page * ON_A_PAGE;
  const rows = book.found.slice(start, start + ON_A_PAGE);
  document.getElementById("list").replaceChildren(...rows.map(card));
  const where = rows.length ? `${start + 1}–${start + rows.length} of ${book.found.length}` : "none fits";
  document.getElementById("where").textContent = where;
  for (const button of document.querySelectorAll("[data-page]")) button.disabled = +button.dataset.page < 0 ? book.page === 0 : book.page >= pages - 1;
  const by = document.getElementById("filters").colour.value, key = document.getElementById("key");
  key.hidden = by === "none" || !book.rows.length;
  key.textContent = by === "advantage"
    ? `Underlined: what training made more likely (positive advantage). Dotted: less likely. The stronger the colour, the larger; the largest is ${shownNumber(book.most)}.`
    : "The stronger the colour, the less likely the token was when it was sampled; underlined twice: less than 1 %.";
}

function fact(parent, text, className = "") {
  return element("span", className ? { class: className } : {}, parent, text);
}

function card(row) {
  const problem = book.problems[row.p], box = element("article", { class: "card" }), facts = element("div", { class: "facts" }, box);
  fact(facts, row.c ? "✓ right" : "✗ wrong", row.c ? "right" : "wrong");
  fact(facts, row.w === "training" ? `step ${row.s}` : `held-out, ${row.w}`);
  fact(facts, problem.id, "id");
  if (problem.l !== null) fact(facts, `level ${problem.l}`);
  if (problem.s !== null) fact(facts, problem.s);
  fact(facts, row.r === null ? "unscorable" : `reward ${shownNumber(row.r)}`);
  const parts = Object.entries(row.m);
  if (parts.length > 1) for (const [name, value] of parts) fact(facts, `${name} ${shownNumber(value)}`);
  if (typeof row.v === "number") fact(facts, `advantage ${signed(row.v)}`);
  fact(facts, `${row.n} tokens${row.f ? "" : ", cut at the limit"}`);
  fact(facts, row.a === null ? "no answer" : `answer ${row.a}`);
  fact(facts, `truth ${problem.a}`);
  element("p", { class: "question" }, box, problem.q);
  const text = element("pre", {}, box);
  if (row.k === null) text.textContent = row.t;
  else tokens(row, text);
  return box;
}

const signed = (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + shownNumber(Math.abs(value));

function tokens(row, parent) {
  const by = document.getElementById("filters").colour.value;
  let start = 0;
  row.k.forEach((size, i) => {
    const text = row.t.slice(start, start + size);
    start += size;
    if (!size) return;
    const advantage = Array.isArray(row.v) ? row.v[i] : row.v, unlikely = row.l[i] ?? null;
    const span = element("span", { class: "tok" }, parent, text);
    const told = [`token ${i + 1} of ${row.k.length}`];
    if (unlikely !== null) told.push(`log π ${(-unlikely / 100).toFixed(2)} (${shownNumber(+(100 * Math.exp(-unlikely / 100)).toPrecision(3))} %)`);
    if (advantage !== null && advantage !== undefined) told.push(`advantage ${signed(advantage)}`);
    span.dataset.tip = told.join("\n");
    if (by === "advantage" && advantage) {
      span.classList.add(advantage > 0 ? "plus" : "minus");
      span.style.setProperty("--much", Math.abs(advantage) / book.most);
    } else if (by === "logprob" && unlikely !== null) {
      span.classList.add("rare");
      span.style.setProperty("--much", Math.min(1, unlikely / 500));
      if (unlikely > 460) span.classList.add("rarest");
    }
  });
  parent.append(row.t.slice(start));
}
