// What the page does: unpack, draw, listen; and, where `sharpen watch` serves it, ask for news.
const state = { plots: [], chosen: {}, all: {} };

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function drawGroup(group) {
  const box = document.querySelector(`[data-charts="${group}"]`), plots = state.plots.filter((plot) => plot.group === group);
  if (!box || !plots.length) return;
  const select = document.querySelector(`[data-choose="${group}"]`);
  if (!plots.some((plot) => plot.key === state.chosen[group])) state.chosen[group] = plots[0].key;
  if (plots.map((plot) => plot.key).join() !== [...select.options].map((one) => one.value).join())
    select.replaceChildren(...plots.map((plot) => new Option(plot.title, plot.key)));
  select.value = state.chosen[group];
  const all = Boolean(state.all[group]);
  box.classList.toggle("all", all);
  const shown = all ? plots : plots.filter((plot) => plot.key === state.chosen[group]);
  const boxes = shown.map(() => element("div", { class: "chart" }));
  box.replaceChildren(...boxes);
  shown.forEach((plot, i) => drawChart(boxes[i], plot, all ? 230 : innerWidth < 600 ? 260 : 360));
}

function drawAll() {
  for (const group of ["pass", "training", "behaviours"]) drawGroup(group);
}

async function load(from) {
  const [data, rows] = await Promise.all(["data", "rows"].map((id) => unpack(from.getElementById(id).textContent)));
  state.plots = data.plots;
  drawAll();
  openBook(rows);
  document.body.dataset.ready = String(1 + Number(document.body.dataset.ready || 0));
}

document.addEventListener("change", (event) => {
  const { choose, all } = event.target.dataset;
  if (choose) state.chosen[choose] = event.target.value;
  if (all) state.all[all] = event.target.checked;
  if (choose || all) drawGroup(choose || all);
});
for (const name of ["input", "change"])
  document.addEventListener(name, (event) => {
    if (event.target.form?.id === "filters") filterBook();
  });
document.addEventListener("reset", () => setTimeout(() => {
  const form = document.getElementById("filters");
  form.colour.value = book.rows.some((row) => row.v !== null) ? "advantage" : "logprob";
  filterBook();
}));
document.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.id === "theme") {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  } else if (button?.dataset.page) {
    book.page += Number(button.dataset.page);
    showPage();
  } else if (button?.dataset.step) {
    const group = button.dataset.for, keys = state.plots.filter((plot) => plot.group === group).map((plot) => plot.key);
    state.chosen[group] = keys.at((keys.indexOf(state.chosen[group]) + Number(button.dataset.step)) % keys.length);
    drawGroup(group);
  }
});
for (const name of ["pointerover", "click"])
  document.addEventListener(name, (event) => {
    const token = event.target.closest?.(".tok");
    for (const one of document.querySelectorAll(".tok.on")) one.classList.remove("on");
    if (!token) return event.target.closest?.("svg.axes") ? undefined : hideTip(null);
    token.classList.add("on");
    showTip(token.dataset.tip, event.clientX, event.clientY);
  });
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) drawAll();
  width = innerWidth;
});

// Live: a new version of the page is fetched and what has changed in it is put in place, so that controls keep what was chosen.
function take(fresh) {
  let last = null;
  for (const section of fresh.querySelectorAll("main > section")) {
    const old = document.getElementById(section.id);
    const replaced = !old || section.hasAttribute("data-part") || Boolean(old.querySelector(".plots")) !== Boolean(section.querySelector(".plots"));
    if (!old) last ? last.after(document.importNode(section, true)) : document.querySelector("main").prepend(document.importNode(section, true));
    else if (replaced && old.innerHTML !== section.innerHTML) old.replaceWith(document.importNode(section, true));
    last = document.getElementById(section.id);
  }
  for (const old of document.querySelectorAll("main > section")) if (!fresh.getElementById(old.id)) old.remove();
  for (const id of ["contents", "coverage"]) document.getElementById(id).replaceWith(document.importNode(fresh.getElementById(id), true));
}

async function watch(version) {
  const told = document.getElementById("live");
  for (;;) {
    await new Promise((done) => setTimeout(done, 1000));
    try {
      const now = await (await fetch("version")).text();
      if (now === version) {
        told.textContent = "live";
        continue;
      }
      const answer = await fetch("./");
      if (!answer.ok) throw new Error(await answer.text());
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      take(fresh);
      await load(fresh);
      version = answer.headers.get("x-version");
      told.textContent = "live";
    } catch (error) {
      told.textContent = error instanceof TypeError ? "not live: the server does not answer" : `not live: ${error.message}`;
    }
  }
}

load(document).then(() => {
  if (document.body.dataset.live) watch(document.body.dataset.live);
});
