// Where a client's packets stop: the verdict of `/api/trace`, and what was looked at on the way.

import { fill, make, name, sentence } from "./dom.js";
import { ask, question } from "./ask.js";

/** Signs and words of what was found. */
const STATES = {
  ok: ["✓", "ok"],
  doubtful: ["!", "doubtful"],
  stopped: ["✕", "stopped"],
  unseen: ["?", "not seen"],
};

/** Asks, and gives the elements of the answer. */
export async function trace(service, source, frontend, client) {
  const view = await ask("api/trace", question(service, source, frontend, client));
  return view.error ? [make("p", { class: "bad", dir: "auto" }, view.error)] : answer(view);
}

function answer({ service, source, frontend, client, verdict, steps }) {
  const whose = [`${source} `, name(service), ...(frontend ? [", on ", name(frontend)] : []), ...(client ? [", for ", name(client)] : [])];
  return [
    make("p", { class: `decision ${verdict.state}`, dir: "auto" }, mark(verdict.state), ": ", sentence(verdict.text)),
    verdict.advice ? make("p", { class: "advice", dir: "auto" }, sentence(verdict.advice)) : null,
    make("p", { class: "muted" }, whose),
    make("ol", { class: "steps" }, steps.map(step)),
  ].filter(Boolean);
}

function step({ step: title, state, looked, found, advice }) {
  return make(
    "li",
    { class: state },
    mark(state),
    make(
      "div",
      {},
      make("p", {}, make("b", {}, title), looked ? make("span", { class: "muted", dir: "auto" }, " ", sentence(looked)) : null),
      found ? make("p", { dir: "auto" }, sentence(found)) : null,
      advice ? make("p", { class: "advice", dir: "auto" }, sentence(advice)) : null,
    ),
  );
}

function mark(state) {
  const [sign, word] = STATES[state] ?? ["?", state];
  const element = make("span", { class: `mark ${state}` });
  fill(element, make("span", { "aria-hidden": "true" }, sign), ` ${word}`);
  return element;
}
