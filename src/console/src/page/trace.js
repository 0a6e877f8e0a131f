// Where a client's packets stop: the verdict of `/api/trace` or `/api/fleet/trace`, and what was looked at on the way.

import { fill, make, name, sentence } from "./dom.js";
import { ask, question } from "./ask.js";

/** Signs and words of what was found. */
const STATES = {
  ok: ["✓", "ok"],
  doubtful: ["!", "doubtful"],
  stopped: ["✕", "stopped"],
  unseen: ["?", "not seen"],
};

/** Asks, with a capture of so many seconds if there are any, and gives the elements of the answer. */
export async function trace(service, source, frontend, client, seconds) {
  const view = await ask(seconds ? `api/trace/${seconds}` : "api/trace", question(service, source, frontend, client));
  return view.error ? failure(view.error) : answer(view);
}

/** Asks all gateways through the controller, and gives the elements of the answer. */
export async function traceAll(service, client) {
  const view = await ask("api/fleet/trace", { service, client });
  return view.error ? failure(view.error) : answerOfAll(view);
}

function failure(error) {
  return [make("p", { class: "bad", dir: "auto" }, error)];
}

function answerOfAll({ verdict, verdictOf, gateways, silent }) {
  const one = ({ comesHere, trace: { node, verdict: own, steps } }) => {
    const what = comesHere === false ? ["the client's packets do not come here"] : [mark(own.state), ": ", sentence(own.text)];
    const list = make("details", {}, make("summary", { dir: "auto" }, name(node), " ", ...what), make("ol", { class: "steps" }, steps.map(step)));
    list.open = node === verdictOf[0];
    return list;
  };
  const mute = silent.map(({ node, error }) => make("li", { dir: "auto" }, name(node), ` does not answer: ${error}`));
  return [...decision(verdict), ...gateways.map(one), mute.length ? make("ul", { class: "notes" }, mute) : null].filter(Boolean);
}

function decision({ state, text, advice }) {
  return [
    make("p", { class: `decision ${state}`, dir: "auto" }, mark(state), ": ", sentence(text)),
    advice ? make("p", { class: "advice", dir: "auto" }, sentence(advice)) : null,
  ];
}

function answer({ service, source, frontend, client, verdict, steps, capture }) {
  const whose = [`${source} `, name(service), ...(frontend ? [", on ", name(frontend)] : []), ...(client ? [", for ", name(client)] : [])];
  return [
    ...decision(verdict),
    make("p", { class: "muted" }, whose),
    make("ol", { class: "steps" }, steps.map(step)),
    capture ? make("p", {}, make("a", { href: capture.path.replace(/^\//, ""), download: `${service.replaceAll("/", "-")}.pcap` }, `Save ${capture.packets} packets`), " before the next capture takes their place.") : null,
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
