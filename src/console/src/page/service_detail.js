// What is below an expanded row: why, where it is reached, its clusters, and each endpoint with its state and the reason.

import { fill, make, name, setText, table } from "./dom.js";
import { count, counted } from "./format.js";

/** Endpoints that are listed; `sheave explain` has all. */
const LISTED = 200;

export class Detail {
  #service = null;
  #frontend = null;
  #asked = 0;

  /** `explain(service, frontend)` is called for a person who wants a client's decision. */
  constructor(service, explain) {
    this.explain = explain;
    this.element = make("div", { class: "inside" });
    this.head = make("div");
    this.endpoints = make("div", { class: "endpoints-list", "aria-live": "off" }, make("p", { class: "muted" }, "Loading"));
    this.dropped = make("p", { class: "muted", hidden: true });
    this.element.append(this.head, this.endpoints, this.dropped);
    this.update(service);
  }

  /** Shows what there is to know now. */
  update(service) {
    if (this.#service === service) return;
    this.#service = service;
    if (!service.frontends.includes(this.#frontend)) this.#frontend = service.frontends[0] ?? null;
    const why = service.why ? make("p", { class: `why ${service.state}`, dir: "auto" }, service.why) : null;
    fill(this.head, why, this.#places(service), clusters(service.clusters));
    this.#load();
  }

  /** Shows what the kernel has dropped. */
  takeCounts({ kernelDroppedPackets = 0 }) {
    this.dropped.hidden = !kernelDroppedPackets;
    const packets = counted(kernelDroppedPackets, "packet");
    setText(this.dropped, `${packets} dropped by the kernel so far: from clients that source ranges leave out, or because a queue was full.`);
  }

  #places(service) {
    const button = make("button", { type: "button" }, "Explain for a client");
    button.addEventListener("click", () => this.explain(service, this.#frontend));
    if (!service.frontends.length) return make("p", {}, "It has no address. ", button);
    const owners = service.owners?.length ? make("span", {}, "announced by ", ...names(service.owners)) : null;
    if (service.frontends.length === 1) return make("p", { class: "places" }, name(this.#frontend), owners, button);
    const select = make("select", { "aria-label": "Frontend" });
    select.append(...service.frontends.map((it) => make("option", { value: it, selected: it === this.#frontend }, it)));
    select.addEventListener("change", () => {
      this.#frontend = select.value;
      this.#load();
    });
    return make("p", { class: "places" }, select, owners, button);
  }

  async #load() {
    const asked = ++this.#asked;
    const view = await explain(this.#service.service, this.#service.source, this.#frontend, "");
    // Another answer may be on its way since.
    if (asked !== this.#asked) return;
    if (view.error) fill(this.endpoints, make("p", { class: "bad" }, view.error));
    else fill(this.endpoints, view.frontend ? endpointTable(view) : null, notes(view));
  }
}

/** Asks the gateway; the answer, or `{ error }`. */
export async function explain(service, source, frontend, client) {
  const [namespace, name, ...listener] = service.split("/");
  const query = new URLSearchParams({ service: `${namespace}/${name}` });
  if (source === "MultiClusterService") query.set("multiCluster", "true");
  if (source === "Gateway") query.set("kind", "gateway");
  if (listener.length) query.set("listener", listener.join("/"));
  const place = /^\[?(.*?)\]?:(\d+)\/(\w+)$/.exec(frontend ?? "");
  if (place) ["address", "port", "protocol"].forEach((key, index) => query.set(key, place[index + 1]));
  return ask("api/explain", { ...Object.fromEntries(query), client });
}

/** The answer to a question, or why there is none; what is empty is not asked. */
export async function ask(path, question) {
  const query = new URLSearchParams(Object.entries(question).filter(([, value]) => value));
  try {
    const response = await fetch(`${path}?${query}`);
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.startsWith("application/json");
    return isJson ? JSON.parse(text) : { error: text.trim() };
  } catch {
    return { error: "The gateway does not answer." };
  }
}

/** Every endpoint of an answer, and what becomes of it. */
export function endpointTable({ endpoints, allEndpoints }) {
  const total = allEndpoints?.count ?? endpoints.length;
  if (!endpoints.length) return make("p", { class: "muted" }, total ? `It has ${counted(total, "endpoint")}, which the gateway itself lists.` : "It has no endpoints.");
  const several = endpoints.some(({ cluster }) => cluster);
  const heads = ["Endpoint", "State", several ? "Cluster" : null, "Node", "Zone", "Used", "Why"];
  const rows = endpoints.slice(0, LISTED).map((it) => [
    name(it.address || "–"),
    make("span", { class: it.unhealthy ? "bad" : it.state === "Ready" && it.used ? "ok" : "dim" }, it.unhealthy ? `${it.state}, unhealthy` : it.state),
    several ? name(it.cluster || "–") : null,
    make("span", {}, name(it.node || "–"), it.local ? make("span", { class: "muted" }, " (here)") : null),
    name(it.zone || "–"),
    it.used ? (it.share == null ? "yes" : `${it.share} %`) : "no",
    make("span", { dir: "auto" }, it.reason),
  ]);
  const kept = (cells) => cells.filter((_, column) => heads[column] !== null);
  const left = total - Math.min(endpoints.length, LISTED);
  return make(
    "div",
    {},
    table("Endpoints", kept(heads), rows.map(kept)),
    left > 0 ? make("p", { class: "muted" }, `and ${counted(left, "more endpoint")}`) : null,
  );
}

function clusters(all) {
  if (all.length < 2) return null;
  const rows = all.map(({ cluster, serving, unhealthy = 0, of, share }) => [
    name(cluster),
    `${count(serving - unhealthy)}/${count(of)}`,
    unhealthy ? count(unhealthy) : "–",
    meter(share),
  ]);
  return table("Clusters", ["Cluster", "Healthy", "Unhealthy", "Share of traffic"], rows, [1, 2]);
}

function meter(share) {
  const bar = make("i");
  bar.style.width = `${share}%`;
  return make("span", { class: "meter" }, make("span", { "aria-hidden": "true" }, bar), `${share} %`);
}

/** What decides besides endpoints, as a list. */
export function notes({ reasons, endpoints, closed }) {
  // Those of endpoints are in their table.
  const isTabled = (reason) => endpoints.some((it) => reason.startsWith(`${it.address} (`) && reason.endsWith(`: ${it.reason}`));
  const all = [...(closed ? [closed] : []), ...reasons.filter((reason) => !isTabled(reason))];
  return make("ul", { class: "notes" }, all.map((reason) => make("li", { dir: "auto" }, reason)));
}

function names(all) {
  return all.flatMap((text, index) => (index ? [", ", name(text)] : [name(text)]));
}
