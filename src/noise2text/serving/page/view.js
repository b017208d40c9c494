"use strict";
// Draws one result: the text at a step, the grid of tokens over steps, the candidates and their agreement.

function make(tag, properties = {}, ...children) {
  const { dataset, style, attributes, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  Object.assign(element.dataset, dataset);
  for (const [name, value] of Object.entries(style || {})) element.style.setProperty(name, value);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Words for readers who listen.
function unseen(words) {
  return make("span", { className: "unseen", textContent: words });
}

// The tokens that a view shows at a step; the last step of a finished result always shows the text itself.
function shownTokens(result, at, view) {
  const step = result.steps[at];
  return view === "noise" && (result.isPartial || at < result.steps.length - 1) ? step.noisy_tokens : step.tokens;
}

// A token is final if the text, or the last estimate so far, has it at this position; its confidence is the model's at
// this step, if known.
function describeToken(result, at, position, token) {
  const last = result.steps[result.steps.length - 1];
  return { final: last.tokens[position] === token, confidence: result.steps[at].confidence[position] };
}

// How a token looks in a grid: without the spaces around it, unless it is one; some tokens write nothing.
function showToken(token) {
  return token.trim() || (token && "␣");
}

function drawToken(result, at, position, token) {
  const { final, confidence } = describeToken(result, at, position, token);
  const isKnown = confidence !== undefined;
  const name = result.isPartial ? "token of the last estimate" : "final token";
  const state = final ? `${name}${isKnown ? `, confidence ${percent(confidence)}` : ""}` : `not the ${name}`;
  return make("span", {
    className: `token${final ? " final" : ""}${isKnown ? " known" : ""}`,
    textContent: showToken(token),
    title: state,
    style: { "--c": (isKnown ? confidence : 0.5).toFixed(3) },
  });
}

// A token as part of a running text, with the spaces that it has.
function drawWord(result, at, position, token) {
  if (!token) return [];
  const word = drawToken(result, at, position, token), [, before, after] = token.match(/^(\s*).*?(\s*)$/s);
  if (token.trim()) return [before, word, after];
  word.textContent = " ";
  return [word];
}

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

// What the colours of a row show, for readers who do not see them.
function describeTokens(result, at, tokens) {
  const final = tokens.map((token, n) => describeToken(result, at, n, token)).filter((each) => each.final);
  const known = final.filter(({ confidence }) => confidence !== undefined);
  const mean = known.reduce((sum, { confidence }) => sum + confidence, 0) / known.length;
  const name = result.isPartial ? "as in the last estimate" : "final";
  return ` with ${final.length} of ${tokens.length} tokens ${name}${known.length ? `, mean confidence ${percent(mean)}` : ""}`;
}

function drawGrid(result, view) {
  const body = make("tbody");
  result.steps.forEach((step, at) => {
    const tokens = shownTokens(result, at, view);
    const cells = tokens.map((token, position) => make("td", {}, drawToken(result, at, position, token)));
    const title = `time ${step.time.toFixed(2)}`;
    const head = make("th", { scope: "row", title }, unseen("Step "), at + 1, unseen(describeTokens(result, at, tokens)));
    body.append(make("tr", {}, head, ...cells));
  });
  const caption = make("caption", { className: "unseen", textContent: "Tokens at each step, one row per step" });
  return make("table", { className: "grid", dir: "auto" }, caption, body);
}

// What the colours of the grid mean, shown by tokens of it.
function drawLegend() {
  const token = (words, c) => make("span", {
    className: `token${c ? " final known" : ""}`, textContent: words, style: { "--c": c },
  });
  return make("p", { className: "quiet legend", attributes: { "aria-hidden": "true" } },
    token("noise", 0), "→ final token, and how sure the model is:", token("40 %", 0.4), token("70 %", 0.7), token("100 %", 1));
}

function scrolling(label) {
  const attributes = { role: "region", tabindex: "0", "aria-label": label };
  return make("div", { className: "scroll", attributes });
}

// Scrolls a high grid, and nothing else, so far that a row is seen.
function scrollToRow(region, row) {
  const lowest = row.offsetTop + row.offsetHeight - region.clientHeight;
  region.scrollTop = Math.max(Math.min(region.scrollTop, row.offsetTop), lowest);
}

function meanUtilities(result) {
  return (result.utilities || []).map((row) => row.reduce((sum, value) => sum + value, 0) / row.length);
}

function explainChoice(result, selection) {
  if (result.isPartial) return "The model is at work. Above are the steps of candidate 1; at the end, those of the chosen one.";
  const means = meanUtilities(result), name = `Candidate ${result.chosen + 1}`;
  if (result.candidates.length === 1) return "There is only one candidate.";
  if (!means.length && selection.includes("mbr")) return `${name} was chosen: it joins the best candidates of the parts of the text.`;
  if (!means.length) return `${name} was chosen. The rule of selection does not compare candidates with each other.`;
  const texts = result.candidates.map((candidate) => candidate.text);
  const isLeftOut = (at) => result.utilities[at].every((value) => value === 0); // a filter of the rule gives it no utility
  const leftOut = texts.flatMap((_, at) => (isLeftOut(at) ? [at + 1] : []));
  const others = means.filter((_, at) => texts[at] !== texts[result.chosen] && !isLeftOut(at));
  const best = means[result.chosen].toFixed(1);
  if (selection.includes("by-length")) return `${name} was chosen: of the candidates of its length, and then of the best ones of every length, it agrees most with the others. Its mean utility is ${best}.`;
  const weighted = selection.includes("weighted-mbr") ? ", weighted by likelihood" : "";
  const next = others.length ? ` The next best text has ${Math.max(...others).toFixed(1)}.` : leftOut.length ? "" : " All candidates have the same text.";
  const without = leftOut.length ? ` Left out before: ${leftOut.join(", ")}.` : "";
  return `${name} was chosen because it agrees most with all candidates${weighted}: its mean utility is ${best}.${next}${without}`;
}

function nameChosen(isChosen) {
  return isChosen ? [unseen(" chosen")] : [];
}

function drawCandidates(result) {
  const means = meanUtilities(result);
  const heads = ["", "Candidate", "Tokens", "Score", ...(means.length ? ["Agreement"] : [])];
  const head = make("tr", {}, ...heads.map((name, at) =>
    name ? make("th", { scope: "col", textContent: name, className: at > 1 ? "number" : "" }) : make("td")));
  const rows = result.candidates.map((candidate, at) => {
    const chosen = at === result.chosen;
    const numbers = [candidate.length, candidate.score === null ? "–" : candidate.score.toFixed(2).replace("-", "−")];
    if (means.length) numbers.push(means[at].toFixed(1));
    return make("tr", { className: chosen ? "chosen" : "" },
      make("th", { scope: "row", textContent: at + 1 },
        ...(chosen ? [make("span", { textContent: " ✓", attributes: { "aria-hidden": "true" } })] : []), ...nameChosen(chosen)),
      make("td", { className: "text", dir: "auto", textContent: candidate.text }),
      ...numbers.map((value) => make("td", { className: "number", textContent: value })));
  });
  return make("table", { className: "candidates" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

function drawHeatMap(result) {
  const highest = Math.max(...result.utilities.flat(), 1e-9);
  const numbers = result.candidates.map((_, at) => at + 1);
  const digits = highest > 1 ? 0 : 2;
  const head = make("tr", {}, make("td"), ...numbers.map((n) => make("th", { scope: "col", textContent: n })));
  const rows = result.utilities.map((row, at) => make("tr", { className: at === result.chosen ? "chosen" : "" },
    make("th", { scope: "row", textContent: at + 1 }, ...nameChosen(at === result.chosen)),
    ...row.map((value) => make("td", { textContent: value.toFixed(digits), style: { "--c": value / highest } }))));
  const caption = make("caption", { className: "unseen", textContent: "Utility of each candidate (row) against each (column)" });
  return make("table", { className: "heat" }, caption, make("thead", {}, head), make("tbody", {}, ...rows));
}

// The view of a model's result: `fill` draws a result, `show` moves it to a step; shorter traces wait at their last one.
// A result that is filled again, as while its steps arrive, keeps the focus and the place of the reader.
function makeView({ name }) {
  const stage = make("p", { className: "stage", dir: "auto" });
  const grid = scrolling(`Tokens at each step, ${name}`);
  grid.classList.add("high");
  const candidates = scrolling(`Candidates, ${name}`);
  const why = make("p");
  const heat = scrolling(`Utilities of the candidates, ${name}`);
  const selection = make("code");
  const agreement = make("div", {}, make("h3", { textContent: "How well candidates agree" }),
    make("p", { className: "quiet", textContent: "Each row is a candidate, each column the one that it is compared with." }), heat);
  const comparison = make("div", { className: "comparison" },
    make("div", {}, make("h3", { textContent: "Candidates at this step" }), candidates, why,
      make("p", { className: "quiet" }, "Rule of selection: ", selection)),
    agreement);
  const legend = drawLegend();
  const details = make("div", {}, legend, grid, comparison);
  const warnings = make("p", { className: "warning" });
  const section = make("section", { className: "result", attributes: { "aria-label": name } },
    make("h2", { textContent: name }), warnings, stage, details);
  let result, view, rows, texts, shown;

  function fill(model, newResult, newView) {
    [result, view] = [newResult, newView];
    selection.textContent = model.selection;
    warnings.textContent = result.warnings.join(" ");
    details.hidden = !result.steps.length;
    agreement.hidden = !result.utilities;
    legend.hidden = !result.steps.some((step) => step.confidence.length); // some models do not know how sure they are
    if (details.hidden) return;
    grid.replaceChildren(drawGrid(result, view));
    candidates.replaceChildren(drawCandidates(result));
    why.textContent = explainChoice(result, model.selection);
    heat.replaceChildren(...(result.utilities ? [drawHeatMap(result)] : []));
    rows = [...grid.querySelectorAll("tr")];
    texts = [...candidates.querySelectorAll(".text")];
  }

  function show(step) {
    const at = Math.min(step, result.steps.length - 1);
    if (at < 0) { stage.textContent = result.text; return; }
    rows.forEach((row, n) => {
      row.className = n > at ? "later" : n < at ? "" : at === shown ? "now" : "now new";
      row.ariaCurrent = n === at ? "step" : null;
    });
    shown = at;
    scrollToRow(grid, rows[at]);
    stage.replaceChildren(...shownTokens(result, at, view).flatMap((token, n) => drawWord(result, at, n, token)));
    texts.forEach((cell, n) => { cell.textContent = result.candidates[n].drafts[at] ?? result.candidates[n].text; });
  }

  return { section, fill, show };
}
