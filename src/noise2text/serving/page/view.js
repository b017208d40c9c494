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

// The tokens that a view shows at a step; the last step always shows the text itself.
function shownTokens(result, at, view) {
  const step = result.steps[at];
  return view === "noise" && at < result.steps.length - 1 ? step.noisy_tokens : step.tokens;
}

// A token is final if the text has it at this position; its confidence is the model's at this step, if known.
function describeToken(result, at, position, token) {
  const last = result.steps[result.steps.length - 1];
  return { final: last.tokens[position] === token, confidence: result.steps[at].confidence[position] };
}

function drawToken(result, at, position, token) {
  const { final, confidence } = describeToken(result, at, position, token);
  const isKnown = confidence !== undefined;
  const state = final ? `final token${isKnown ? `, confidence ${percent(confidence)}` : ""}` : "not the final token";
  return make("span", {
    className: `token${final ? " final" : ""}${isKnown ? " known" : ""}`,
    textContent: token.trim() || "␣",
    title: state,
    style: { "--c": (isKnown ? confidence : 0.5).toFixed(3) },
  });
}

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

function drawGrid(model, result, view) {
  const body = make("tbody");
  result.steps.forEach((step, at) => {
    const cells = shownTokens(result, at, view).map((token, position) =>
      make("td", {}, drawToken(result, at, position, token)));
    const title = `time ${step.time.toFixed(2)}`;
    body.append(make("tr", {}, make("th", { scope: "row", textContent: at + 1, title }), ...cells));
  });
  const caption = make("caption", { className: "unseen", textContent: "Tokens at each step, one row per step" });
  return scrolling(`Tokens at each step, ${model.name}`, make("table", { className: "grid", dir: "auto" }, caption, body));
}

function scrolling(label, content) {
  const attributes = { role: "region", tabindex: "0", "aria-label": label };
  return make("div", { className: "scroll", attributes }, content);
}

function meanUtilities(result) {
  return (result.utilities || []).map((row) => row.reduce((sum, value) => sum + value, 0) / row.length);
}

function explainChoice(result, selection) {
  const means = meanUtilities(result);
  const name = `Candidate ${result.chosen + 1}`;
  if (!means.length) return `${name} was chosen. The rule of selection does not compare candidates with each other.`;
  const texts = result.candidates.map((candidate) => candidate.text);
  const others = means.filter((_, at) => texts[at] !== texts[result.chosen]);
  const best = means[result.chosen].toFixed(1);
  const weighted = selection.startsWith("weighted") ? ", weighted by likelihood" : "";
  const next = others.length ? ` The next best text has ${Math.max(...others).toFixed(1)}.` : " All candidates have the same text.";
  return `${name} was chosen because it agrees most with all candidates${weighted}: its mean utility is ${best}.${next}`;
}

function drawCandidates(model, result) {
  const means = meanUtilities(result);
  const heads = ["", "Candidate", "Tokens", "Score", ...(means.length ? ["Agreement"] : [])];
  const head = make("tr", {}, ...heads.map((name, at) =>
    name ? make("th", { scope: "col", textContent: name, className: at > 1 ? "number" : "" }) : make("td")));
  const rows = result.candidates.map((candidate, at) => {
    const chosen = at === result.chosen;
    const numbers = [candidate.length, candidate.score === null ? "–" : candidate.score.toFixed(2)];
    if (means.length) numbers.push(means[at].toFixed(1));
    return make("tr", { className: chosen ? "chosen" : "" },
      make("th", { scope: "row", textContent: `${at + 1}${chosen ? " ✓" : ""}` },
        ...(chosen ? [make("span", { className: "unseen", textContent: " chosen" })] : [])),
      make("td", { className: "text", dir: "auto", textContent: candidate.text }),
      ...numbers.map((value) => make("td", { className: "number", textContent: value })));
  });
  const table = make("table", { className: "candidates" }, make("thead", {}, head), make("tbody", {}, ...rows));
  return scrolling(`Candidates, ${model.name}`, table);
}

function drawHeatMap(model, result) {
  const highest = Math.max(...result.utilities.flat(), 1e-9);
  const numbers = result.candidates.map((_, at) => at + 1);
  const digits = highest > 1 ? 0 : 2;
  const head = make("tr", {}, make("td"), ...numbers.map((n) => make("th", { scope: "col", textContent: n })));
  const rows = result.utilities.map((row, at) => make("tr", { className: at === result.chosen ? "chosen" : "" },
    make("th", { scope: "row", textContent: at + 1 }),
    ...row.map((value) => make("td", { textContent: value.toFixed(digits), style: { "--c": value / highest } }))));
  const caption = make("caption", { className: "unseen", textContent: "Utility of each candidate (row) against each (column)" });
  return scrolling(`Utilities of the candidates, ${model.name}`,
    make("table", { className: "heat" }, caption, make("thead", {}, head), make("tbody", {}, ...rows)));
}

// One result with a function `show(step)`, which moves it to a step; shorter traces wait at their last one.
function drawResult(model, result, view) {
  const stage = make("p", { className: "stage", dir: "auto" });
  const section = make("section", { className: "result", attributes: { "aria-label": model.name } },
    make("h2", { textContent: model.name }), stage);
  if (!result.steps.length) {
    stage.textContent = result.text;
    return { section, show() {} };
  }
  const grid = drawGrid(model, result, view);
  const candidates = drawCandidates(model, result);
  section.append(grid, make("h3", { textContent: "Candidates at this step" }), candidates,
    make("p", { textContent: explainChoice(result, model.selection) }));
  if (result.utilities) section.append(make("h3", { textContent: "How well candidates agree" }), drawHeatMap(model, result));
  section.append(make("p", {}, make("code", { textContent: model.selection })));
  const rows = [...grid.querySelectorAll("tr")];
  const texts = [...candidates.querySelectorAll(".text")];
  function show(step) {
    const at = Math.min(step, result.steps.length - 1);
    rows.forEach((row, n) => { row.className = n > at ? "later" : n === at ? "now" : ""; });
    stage.replaceChildren(...shownTokens(result, at, view).flatMap((token, n) =>
      [/^\s/.test(token) ? " " : "", drawToken(result, at, n, token)]));
    texts.forEach((cell, n) => { cell.textContent = result.candidates[n].drafts[at] ?? result.candidates[n].text; });
  }
  return { section, show };
}

// The grid up to a step as a picture for other documents: one row per step, in the light theme.
function drawPicture(result, view, until = result.steps.length - 1) {
  const size = 8, row = 26, left = 50;
  const rows = result.steps.map((_, at) => shownTokens(result, at, view).map((token) => token.trim() || "␣"));
  const columns = Math.max(...rows.map((tokens) => tokens.length));
  const widths = Array.from({ length: columns }, (_, n) => 20 + size * Math.max(2, ...rows.map((tokens) => (tokens[n] || "").length)));
  const xs = widths.map((_, n) => left + widths.slice(0, n).reduce((sum, width) => sum + width, 0));
  const escape = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const parts = rows.slice(0, until + 1).flatMap((tokens, at) => {
    const y = 50 + at * row;
    const cells = tokens.flatMap((token, n) => {
      const { final, confidence } = describeToken(result, at, n, shownTokens(result, at, view)[n]);
      const box = `<rect x="${xs[n] + 2}" y="${y - 17}" width="${widths[n] - 4}" height="${row - 3}" rx="4" fill="#3f9a6b" fill-opacity="${(0.4 * (confidence ?? 0.5)).toFixed(2)}"/>`;
      return [final ? box : "", `<text x="${xs[n] + 10}" y="${y}" fill="${final ? "#1d2129" : "#667080"}">${escape(token)}</text>`];
    });
    return [`<text x="16" y="${y}" fill="#667080">${at + 1}</text>`, ...cells];
  });
  const width = left + widths.reduce((sum, value) => sum + value, 0) + 16, height = 50 + rows.length * row;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="monospace" font-size="13">` +
    `<title>${escape(result.source)} → ${escape(result.text)}</title><rect width="${width}" height="${height}" fill="#fdfdfc"/>` +
    `<text x="16" y="26" font-size="15" fill="#1d2129">${escape(result.source)}</text>${parts.join("")}</svg>\n`;
}
