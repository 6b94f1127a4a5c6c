// A question, its hits, and their neighbourhood with the weights of /v1/explain, at a time that the slider chooses.
// What a memory holds was said by anybody: it is inserted as text only (textContent), never as markup.
"use strict";

const HITS = 10;
const DRAWN = 12; // neighbours whose effect is greatest, up or down; the table lists all
const NAMED = 5; // speakers
const [BARS, TALL] = [640, 70]; // size of the picture of sessions
const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
let times = []; // when the turns of the chosen space were spoken, earliest first
let asked = 0; // number of the latest question: answers to earlier ones are dropped
let chosen = 0; // the same of the latest choice of a space

class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function call(operation, fields) {
  const headers = { "Content-Type": "application/json" };
  if (at("key").value) headers.Authorization = `Bearer ${at("key").value}`;
  const options = fields ? { method: "POST", headers, body: JSON.stringify(fields) } : { headers };
  const answer = await fetch(`/v1/${operation}`, options);
  const found = await answer.json();
  if (!answer.ok) throw new Problem(answer.status, found.detail);
  return found;
}

function make(tag, text = "", attributes = {}) {
  const made = ["line", "circle", "text", "rect", "title"].includes(tag)
    ? document.createElementNS(SVG, tag) : document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function say(text) {
  at("status").textContent = text;
}

async function saying(work) {
  try {
    await work();
  } catch (error) {
    if (error.status === 401) at("key-field").hidden = false;
    say(error.message);
  }
}

async function listSpaces() {
  empty(); // what the last key could see does not stay
  at("space").replaceChildren();
  at("overview").hidden = true;
  const { spaces } = await call("spaces");
  at("space").replaceChildren(...spaces.map((space) => make("option", space, { value: space })));
  say(spaces.length ? "" : "There are no spaces yet.");
  if (spaces.length) await showSpace();
}

// Hits of another space do not stay, nor does an answer under way come.
function empty() {
  chosen += 1;
  asked += 1;
  showHits([], new Map());
  listTimes([]);
}

async function showSpace() {
  empty();
  const number = chosen;
  const space = at("space").value;
  const [found, overview] = await Promise.all([call("times", { space }), call("overview", { space })]);
  if (number !== chosen) return;
  listTimes(found.times);
  showOverview(overview);
}

// What the space is about: a bar for each session, and a button for each topic that asks about it.
function showOverview({ sessions, speakers, topics }) {
  const greatest = Math.max(...sessions.map(({ turns }) => turns), 1);
  const width = BARS / Math.max(sessions.length, 1);
  at("sessions").replaceChildren(...sessions.map(({ session, turns, begins_at }, place) => {
    const height = (TALL * turns) / greatest;
    const bar = make("rect", "", { x: place * width, y: TALL - height, width: Math.max(width * 0.9, 0.5), height });
    const when = begins_at ? `, ${begins_at.slice(0, 10)}` : "";
    bar.append(make("title", `${session}${when}: ${counted(turns, "turn")}`));
    return bar;
  }), ...edges(sessions));
  const named = Object.entries(speakers).slice(0, NAMED).map(([name, turns]) => `${name} (${turns})`);
  const more = Object.keys(speakers).length - named.length;
  at("held").textContent = `${counted(sessions.length, "session")}; turns of ${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  at("topics").replaceChildren(...Object.entries(topics).map(([topic, turns]) => {
    const button = make("button", `${topic} ${turns}`, { type: "button" });
    button.addEventListener("click", () => {
      at("question").value = `What was said about ${topic}?`;
      saying(ask);
    });
    return button;
  }));
  at("overview").hidden = sessions.length === 0;
}

// The days of the first and the last session, below the bars.
function edges(sessions) {
  const days = sessions.map(({ begins_at }) => begins_at).filter(Boolean).map((time) => time.slice(0, 10)).sort();
  if (!days.length) return [];
  const last = make("text", days[days.length - 1], { x: BARS, y: TALL + 15, class: "last" });
  return days.length > 1 ? [make("text", days[0], { x: 0, y: TALL + 15, class: "first" }), last] : [last];
}

function counted(number, what) {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}

function listTimes(known) {
  times = known;
  const slider = at("time");
  slider.max = times.length;
  slider.value = times.length; // the place after the last time stands for now
  slider.disabled = times.length === 0;
  showMoment();
}

function moment() {
  return times[Number(at("time").value)] ?? null;
}

function showMoment() {
  const text = moment() ?? "now";
  at("moment").textContent = text;
  at("time").setAttribute("aria-valuetext", text);
}

async function ask() {
  const question = at("question").value.trim();
  const number = ++asked;
  if (!question) return;
  say("Searching…");
  const fields = { space: at("space").value, question, top_k: HITS, as_of: moment() };
  const found = await call("recall", fields);
  let explained = new Map();
  const notes = [...found.notes];
  const ofHits = { space: fields.space, question, as_of: fields.as_of, turn_ids: found.hits.map(firstTurn) };
  try {
    if (found.hits.length) explained = new Map((await call("explain", ofHits)).turns.map((turn) => [turn.turn_id, turn]));
  } catch (problem) {
    notes.push(problem.message); // without a checkpoint there is nothing to explain
  }
  if (number !== asked) return;
  showHits(found.hits, explained);
  say([`${found.hits.length} ${found.hits.length === 1 ? "hit" : "hits"} by ${found.strategy}`, ...notes].join("; "));
}

function firstTurn(hit) {
  return hit.turn_ids[0];
}

function showHits(hits, explained) {
  const rows = hits.map((hit) => {
    const button = make("button", hit.text, { type: "button", "aria-pressed": "false" });
    const when = hit.spoken_at === null ? "" : ` · ${hit.spoken_at.slice(0, 16).replace("T", " ")}`;
    const until = hit.until === null ? "" : ` · until ${hit.until}`;
    button.append(make("small", `${hit.score.toFixed(3)} · ${hit.type}${when}${until} · turns ${hit.turn_ids.join(", ")}`));
    button.addEventListener("click", () => {
      for (const other of at("hits").querySelectorAll("button")) other.setAttribute("aria-pressed", other === button);
      showNeighbourhood(explained.get(firstTurn(hit)), hit.signals.looked_up ?? 0);
    });
    const row = make("li");
    row.append(button);
    return row;
  });
  at("hits").replaceChildren(...rows);
  showNeighbourhood(undefined);
  rows[0]?.firstChild.click();
}

function showNeighbourhood(turn, lookedUp = 0) {
  at("drawing").replaceChildren();
  at("neighbours").replaceChildren();
  at("around").hidden = !turn || !turn.influences.length;
  at("parts").textContent = turn
    ? `Score ${(turn.score + lookedUp).toFixed(3)}: own meaning ${signed(turn.own_meaning)}, own words ${signed(turn.own_words)}, `
      + `speaker and date ${signed(turn.own_context)}, bias ${signed(turn.bias)}, neighbours ${signed(sum(turn))}`
      + (lookedUp ? `, words that were looked up ${signed(lookedUp)}` : "")
    : "";
  if (!turn) return;
  at("neighbours").replaceChildren(...turn.influences.map(tableRow));
  const bySize = [...turn.influences].sort((one, other) => Math.abs(other.effect) - Math.abs(one.effect));
  draw(bySize.slice(0, DRAWN));
}

function sum(turn) {
  return turn.influences.reduce((total, { meaning, words, date }) => total + meaning + words + date, 0);
}

function signed(number) {
  return (number < 0 ? "−" : "+") + Math.abs(number).toFixed(3);
}

function tableRow(influence) {
  const row = make("tr");
  row.append(make("td", influence.relation), make("td", influence.description));
  for (const name of ["effect", "meaning", "words", "date"]) {
    row.append(make("td", signed(influence[name]), { class: "number" }));
  }
  return row;
}

function draw(influences) {
  const greatest = Math.max(...influences.map(({ effect }) => Math.abs(effect)), 1e-9);
  const shapes = [];
  influences.forEach(({ relation, description, effect }, place) => {
    const angle = (2 * Math.PI * place) / influences.length - Math.PI / 2;
    const [x, y] = [230 * Math.cos(angle), 145 * Math.sin(angle)];
    const width = 1 + (9 * Math.abs(effect)) / greatest;
    const kind = effect < 0 ? "takes" : "adds";
    shapes.unshift(make("line", "", { x1: 0, y1: 0, x2: x, y2: y, "stroke-width": width, class: kind }));
    shapes.push(
      make("circle", "", { cx: x, cy: y, r: 9 }),
      make("text", `${relation} ${signed(effect)}`, { x, y: y < 0 ? y - 29 : y + 23 }), // away from the line
      make("text", shortened(description), { x, y: y < 0 ? y - 15 : y + 37 }),
    );
  });
  at("drawing").replaceChildren(...shapes, make("circle", "", { cx: 0, cy: 0, r: 13, class: "hit" }));
}

function shortened(text) {
  return text.length > 32 ? `${text.slice(0, 31)}…` : text;
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  saying(ask);
});
at("key").addEventListener("change", () => saying(listSpaces));
at("space").addEventListener("change", () => saying(showSpace).then(() => saying(ask)));
at("time").addEventListener("input", showMoment);
at("time").addEventListener("change", () => saying(ask));
saying(listSpaces);
