// The box that explains where a client goes, and traces where its packets stop. The page's address keeps the question, so that it can be shared.

import { ask, question } from "./ask.js";
import { byId, fill, make, name } from "./dom.js";
import { counted } from "./format.js";
import { EndpointTable, notes } from "./shares.js";
import { trace } from "./trace.js";

const SUGGESTED = 30;
/** Seconds of a capture. */
const CAPTURED = 10;

export class Explain {
  #asked = 0;

  /**
   * `suggestions(text, most)` names Services, `frontends(service)` where one is reached, `find(text)` the Service that an address or a
   * part of a name means; `changed()` is called for a new question.
   */
  constructor({ suggestions, frontends, find, changed }) {
    Object.assign(this, { suggestions, frontends, find, changed });
    this.form = byId("question");
    this.service = byId("asked");
    this.service.addEventListener("input", () => this.#suggest());
    this.button = byId("trace");
    this.capture = byId("capture");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (event.submitter === this.button) this.#trace();
      else if (event.submitter === this.capture) this.#trace(CAPTURED);
      else this.ask();
    });
    this.form.frontend.addEventListener("change", () => this.ask());
  }

  /** The question that was asked last, for the page's address to keep. */
  query = {};

  /** What is in the fields. */
  get #typed() {
    const [service, client, frontend] = ["explain", "client", "frontend"].map((key) => this.form.elements[key].value.trim());
    return { explain: service, client: service && client, frontend: service && frontend };
  }

  /** Asks what the address of the page asks. */
  restore({ explain: service = "", client = "", frontend = "" }) {
    this.service.value = service;
    this.form.client.value = client;
    if (!service) {
      this.query = {};
      this.#asked += 1;
      fill(byId("answer"));
      return;
    }
    this.#offer(frontend ? [frontend] : [], frontend);
    this.ask().then((isShown) => isShown && byId("explain").scrollIntoView({ block: "start" }));
  }

  /** Asks about a Service that a person chose. */
  about(service, frontend) {
    this.#choose(service, frontend);
    this.ask();
  }

  /** Traces a client of a Service that a person chose, once the client is known. */
  traceTo(service, frontend) {
    this.#choose(service, frontend);
    if (this.#typed.client) this.#trace();
    else fill(byId("answer"), make("p", {}, "Which client does not get through? Type its address, then Trace."));
  }

  #choose({ service }, frontend) {
    this.service.value = service;
    this.#offer(this.frontends(service), frontend);
    byId("explain").scrollIntoView({ block: "start" });
    this.form.client.focus({ preventScroll: true });
  }

  /** The number of a new question about what is typed; null if that means no Service. */
  #begin() {
    const meant = this.find(this.#typed.explain);
    if (this.#typed.explain && !meant && !this.#typed.explain.includes("/")) {
      fill(byId("answer"), make("p", { class: "bad" }, `No Service has the name or the address ${this.#typed.explain}, or several have: write it as NAMESPACE/NAME.`));
      return null;
    }
    if (meant) {
      this.service.value = meant.service;
      this.#offer(this.frontends(meant.service), meant.frontend);
    }
    const { explain: service } = this.#typed;
    if (!service) return null;
    if (this.#chosen !== service) this.#offer([], "");
    this.query = this.#typed;
    this.changed();
    return ++this.#asked;
  }

  async #trace(seconds = 0) {
    const asked = this.#begin();
    if (asked === null) return;
    const { explain: service, client } = this.#typed;
    fill(byId("answer"), make("p", { class: "muted" }, `Tracing: this takes up to ${seconds || 3} s.`));
    const shown = await trace(service, "", this.form.frontend.value, client, seconds);
    if (asked === this.#asked) fill(byId("answer"), shown);
  }

  /** Whether the answer was shown, and no other question was asked meanwhile. */
  async ask() {
    const asked = this.#begin();
    if (asked === null) return false;
    const { explain: service, client } = this.#typed;
    const view = await ask("api/explain", question(service, "", this.form.frontend.value, client));
    if (asked !== this.#asked) return false;
    const answer = byId("answer");
    if (view.error) {
      fill(answer, make("p", { class: "bad", dir: "auto" }, view.error));
      return true;
    }
    if (view.frontend) this.#offer([view.frontend, ...view.otherFrontends], view.frontend);
    fill(answer, headline(view), notes(view), view.frontend ? new EndpointTable(view).element : null);
    return true;
  }

  /** The Service whose frontends are offered. */
  #chosen = "";

  #offer(frontends, chosen) {
    const { select, known } = { select: this.form.frontend, known: [...this.form.frontend.options].map(({ value }) => value) };
    const same = this.#chosen === this.service.value.trim();
    const all = [...new Set([...(same ? known : []), ...frontends])].filter(Boolean);
    this.#chosen = this.service.value.trim();
    select.replaceChildren(...all.map((it) => make("option", { value: it }, it)));
    select.value = chosen;
    byId("place").hidden = all.length < 2;
  }

  #suggest() {
    const names = this.suggestions(this.service.value.trim(), SUGGESTED);
    fill(byId("known"), names.map((it) => make("option", { value: it })));
  }
}

/** What becomes of the client, in one sentence. */
export function headline(view) {
  const { service, source, frontend, kind, portName, client, clientPort, origin } = view;
  if (!frontend) {
    return make("p", { class: "decision" }, `${source} `, name(service), ` is not served here${client ? ` for ${client}` : ""}.`);
  }
  const side = origin === "internal" ? "inside" : "outside";
  const who = client ? `${client}${clientPort ? `, port ${clientPort},` : ","} ${side} the cluster,` : `A client ${side} the cluster`;
  const port = portName ? [", port ", name(portName)] : [];
  return make(
    "div",
    {},
    make("p", { class: "decision" }, who, " ", ...outcome(view)),
    make("p", { class: "muted" }, `${source} `, name(service), ...port, `, on ${frontend} (${kind})`),
  );
}

/** As `sheave explain` puts it. */
export function outcome({ closed, allowed, action, endpoint, endpoints, allEndpoints, failing, refusing }) {
  if (closed) return ["is not served: the frontend is closed on this gateway."];
  if (!allowed) return ["may not use it: its packets are silently dropped."];
  if (action !== "Forward") return [action === "Reject" ? "is refused: no endpoint serves." : "is silently dropped."];
  const several = allEndpoints?.used ?? endpoints.filter(({ used }) => used).length;
  const where = endpoint ? ["goes to ", name(endpoint)] : [several === 1 ? "goes to the only endpoint" : `goes to one of ${counted(several, "endpoint")}`];
  const fails = !failing ? "" : endpoint || several === 1 ? ", which is unhealthy" : ", all of which are unhealthy";
  return [...where, fails, refusing ? `, but some new connections are being refused (${refusing})` : "", "."];
}
