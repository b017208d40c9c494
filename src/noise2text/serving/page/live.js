"use strict";
// The page that a service serves: its form asks the service, for one model or for two.

const SETTINGS = [...document.querySelectorAll("[data-setting]")];
let served = [];

async function ask(path, body) {
  const key = byId("key").value;
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  const answer = await fetch(path, { headers, ...(body && { method: "POST", body: JSON.stringify(body) }) });
  const value = await answer.json();
  if (answer.status === 401) byId("key").parentElement.hidden = false;
  if (!answer.ok) throw new Error(value.error || `The service answered ${answer.status}.`);
  return value;
}

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
    field.placeholder = setting.default === null || setting.default === "" ? "" : setting.default;
    field.title = setting.help;
  }
}

// The request for one model: what the form says, as far as the model knows it.
function makeRequest(name) {
  const known = settingsOf(name);
  const given = SETTINGS.filter((field) => field.value !== "" && known.has(field.dataset.setting));
  const settings = Object.fromEntries(given.map((field) =>
    [field.dataset.setting, field.type === "number" ? Number(field.value) : field.value]));
  return { model: name, texts: [byId("text").value], seed: Number(byId("seed").value || 0), trace: true, settings };
}

async function generate(autoplay) {
  const button = document.querySelector("#request button");
  const names = [byId("model").value, byId("other").value].filter((name) => name !== "");
  pause();
  button.disabled = true;
  byId("error").textContent = "";
  byId("results").setAttribute("aria-busy", "true");
  try {
    const answers = await Promise.all(names.map((name) => ask("v1/generate", makeRequest(name))));
    state.models = answers.map((answer) => ({ name: answer.model, selection: describeSelection(answer.settings) }));
    state.results = answers.map((answer) => answer.results[0]);
    state.step = autoplay ? 0 : lastStep();
    draw();
    if (autoplay && lastStep() > 0) play();
  } catch (error) {
    byId("error").textContent = error.message;
  } finally {
    button.disabled = false;
    byId("results").removeAttribute("aria-busy");
  }
}

function describeSelection(settings) {
  return [settings.select, settings.utility && `u:${settings.utility}`].filter(Boolean).join("|");
}

async function startLive() {
  const asked = readAddress();
  byId("request").hidden = false;
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
  if (!byId("text").value) return;
  await generate(false);
  if (state.results.length) restoreView(asked);
}

byId("model").addEventListener("change", showSettings);
byId("other").addEventListener("change", showSettings);
byId("key").addEventListener("change", () => { if (!served.length) { byId("error").textContent = ""; startLive(); } });
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); byId("request").requestSubmit(); }
});
byId("request").addEventListener("submit", (event) => {
  event.preventDefault();
  generate(!matchMedia("(prefers-reduced-motion: reduce)").matches);
});

if (isLive) startLive();
