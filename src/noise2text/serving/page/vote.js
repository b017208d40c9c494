"use strict";
// One ballot after another; the address keeps the voter and the place, so that a reload goes on there.

const byId = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.hash.slice(1));
const voter = asked.get("voter") || Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("");
let number = Math.max(1, Number(asked.get("ballot")) || 1);
let total = 0;

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error || `The service answered ${answer.status}.`);
  return value;
}

async function show() {
  history.replaceState(null, "", `#${new URLSearchParams({ voter, ballot: number })}`);
  if (total && number > total) return showEnd();
  const ballot = await ask(`v1/ballots/${number}?voter=${encodeURIComponent(voter)}`);
  total = ballot.total;
  for (const id of ["source", "first", "second"]) byId(id).textContent = ballot[id] || "(empty)";
  byId("progress").textContent = `${number} of ${total}`;
  Object.assign(byId("bar"), { max: total, value: number - 1 });
  byId("ballot").hidden = false;
  const parts = ["progress", "source", "first", "second"].map((id) => byId(id).textContent);
  byId("said").textContent = `${parts[0]}. Source: ${parts[1]} First: ${parts[2]} Second: ${parts[3]}`;
}

async function showEnd() {
  const tally = await ask("v1/tally");
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const decided = tally.a + tally.b;
  const share = decided ? ` A wins ${percent(tally.share)} of the votes that decide (95 % interval ${percent(tally.low)} to ${percent(tally.high)}).` : "";
  byId("tally").textContent = `All votes so far: ${tally.a} for A, ${tally.b} for B, ${tally.equal} equal.${share}`;
  drawShares([["A", tally.a], ["equal", tally.equal], ["B", tally.b]]);
  byId("ballot").hidden = true;
  byId("end").hidden = false;
  byId("thanks").focus();
}

// The votes as one bar; a part without votes is not there.
function drawShares(parts) {
  byId("shares").hidden = parts.every(([, votes]) => !votes);
  [...byId("shares").children].forEach((part, at) => {
    const [name, votes] = parts[at];
    part.textContent = votes ? `${name} ${votes}` : "";
    part.style.flexGrow = votes;
  });
}

// Unlike `disabled`, this keeps the focus on the button, so that the keyboard votes again from there.
function setBusy(isBusy) {
  for (const button of document.querySelectorAll("[data-vote]")) button.setAttribute("aria-disabled", isBusy);
}

async function vote(preferred) {
  setBusy(true);
  try {
    await ask("v1/votes", { voter, number, preferred });
    number += 1;
    byId("error").textContent = "";
    await show();
  } catch (error) {
    byId("error").textContent = error.message;
  } finally {
    setBusy(false);
  }
}

for (const button of document.querySelectorAll("[data-vote]")) {
  button.addEventListener("click", () => { if (button.getAttribute("aria-disabled") !== "true") vote(button.dataset.vote); });
}
ask(`v1/ballots/1?voter=${encodeURIComponent(voter)}`)
  .then((ballot) => { total = ballot.total; return show(); })
  .catch((error) => { byId("error").textContent = error.message; });
