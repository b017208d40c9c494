"use strict";
// Asks the service: for a whole answer, or for the denoising steps as they happen (server-sent events).

// What the service says about a request that it does not answer: asking again would not help.
class Refusal extends Error {}

async function send(path, body, signal) {
  const key = byId("key").value;
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  let answer;
  try {
    answer = await fetch(path, { headers, signal, ...(body && { method: "POST", body: JSON.stringify(body) }) });
  } catch {
    throw new Refusal("The service does not answer: is it still running?");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) byId("key").parentElement.hidden = false;
  const { error } = await answer.json().catch(() => ({}));
  throw new Refusal(error || `The service answered ${answer.status}.`);
}

async function ask(path, body, signal) {
  return (await send(path, body, signal)).json();
}

async function* readEvents(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "", chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    const events = (text + chunk.value).split("\n\n");
    text = events.pop(); // the begin of the next one
    for (const event of events) {
      const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      yield { name: fields.event, value: JSON.parse(fields.data) };
    }
  }
}

// The answer to a request of one text, as v1/generate gives it; `onStep` gets the result so far after each step.
// If the stream breaks, the whole answer is asked for.
async function follow(request, signal, onStep) {
  const { texts: [text], trace, ...rest } = request;
  const steps = [];
  let start;
  try {
    for await (const { name, value } of readEvents(await send("v1/generate/stream", { text, ...rest }, signal))) {
      if (name === "start") start = value;
      if (name === "step") {
        steps.push(value.candidates);
        onStep(start, makePartialResult(text, steps));
      }
      if (name === "result") return { ...start, results: [value] };
      if (name === "error") throw new Refusal(value.error);
    }
  } catch (error) {
    if (error instanceof Refusal) throw error;
  }
  return ask("v1/generate", request, signal);
}

// What is known of a result while its steps arrive: nothing is chosen yet, and the grid is that of candidate 1.
function makePartialResult(source, steps) {
  const latest = steps[steps.length - 1] || [];
  const candidates = latest.map(({ text, tokens }, at) =>
    ({ text, length: tokens.length, score: null, drafts: steps.map((step) => step[at].text) }));
  const first = steps.map((step) => step[0]);
  return { isPartial: true, source, text: "", chosen: null, candidates, utilities: null, steps: first, warnings: [] };
}
