// What is below an expanded row: why, the way of a connection, its traffic, who gets what, each endpoint with its state and the reason, and
// what changed.

import { ask, isPlain, pastOf, question } from "./ask.js";
import { Events } from "./events.js";
import { fill, make, name, setText } from "./dom.js";
import { counted } from "./format.js";
import { ClusterTable, EndpointTable, basis, notes } from "./shares.js";
import { Strip } from "./strip.js";
import { Tiles, withTiles } from "./tiles.js";

/** How far back its events are shown, in seconds. */
const PAST = 86_400;

export class Detail {
  #service = null;
  #frontend = null;
  #asked = 0;
  #view = null;
  #rates = [];
  #counts = null;
  #measured = null;
  #clusters = null;
  #endpoints = null;

  /** `explain(service, frontend)` and `trace(service, frontend)` are called for a person who wants a client's decision, or its way. */
  constructor(service, { explain, trace }) {
    Object.assign(this, { explain, trace });
    this.head = make("div");
    this.strip = new Strip();
    this.tiles = new Tiles();
    this.past = make("div");
    withTiles(this.past, this.tiles, make("h3", {}, "Traffic"));
    this.clusters = make("div");
    this.basis = make("p", { class: "muted", "aria-live": "off" });
    this.endpoints = make("div", { class: "endpoints-list", "aria-live": "off" }, make("p", { class: "muted" }, "Loading"));
    this.dropped = make("p", { class: "muted", hidden: true });
    this.events = new Events();
    const changes = make("div", {}, make("h3", {}, "What changed"), this.events.element);
    const shares = [this.clusters, this.basis, this.endpoints, this.dropped];
    this.element = make("div", { class: "inside" }, this.head, this.strip.element, this.past, shares, changes);
    this.update(service);
  }

  /** Shows what there is to know now. */
  update(service) {
    if (this.#service === service) return;
    this.#service = service;
    if (!service.frontends.includes(this.#frontend)) this.#frontend = service.frontends[0] ?? null;
    const why = service.why ? make("p", { class: `why ${service.state}`, dir: "auto" }, service.why) : null;
    fill(this.head, why, this.#places(service));
    this.#clusters = service.clusters.length > 1 ? new ClusterTable(service.clusters) : null;
    fill(this.clusters, this.#clusters?.element);
    this.#draw();
    this.#load();
  }

  /** Shows the rates of the last seconds, the newest counters, and what the kernel has dropped. */
  takeLive(rates, counts) {
    [this.#rates, this.#counts] = [rates, counts ?? null];
    this.tiles.takeLive(rates, counts);
    const dropped = counts?.kernelDroppedPackets ?? 0;
    this.dropped.hidden = !dropped;
    const packets = counted(dropped, "packet");
    setText(this.dropped, `${packets} dropped by the kernel so far: from clients that source ranges leave out, or because a queue was full.`);
    this.#draw();
  }

  /** Shows the measured shares. */
  takeMeasured(measured) {
    this.#measured = measured;
    this.#draw();
  }

  /** Asks for what the gateway remembers. */
  async loadPast() {
    const service = this.#service;
    const past = pastOf(service);
    const [history, events] = await Promise.all([past ? ask("api/history", past) : null, this.#askEvents(service)]);
    if (history && !history.error) this.tiles.takeHistory(history);
    this.events.take(events);
    this.tiles.takeMarks(this.events.times);
  }

  async #askEvents({ service, source }) {
    if (!isPlain(service)) return [];
    const [namespace, own] = service.split("/");
    const { events = [] } = await ask("api/events", { service: `${namespace}/${own}`, since: PAST });
    // What concerns the whole Gateway concerns its listeners.
    const isIts = (it) => it.source === source && (it.service === service || service.startsWith(`${it.service}/`));
    return events.filter((it) => !it.service || isIts(it));
  }

  #draw() {
    const measured = this.#measured;
    const rates = this.#rates.at(-1) ?? null;
    this.strip.update({ service: this.#service, frontend: this.#frontend, view: this.#view, rates, counts: this.#counts, measured });
    setText(this.basis, measured ? basis(measured) : "");
    if (!measured) return;
    this.#clusters?.update(measured);
    this.#endpoints?.update(measured);
  }

  #places(service) {
    const button = (text, act) => {
      const made = make("button", { type: "button" }, text);
      made.addEventListener("click", () => act(service, this.#frontend));
      return made;
    };
    const explain = button("Explain for a client", this.explain);
    const trace = button("Trace a client", this.trace);
    if (!service.frontends.length) return make("p", { class: "places" }, "It has no address. ", explain, trace);
    const owners = service.owners?.length ? make("span", {}, "announced by ", ...names(service.owners)) : null;
    if (service.frontends.length === 1) return make("p", { class: "places" }, name(this.#frontend), owners, explain, trace);
    const select = make("select", { "aria-label": "Frontend" });
    select.append(...service.frontends.map((it) => make("option", { value: it, selected: it === this.#frontend }, it)));
    select.addEventListener("change", () => {
      this.#frontend = select.value;
      this.#load();
    });
    return make("p", { class: "places" }, select, owners, explain, trace);
  }

  async #load() {
    const asked = ++this.#asked;
    const view = await ask("api/explain", question(this.#service.service, this.#service.source, this.#frontend, ""));
    // Another answer may be on its way since.
    if (asked !== this.#asked) return;
    this.#view = view.error ? null : view;
    this.#endpoints = view.error || !view.frontend ? null : new EndpointTable(view, true);
    if (view.error) fill(this.endpoints, make("p", { class: "bad" }, view.error));
    else fill(this.endpoints, this.#endpoints?.element, notes(view));
    this.#draw();
  }
}

function names(all) {
  return all.flatMap((text, index) => (index ? [", ", name(text)] : [name(text)]));
}
