"use strict";
// Which strategy found which evidence where: filters over the data that question_browser.py writes into the page.
// All text goes into the page as text, never as markup.

const PAGE_SIZE = 25;

// Numbers of the questions that fit. chosen: {category, strategy, found, words}; category -1 is any, found is one of
// "any", "all", "some", "none": how much of the evidence the strategy has among its first ten turns.
function matching(data, chosen) {
  const words = chosen.words.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (question) => {
    const ranks = question.ranks[chosen.strategy];
    const found = ranks.filter((rank) => rank > 0 && rank <= 10).length;
    const share = found === 0 ? "none" : found === ranks.length ? "all" : "some";
    const text = question.text.toLowerCase();
    return (chosen.category < 0 || question.category === chosen.category)
      && (chosen.found === "any" || chosen.found === share)
      && words.every((word) => text.includes(word));
  };
  return data.questions.map((_, number) => number).filter((number) => fits(data.questions[number]));
}

function element(tag, text, parent) {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function row(parent, tag, cells) {
  const made = element("tr", null, parent);
  cells.forEach((cell, at) => { element(tag, String(cell), made).className = at ? "number" : ""; });
}

// One question, closed: its evidence, and a table of strategies by ranks of the evidence.
function entry(data, question, strategy) {
  const found = question.ranks[strategy].map((rank) => rank || "not found").join(", ");
  const made = element("details", null, null);
  element("summary", `${question.text} [${found}]`, made);
  element("p", `${question.space}, ${data.categories[question.category]}`, made);
  const evidence = element("ul", null, made);
  const names = question.evidence.map((number) => data.turns[number][0]);
  question.evidence.forEach((number) => element("li", data.turns[number].join(": "), evidence));
  const scroll = element("div", null, made);
  scroll.className = "scroll";
  const table = element("table", null, scroll);
  row(element("thead", null, table), "th", ["strategy", ...names.map((name) => `rank of ${name}`)]);
  const body = element("tbody", null, table);
  data.strategies.forEach((name, at) => {
    row(body, "td", [name, ...question.ranks[at].map((rank) => rank || "not found")]);
  });
  return made;
}

function browse(root) {
  const data = JSON.parse(document.getElementById("questions").textContent);
  const controls = element("p", null, root);
  const choice = (label, options) => {
    const select = element("select", null, element("label", `${label} `, controls));
    options.forEach(([value, text]) => { element("option", text, select).value = value; });
    controls.append(" ");
    return select;
  };
  const category = choice("Category", [[-1, "all"], ...data.categories.map((name, at) => [at, name])]);
  const strategy = choice("Strategy", data.strategies.map((name, at) => [at, name]));
  const found = choice("Evidence in its first ten turns", [
    ["any", "found or missed"], ["all", "all found"], ["some", "some found, some missed"], ["none", "all missed"],
  ]);
  const words = element("input", null, element("label", "Words ", controls));
  words.type = "search";
  const count = element("p", null, root);
  count.setAttribute("role", "status");
  const list = element("div", null, root);
  const pages = element("p", null, root);
  const before = element("button", "Previous", pages);
  pages.append(" ");
  const after = element("button", "Next", pages);
  let first = 0;

  const show = () => {
    const fitting = matching(data, {
      category: Number(category.value), strategy: Number(strategy.value), found: found.value, words: words.value,
    });
    const last = Math.min(first + PAGE_SIZE, fitting.length);
    const shown = fitting.length ? `; ${first + 1} to ${last} are shown with the ranks of their evidence` : "";
    count.textContent = `${fitting.length} of ${data.questions.length} questions${shown}.`;
    list.replaceChildren(
      ...fitting.slice(first, last).map((at) => entry(data, data.questions[at], Number(strategy.value))),
    );
    before.disabled = first === 0;
    after.disabled = last === fitting.length;
  };
  const turn = (step) => () => { first += step; show(); };
  before.addEventListener("click", turn(-PAGE_SIZE));
  after.addEventListener("click", turn(PAGE_SIZE));
  [category, strategy, found, words].forEach((control) => {
    control.addEventListener("input", () => { first = 0; show(); });
  });
  show();
}

if (typeof document !== "undefined") browse(document.getElementById("browser"));
