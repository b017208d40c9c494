"use strict";
// The page that a service serves: its form asks the service, for one model or for two.

const SETTINGS = [...document.querySelectorAll("[data-setting]")];
let served = [];

function settingsOf(name) {
  const model = served.find((each) => each.name === name);
  return new Map((model ? model.settings : []).map((setting) => [setting.name, setting]));
}

// Shows the settings that the chosen models have, each with its default as a hint.
function showSettings() {
  const first = settingsOf(byId("model").value);
  const known = new Map([...settingsOf(byId("other").value), ...first]);
  for (const field of SETTINGS) {
    const setting = known.get(field.dataset.setting);
    field.parentElement.hidden = !setting;
    if (!setting) continue;
    field.placeholder = showDefault(setting, known);
    field.title = setting.help;
  }
}

// What a model does if the form does not say: 15 of 20 steps are taken if the last 5 are left out.
function showDefault(setting, known) {
  const left = setting.name === "steps" && known.has("stop_early") ? known.get("stop_early").default : 0;
  return left ? `${setting.default - left} of ${setting.default}` : (setting.default ?? "");
}

// The request for one model: what the form says, as far as the model knows it.
function makeRequest(name) {
  const known = settingsOf(name);
  const given = SETTINGS.filter((field) => field.value !== "" && known.has(field.dataset.setting));
  const settings = Object.fromEntries(given.map((field) =>
    [field.dataset.setting, field.type === "number" ? Number(field.value) : field.value]));
  return { model: name, texts: [byId("text").value], seed: Number(byId("seed").value || 0), trace: true, settings };
}

// Generates what the form asks for. If it is watched, the steps are shown as they arrive, and played from the first one.
async function generate(isWatched) {
  const names = [byId("model").value, byId("other").value].filter((name) => name !== "");
  const before = { models: state.models, results: state.results, step: state.step };
  const controller = new AbortController();
  pause();
  setBusy(true);
  try {
    const answers = await Promise.all(names.map((name, at) => isWatched
      ? follow(makeRequest(name), controller.signal, (start, result) => showPartial(names, at, start, result))
      : ask("v1/generate", makeRequest(name), controller.signal)));
    showAnswers(answers, isWatched);
  } catch (error) {
    controller.abort(); // the other model need not go on
    pause();
    if (isPartial()) { Object.assign(state, before); draw(); }
    say(""); // the error is said, and nothing else
    byId("error").textContent = error.message;
  } finally {
    setBusy(false);
  }
}

function setBusy(isBusy) {
  const button = document.querySelector("#request button");
  button.setAttribute("aria-disabled", isBusy); // unlike `disabled`, it keeps the focus
  button.textContent = isBusy ? "Generating …" : "Generate";
  byId("results").setAttribute("aria-busy", isBusy);
  if (!isBusy) return;
  byId("error").textContent = "";
  say("The model is at work.");
}

// Shows what is known of the result of one model; the first step of a request starts to play.
function showPartial(names, at, start, result) {
  const isFirst = !isPartial();
  if (isFirst) {
    state.models = names.map((name) => ({ name, selection: "" }));
    state.results = names.map(() => makePartialResult(result.source, []));
    state.step = 0;
  }
  state.models[at] = describeModel(start);
  state.results[at] = result;
  if (isFirst) drawAndPlay(); else fillSoon();
}

// On a phone the form fills the screen: what is played is then scrolled into view.
function drawAndPlay() {
  draw();
  play();
  const top = byId("player").getBoundingClientRect().top;
  const bottom = document.querySelector(".stage").getBoundingClientRect().bottom;
  if (top < 0 || bottom > innerHeight) byId("player").scrollIntoView();
}

// Steps may arrive faster than a screen shows them.
function fillSoon() {
  state.frame ??= requestAnimationFrame(() => { state.frame = null; fill(); });
}

function showAnswers(answers, isWatched) {
  const isBegun = isPartial();
  state.models = answers.map(describeModel);
  state.results = answers.map((answer) => answer.results[0]);
  if (isBegun) fill();
  else {
    state.step = isWatched ? 0 : lastStep();
    (isWatched ? drawAndPlay : draw)();
  }
  say(describeStep(lastStep())); // whoever listens need not wait for the picture
}

function describeModel({ model, settings }) {
  const { select = "", utility } = settings;
  return { name: model, selection: select.includes("mbr") ? `${select}|u:${utility}` : select };
}

// Names the language that a model reads, if it is known.
function showLanguage() {
  const { source } = served.find(({ name }) => name === byId("model").value) || {};
  const language = source && new Intl.DisplayNames("en", { type: "language" }).of(source);
  byId("text").placeholder = language ? `A sentence in ${language}` : "";
}

async function startLive() {
  const asked = readAddress();
  byId("request").hidden = false;
  document.querySelector("#request details").open = !matchMedia("(max-width: 34rem)").matches;
  try {
    served = await ask("v1/models");
  } catch (error) {
    byId("error").textContent = error.message;
    return;
  }
  for (const { name } of served) {
    byId("model").append(new Option(name, name));
    byId("other").append(new Option(name, name));
  }
  for (const field of document.querySelectorAll("#request [id]")) {
    if (asked.has(field.id) && field.id !== "key") field.value = asked.get(field.id);
  }
  if (!byId("model").value) byId("model").selectedIndex = 0;
  showSettings();
  showLanguage();
  if (!asked.get("text")) return; // what a reader has written meanwhile waits for them
  await generate(false);
  if (state.results.length) restoreView(asked);
}

byId("model").addEventListener("change", () => { showSettings(); showLanguage(); });
byId("other").addEventListener("change", showSettings);
byId("key").addEventListener("change", () => { if (!served.length) { byId("error").textContent = ""; started = startLive(); } });
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); byId("request").requestSubmit(); }
});
byId("request").addEventListener("submit", async (event) => {
  event.preventDefault();
  await started; // the models that the service has
  if (byId("results").getAttribute("aria-busy") === "true") return;
  if (!byId("text").value.trim()) {
    byId("error").textContent = "Write a text first.";
    return;
  }
  generate(!matchMedia("(prefers-reduced-motion: reduce)").matches);
});

let started = isLive ? startLive() : null;
