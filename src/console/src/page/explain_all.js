// The box that explains which gateway a client reaches, and what each gateway would do, and traces through all of them.

import { names } from "./all_gateways.js";
import { ask } from "./ask.js";
import { byId, fill, make, name } from "./dom.js";
import { count } from "./format.js";
import { headline, outcome } from "./explain.js";
import { EndpointTable, notes } from "./shares.js";
import { traceAll } from "./trace.js";

export class ExplainAll {
  #asked = 0;

  /** `changed()` is called for a new question. */
  constructor({ changed }) {
    this.changed = changed;
    this.form = byId("question");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (event.submitter === byId("trace")) this.#trace();
      else this.ask();
    });
  }

  /** What the page's address keeps. */
  get query() {
    const [service, client] = ["explain", "client"].map((key) => this.form.elements[key].value.trim());
    return { explain: service, client: service && client };
  }

  /** Asks what the address of the page asks. */
  restore({ explain = "", client = "" }) {
    this.form.elements.explain.value = explain;
    this.form.elements.client.value = client;
    if (explain) this.ask();
  }

  async #trace() {
    const { explain: service, client } = this.query;
    const asked = ++this.#asked;
    this.changed();
    fill(byId("answer"), make("p", { class: "muted" }, "Tracing: this takes up to 10 s."));
    const shown = await traceAll(service, client);
    if (asked === this.#asked) fill(byId("answer"), shown);
  }

  async ask() {
    const { explain: service, client } = this.query;
    if (!service) return;
    const asked = ++this.#asked;
    this.changed();
    const view = await ask("api/fleet/explain", { service, client });
    if (asked !== this.#asked) return;
    const content = view.error ? make("p", { class: "bad", dir: "auto" }, view.error) : answer(view);
    fill(byId("answer"), content);
  }
}

function answer(view) {
  const { groups, silent } = view;
  const parts = groups.map(({ gateways, explanation }, index) => {
    const who = make("h3", {}, index ? "On " : "As decided on ", name(names(gateways)));
    const whole = [headline(explanation), notes(explanation), explanation.frontend ? new EndpointTable(explanation).element : null];
    return index ? make("details", {}, make("summary", {}, "On ", name(names(gateways)), ", the client ", ...(explanation.frontend ? outcome(explanation) : ["is not served."])), whole) : make("div", {}, who, whole);
  });
  const mute = silent.map(({ node, error }) => make("li", { dir: "auto" }, name(node), ` does not answer: ${error}`));
  const differ = groups.length > 1 ? make("h3", {}, "Other gateways decide otherwise") : null;
  return [
    make("p", { class: groups.length ? "" : "bad", dir: "auto" }, arrival(view)),
    ...parts.slice(0, 1),
    differ,
    ...parts.slice(1),
    mute.length ? make("ul", { class: "notes" }, mute) : null,
  ].filter(Boolean);
}

/** Which gateway gets the client. */
function arrival({ groups, silent, comesTo, knownBy, owners }) {
  if (!groups.length) return "No gateway answers.";
  const [{ explanation: shown, gateways }] = groups;
  const mute = silent.map(({ node }) => node);
  if (!shown.frontend) return `No gateway${mute.length ? " that answers" : ""} serves ${shown.service}.`;
  const does = (nodes) => (nodes.length > 1 ? "do" : "does");
  if (comesTo.some((node) => mute.includes(node))) {
    const announce = comesTo.length > 1 ? "announce" : "announces";
    const whose = knownBy === "announced" ? `${names(comesTo)} ${announce} this address` : `The address belongs to ${names(comesTo)}`;
    return `${whose}, but ${knownBy === "announced" ? "" : `${names(comesTo)} `}${does(comesTo)} not answer.`;
  }
  if (knownBy === "announced" && !comesTo.length) {
    if (owners.length) return `The address belongs to ${names(owners)}, which ${does(owners)} not announce it at the moment.`;
    if (mute.length) return `No gateway that answers announces this address; ${names(mute)} ${does(mute)} not answer, and may announce it.`;
    return "No gateway announces this address: no gateway receives its packets.";
  }
  if (knownBy === "announced" && comesTo.length > 1) return `${names(comesTo)} announce this address, and routers choose among them.`;
  if (knownBy === "announced") return `${comesTo[0]} announces this address, so the client comes there.`;
  if (knownBy) return `The address belongs to ${names(comesTo)}, so the client reaches it there.`;
  return groups.length > 1 ? "Any gateway may get the client, and they differ." : `Any of ${count(gateways.length)} gateways may get the client; they do the same.`;
}
