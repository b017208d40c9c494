"use strict";
// The grids as a picture for other documents: one below the other, one row per step, in the light theme.

const LETTER = 8, ROW = 26, LEFT = 50, MARGIN = 16, BASELINE = 24;

function escapeText(text) {
  return text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

// The grid of one result, whose top is at y 0: its parts and its size.
function drawPictureGrid(result, view) {
  const rows = result.steps.map((_, at) => shownTokens(result, at, view).map((token) => showToken(token)));
  const columns = Math.max(0, ...rows.map((tokens) => tokens.length));
  const widths = Array.from({ length: columns }, (_, n) =>
    20 + LETTER * Math.max(2, ...rows.map((tokens) => (tokens[n] || "").length)));
  const xs = widths.map((_, n) => LEFT + widths.slice(0, n).reduce((sum, width) => sum + width, 0));
  const parts = rows.flatMap((tokens, at) => {
    const y = BASELINE + at * ROW;
    const cells = tokens.flatMap((token, n) => {
      const { final, confidence } = describeToken(result, at, n, shownTokens(result, at, view)[n]);
      const box = `<rect x="${xs[n] + 2}" y="${y - 17}" width="${widths[n] - 4}" height="${ROW - 3}" rx="4" fill="#3f9a6b" fill-opacity="${(0.4 * (confidence ?? 0.5)).toFixed(2)}"/>`;
      return [final ? box : "", `<text x="${xs[n] + 10}" y="${y}" fill="${final ? "#1d2129" : "#667080"}">${escapeText(token)}</text>`];
    });
    return [`<text x="${MARGIN}" y="${y}" fill="#667080">${at + 1}</text>`, ...cells];
  });
  return { parts, width: LEFT + widths.reduce((sum, value) => sum + value, 0) + MARGIN, height: BASELINE + rows.length * ROW };
}

// The picture of the results of all models, two of which are named, and the rows of each step: [{ step, y: the top }].
function drawPicture(models, results, view) {
  const { source, text } = results[0];
  const heading = (y, words) => `<text x="${MARGIN}" y="${y}" font-size="15" fill="#1d2129">${escapeText(words)}</text>`;
  const rows = [];
  let bottom = 26, width = 2 * MARGIN + 9.1 * source.length;
  const parts = results.flatMap((result, at) => {
    const name = results.length > 1 ? [heading(bottom + 30, models[at].name)] : [];
    const grid = drawPictureGrid(result, view), top = bottom + 30 * name.length;
    result.steps.forEach((_, step) => rows.push({ step, y: top + BASELINE - 18 + step * ROW }));
    [bottom, width] = [top + grid.height, Math.max(width, grid.width)];
    return [...name, `<g transform="translate(0 ${top})">${grid.parts.join("")}</g>`];
  });
  const size = `width="${Math.ceil(width)}" height="${bottom}"`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${Math.ceil(width)} ${bottom}" font-family="monospace" font-size="13">` +
    `<title>${escapeText(source)} → ${escapeText(text)}</title><rect ${size} fill="#fdfdfc"/>${heading(26, source)}${parts.join("")}</svg>\n`;
  return { svg, rows };
}
