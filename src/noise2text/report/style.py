"""The style sheet of a page: light or dark as the system, for screens, phones and paper."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --quiet: #5b6470; --paper: #fdfdfc; --line: #d8dade;
  --shade: #f2f3f5; --accent: #1b4f8a; --flag: #8a3b12; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6ea; --quiet: #a2a9b4; --paper: #16181c; --line: #3a3f47; --shade: #20242a;
    --accent: #8fbcf0; --flag: #f0a878; }
  figure svg { filter: invert(1) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem;
  color: var(--ink); background: var(--paper); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: .5rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .5rem 0; max-width: 48rem; }
a { color: var(--accent); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 1rem 0; padding: 0; list-style: none; }
code { font: .8rem/1.4 ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; color: var(--quiet); }
.quiet { color: var(--quiet); font-size: .9rem; }
.flag { color: var(--flag); font-size: .85rem; font-weight: 600; white-space: nowrap; }
.scroll { overflow-x: auto; max-width: 100%; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .7rem .3rem 0; text-align: start; vertical-align: top; overflow-wrap: normal;
  border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--line); font-weight: 600; }
tbody th { font-weight: 400; min-width: 6rem; }
td { min-width: 3rem; max-width: 32rem; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
td .text, td code { overflow-wrap: anywhere; }
td .text { display: inline-block; min-width: 6rem; }
.interval { color: var(--quiet); font-size: .85em; white-space: nowrap; }
.differs th, .differs td { background: var(--shade); }
.text { white-space: pre-wrap; unicode-bidi: isolate; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; }
.figures { display: grid;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.5rem; }
.figures > * { min-width: 0; align-self: start; }
figure { margin: 0; max-width: 44rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption { font-size: .9rem; margin-top: .25rem; }
figcaption code { display: block; }
.summary { margin: 1rem 0; padding: .75rem 1rem .75rem 2rem; background: var(--shade); border-radius: .4rem; }
.best { color: var(--accent); }
.slider { display: flex; flex-wrap: wrap; align-items: center; gap: .25rem; position: relative; }
.slider > input { position: absolute; opacity: 0; width: 1px; height: 1px; }
.slider > label { padding: .3rem .35rem; min-width: 2.5rem; text-align: center; cursor: pointer;
  font-size: .85rem; font-variant-numeric: tabular-nums; border: 1px solid var(--line);
  border-radius: .3rem; color: var(--quiet); }
.slider > input:checked + label { color: var(--paper); background: var(--accent);
  border-color: var(--accent); }
.slider > input:focus-visible + label { outline: 2px solid var(--ink); outline-offset: 2px; }
.slider > .frame { display: none; flex-basis: 100%; min-height: 4.5rem; }
.slider > .frame p { margin: .25rem 0; }
.slider:has(> input:nth-of-type(1):checked) > .frame:nth-of-type(1),
.slider:has(> input:nth-of-type(2):checked) > .frame:nth-of-type(2),
.slider:has(> input:nth-of-type(3):checked) > .frame:nth-of-type(3),
.slider:has(> input:nth-of-type(4):checked) > .frame:nth-of-type(4),
.slider:has(> input:nth-of-type(5):checked) > .frame:nth-of-type(5),
.slider:has(> input:nth-of-type(6):checked) > .frame:nth-of-type(6),
.slider:has(> input:nth-of-type(7):checked) > .frame:nth-of-type(7) { display: block; }
.case { padding: .75rem 1rem; background: var(--shade); border-radius: .4rem; }
.case dl { display: grid; grid-template-columns: minmax(5rem, max-content) minmax(0, 1fr);
  gap: .2rem 1rem; margin: 0; }
.case dt { color: var(--quiet); font-size: .85rem; max-width: 10rem; }
.case dd { margin: 0; }
@media (max-width: 34rem) {
  body { font-size: 15px; }
  .case dl { grid-template-columns: minmax(0, 1fr); gap: 0; }
  .case dt { margin-top: .4rem; max-width: none; }
}
@media print {
  :root { --ink: #000; --quiet: #444; --paper: #fff; --line: #bbb;
    --shade: #f4f4f4; --accent: #000; --flag: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure svg { filter: none; }
  nav { display: none; }
  .scroll { overflow-x: visible; }
  figure, .case, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
"""
