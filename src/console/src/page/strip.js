// The way of a connection: clients, gateway, clusters and endpoints, with a sign and a word where it is interrupted.

import { fill, make, name } from "./dom.js";
import { count, counted, rate } from "./format.js";

/** Failing endpoints that are named. */
const NAMED = 3;

const SIGNS = { ok: "→", bad: "✕", idle: "·" };

/** A place on the way. */
function stop(title, ...lines) {
  const small = lines.flat().filter(Boolean).map((it) => make("small", { dir: "auto" }, it));
  return make("div", { class: "stop" }, make("b", {}, title), small);
}

/** From one place to the next. */
function edge(state, text) {
  return make("div", { class: `edge ${state}` }, make("small", {}, text), make("span", { "aria-hidden": "true" }, SIGNS[state]));
}

export class Strip {
  #drawn = null;

  constructor() {
    this.element = make("div", { class: "strip", role: "group", "aria-label": "Way of a connection" });
  }

  /**
   * Draws the way to a Service. `view` is the answer of `/api/explain` about `frontend`, `rates` are of now, `counts` the newest counters,
   * `measured` the measured shares; each may be missing.
   */
  update({ service, frontend, view, rates, counts, measured }) {
    const share = ({ cluster }) => (measured?.total ? Math.round((100 * measured.of(cluster).picks) / measured.total) : null);
    const failing = (view?.endpoints ?? []).filter((it) => it.unhealthy || it.state === "NotReady");
    const state = {
      place: frontend,
      closed: interruption(service, frontend, view),
      elsewhere: Boolean(service.elsewhere),
      opened: rates ? rate(rates.opened) : null,
      errors: rates && rates.errors > 0 ? rate(rates.errors) : "",
      open: counts?.open ?? null,
      clusters: service.clusters.map((it) => ({ ...it, measured: share(it) })),
      failing: failing.map((it) => [it.cluster, it.address, it.unhealthy ? "unhealthy" : "not ready"]),
    };
    const text = JSON.stringify(state);
    if (text === this.#drawn) return;
    this.#drawn = text;
    fill(this.element, way(state));
  }
}

/** What keeps clients from getting as far as the gateway's choice; empty if nothing does. */
function interruption({ state, clusters }, frontend, view) {
  if (!frontend) return "no address";
  if (view?.closed) return "closed here";
  const serves = clusters.some(({ serving, unhealthy = 0 }) => serving > unhealthy);
  return state === "broken" && serves ? "nobody gets through" : "";
}

function way({ place, closed, elsewhere, opened, errors, open, clusters, failing }) {
  const arriving = opened === null ? "" : `${opened}/s${errors ? `, ${errors}/s fail` : ""}`;
  const first = closed ? edge("bad", closed) : edge(errors ? "bad" : elsewhere ? "idle" : "ok", elsewhere ? "to other gateways" : arriving);
  const clients = stop("Clients", open === null ? null : `${count(open)} open`);
  const gateway = stop("This gateway", place ? name(place) : "not reached");
  const nowhere = () => make("div", { class: "branch" }, edge("bad", "nowhere to go"), stop("No endpoints"));
  const branches = clusters.length ? clusters.map((it) => branch(it, clusters.length > 1, failing)) : [nowhere()];
  return [clients, first, gateway, make("div", { class: "branches" }, branches)];
}

function branch({ cluster, serving, unhealthy = 0, of, share, measured }, several, failing) {
  const healthy = serving - unhealthy;
  const intended = several ? `${count(share)} %` : "";
  const really = several && measured !== null ? `measured ${count(measured)} %` : "";
  const shares = [intended, really].filter(Boolean).join(", ");
  const towards = !healthy ? edge("bad", [shares, "none is healthy"].filter(Boolean).join(", ")) : edge(share === 0 ? "idle" : "ok", shares);
  const worst = failing.filter(([its]) => !its || its === cluster);
  const waiting = of - serving;
  const wrong = [unhealthy ? `${counted(unhealthy, "fails", "fail")}` : "", waiting > 0 ? `${count(waiting)} not ready` : ""].filter(Boolean);
  const named = worst.slice(0, NAMED).map(([, address, why]) => [name(address), ` ${why}`]);
  const left = worst.length - NAMED;
  const lines = named.map((it) => make("span", {}, it));
  return make(
    "div",
    { class: "branch" },
    towards,
    stop(name(cluster || "Cluster")),
    edge(wrong.length ? "bad" : "ok", wrong.join(", ")),
    stop(`${count(healthy)} of ${counted(of, "endpoint")} healthy`, lines, left > 0 ? `and ${count(left)} more` : null),
  );
}
