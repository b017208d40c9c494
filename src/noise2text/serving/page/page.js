"use strict";
// The page's state and controls. The data are in the page, or come from the service that serves it.

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const isLive = data === null;
const MILLISECONDS_PER_STEP = 450;
const state = { models: [], results: [], views: [], step: 0, view: "noise", timer: null, frame: null };

function lastStep() {
  return Math.max(0, ...state.results.map((result) => result.steps.length - 1));
}

// Whether a service is still at work, and more steps will come.
function isPartial() {
  return state.results.some((result) => result.isPartial);
}

// What the address keeps after #, so that a link shows the same.
function readAddress() {
  return new URLSearchParams(location.hash.slice(1));
}

function writeAddress() {
  const kept = new URLSearchParams({ ...requestFields(), step: state.step + 1, view: state.view });
  history.replaceState(null, "", `#${kept}`);
}

function requestFields() {
  if (!isLive) return { input: Number(byId("input").value) + 1 };
  const fields = [...document.querySelectorAll("#request [id]")].filter((each) => each.value !== "" && each.id !== "key");
  return Object.fromEntries(fields.map((each) => [each.id, each.value]));
}

// Draws the results of other models, or of another text.
function draw() {
  state.views = state.models.map(makeView);
  byId("results").replaceChildren(...state.views.map((each) => each.section));
  fill();
}

// Draws what the results are now, at the same step.
function fill() {
  state.views.forEach((each, at) => each.fill(state.models[at], state.results[at], state.view));
  byId("step").max = lastStep() + 1;
  byId("player").hidden = !state.results.length;
  byId("actions").hidden = !state.results.length || isPartial();
  moveTo(Math.min(state.step, lastStep()));
}

function moveTo(step) {
  state.step = step;
  for (const each of state.views) each.show(step);
  byId("step").value = step + 1;
  const longest = state.results.find((result) => result.steps.length > step);
  const time = longest ? `, time ${longest.steps[step].time.toFixed(2)}` : "";
  byId("where").textContent = `${step + 1} of ${lastStep() + 1}${isPartial() ? " so far" : ""}${time}`;
  byId("step").setAttribute("aria-valuetext", byId("where").textContent);
  if (state.timer === null) settle();
}

// What is done when the picture stands still: say the text, and keep the address.
function settle() {
  if (isPartial() || !state.results.length) return;
  say(describeStep(state.step));
  writeAddress();
}

// Tells readers who listen; what was said last is not said again.
function say(words) {
  if (byId("said").textContent !== words) byId("said").textContent = words;
}

function describeStep(step) {
  return state.results.map((result, at) => `${state.models[at].name}: ${stepText(result, step)}`).join(". ");
}

// The text of a step, as it is said: tokens of noise are words of their own.
function stepText(result, step) {
  const at = Math.min(step, result.steps.length - 1);
  if (at < 0) return result.text;
  const isNoise = state.view === "noise" && at < result.steps.length - 1;
  return isNoise ? result.steps[at].noisy_tokens.map(showToken).join(" ") : result.steps[at].text;
}

// Plays from here to the end, or from the start if this is the end; waits for steps that have not come yet.
function play() {
  if (state.timer !== null) return pause();
  if (state.step >= lastStep() && !isPartial()) moveTo(0);
  showPlaying(true);
  state.timer = setInterval(() => {
    if (state.step < lastStep()) moveTo(state.step + 1);
    if (state.step >= lastStep() && !isPartial()) pause();
  }, MILLISECONDS_PER_STEP);
}

function pause() {
  clearInterval(state.timer);
  state.timer = null;
  showPlaying(false);
  settle();
}

function showPlaying(isPlaying) {
  byId("play").textContent = isPlaying ? "Pause" : "Play";
  byId("play").classList.toggle("playing", isPlaying);
}

function showInput() {
  pause();
  state.results = data.inputs[byId("input").value];
  state.step = lastStep();
  draw();
}

function startFromFile() {
  const asked = readAddress();
  data.inputs.forEach((results, at) => byId("input").append(new Option(results[0].source, at)));
  byId("picker").hidden = false;
  byId("input").value = Math.min(Math.max(1, asked.get("input") || 1), data.inputs.length) - 1;
  byId("input").addEventListener("change", showInput);
  state.models = data.models;
  state.results = data.inputs[byId("input").value];
  restoreView(asked);
}

function restoreView(asked) {
  state.view = asked.get("view") === "estimate" ? "estimate" : "noise";
  document.querySelector(`input[name=view][value=${state.view}]`).checked = true;
  const step = Number(asked.get("step") || lastStep() + 1) - 1;
  state.step = Math.min(Math.max(0, step || 0), lastStep());
  draw();
}

function download(name, type, content) {
  const link = make("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    byId("done").textContent = `${what} copied.`;
  } catch {
    byId("done").textContent = `The browser does not allow copying: ${text}`;
  }
}

byId("play").addEventListener("click", play);
byId("step").addEventListener("input", (event) => { pause(); moveTo(event.target.value - 1); });
for (const radio of document.querySelectorAll("input[name=view]")) {
  radio.addEventListener("change", () => { state.view = radio.value; fill(); });
}
byId("copy").addEventListener("click", () => copy(state.results.map((result) => result.text).join("\n"), "Text"));
byId("link").addEventListener("click", () => { writeAddress(); copy(location.href, "Link"); });
byId("svg").addEventListener("click", () =>
  download("denoising.svg", "image/svg+xml", drawPicture(state.models, state.results, state.view).svg));
byId("gif").addEventListener("click", async () => {
  byId("done").textContent = "Drawing …";
  download("denoising.gif", "image/gif", await drawGif(state.models, state.results, state.view));
  byId("done").textContent = "";
});
byId("json").addEventListener("click", () =>
  download("result.json", "application/json", JSON.stringify({ models: state.models, results: state.results }, null, 1)));

if (!isLive) startFromFile();
