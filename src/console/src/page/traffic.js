// Rates: what counters differ by, of all Services together and of those in sight.

import { fill, make, setText, sparkline } from "./dom.js";
import { bytes, count, rate } from "./format.js";
import { SAMPLES } from "./row.js";

/** Services whose past is kept. */
const REMEMBERED = 500;

/** The rates between moments that follow each other. */
function between(before, now, milliseconds) {
  const seconds = milliseconds / 1000;
  const per = (key) => Math.max(0, (now[key] - before[key]) / seconds);
  const [toClients, toEndpoints] = [per("endpointBytes"), per("clientBytes")];
  return { opened: per("opened"), errors: per("errors"), toClients, toEndpoints, bytes: toClients + toEndpoints };
}

/** The rates of the rows in sight, by key. */
export class RowTraffic {
  #past = new Map();
  #asking = false;

  rates(key) {
    return this.#past.get(key)?.rates ?? [];
  }

  /** The newest counters of a Service, if there are any. */
  counts(key) {
    return this.#past.get(key)?.counts;
  }

  /** Asks for the counters of these Services, unless an answer is still on its way. */
  async refresh(services) {
    if (this.#asking || !services.length) return;
    this.#asking = true;
    try {
      const of = (source) =>
        services.filter((it) => it.source === source).map(({ service }) => service).filter(isPlain).slice(0, 100).join(",");
      const query = new URLSearchParams({ services: of("Service"), multiClusterServices: of("MultiClusterService"), listeners: of("Gateway") });
      const response = await fetch(`api/traffic?${query}`);
      if (response.ok) this.#take(await response.json());
    } catch {
      // The stream says that the gateway is away.
    } finally {
      this.#asking = false;
    }
  }

  #take({ uptimeMilliseconds: at, services = [] }) {
    for (const counts of services) {
      const key = `${counts.source} ${counts.service}`;
      const past = this.#past.get(key);
      const elapsed = past ? at - past.at : 0;
      // After a while out of sight, or a restart, there is nothing to compare with. What a frontend had at another Service is no traffic here.
      const same = String(past?.counts.frontends) === String(counts.frontends);
      const follows = same && elapsed > 0 && elapsed < 5000;
      const rates = follows ? [...past.rates, between(past.counts, counts, elapsed)].slice(-SAMPLES) : [];
      this.#past.delete(key);
      this.#past.set(key, { at, counts, rates });
    }
    for (const key of this.#past.keys()) {
      if (this.#past.size <= REMEMBERED) break;
      this.#past.delete(key);
    }
  }
}

/** The gateway takes plain names alone; objects of manifests may have others, which are not served. */
const isPlain = (service) => /^[A-Za-z0-9.-]+(\/[A-Za-z0-9.-]+)+$/.test(service);

/** All Services together: a tile for each rate. */
export class TotalTraffic {
  #past = [];
  #tiles;

  constructor(box) {
    this.#tiles = [
      tile("Connections", ({ opened }) => opened, (value) => `${rate(value)}/s`),
      tile("To clients", ({ toClients }) => toClients, (value) => `${bytes(value)}/s`),
      tile("To endpoints", ({ toEndpoints }) => toEndpoints, (value) => `${bytes(value)}/s`),
      tile("Errors", ({ errors }) => errors, (value) => `${rate(value)}/s`),
    ];
    fill(box, this.#tiles.map(({ element }) => element));
  }

  /** Takes the moments before the page was opened. */
  restart(moments) {
    this.#past = moments;
    this.#draw();
  }

  /** Takes the counters of one more moment. */
  take(moment) {
    const last = this.#past.at(-1);
    if (last && moment.uptimeMilliseconds < last.uptimeMilliseconds) this.#past = [];
    this.#past = [...this.#past, moment].slice(-SAMPLES - 1);
    this.#draw();
  }

  #draw() {
    const rates = [];
    for (let index = 1; index < this.#past.length; index += 1) {
      const [before, now] = [this.#past[index - 1], this.#past[index]];
      const elapsed = now.uptimeMilliseconds - before.uptimeMilliseconds;
      if (elapsed > 0) rates.push(between(before.total, now.total, elapsed));
    }
    const total = this.#past.at(-1)?.total;
    this.#tiles.forEach((tile) => tile.draw(rates));
    const [connections, toClients, toEndpoints, errors] = this.#tiles;
    connections.note(total ? `${count(total.open)} open` : "");
    toClients.note(total ? `${bytes(total.endpointBytes)} in total` : "");
    toEndpoints.note(total ? `${bytes(total.clientBytes)} in total` : "");
    errors.note(total ? `${count(total.errors)} in total` : "");
  }
}

function tile(title, pick, show) {
  const value = make("b", {}, "–");
  const note = make("span", { class: "muted" });
  const spark = sparkline(240, 40);
  const element = make("div", { class: "tile" }, make("h3", {}, title), value, note, spark.svg);
  const draw = (rates) => {
    setText(value, rates.length ? show(pick(rates.at(-1))) : "–");
    spark.draw(rates.map(pick), SAMPLES);
  };
  return { element, draw, note: (text) => setText(note, text) };
}
