// Rates: what counters differ by, of all Services together and of those in sight.

import { ask, isPlain, repeat } from "./ask.js";
import { byId, fill } from "./dom.js";
import { Events } from "./events.js";
import { SAMPLES, Tiles } from "./tiles.js";

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

/** How far back events are shown, and how far back they are asked for again, lest one is missed. */
const PAST = 3600;
const AGAIN = 30;

/** All Services together: a tile for each rate, and what changed. */
export class TotalTraffic {
  #past = [];
  #asked = 0;

  /** `reveal(key)` shows a Service by the name of its object. */
  constructor({ reveal }) {
    this.tiles = new Tiles();
    this.events = new Events({ reveal });
    byId("traffic-title").after(this.tiles.spans);
    fill(byId("tiles"), this.tiles.element);
    fill(byId("changes"), this.events.element);
    repeat(() => Promise.all([this.#loadHistory(), this.#loadEvents()]));
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

  async #loadHistory() {
    const history = await ask("api/history");
    if (!history.error) this.tiles.takeHistory(history);
  }

  async #loadEvents() {
    const now = Date.now();
    const since = this.#asked ? AGAIN + Math.ceil((now - this.#asked) / 1000) : PAST;
    const answer = await ask("api/events", { since });
    if (answer.error) return;
    this.#asked = now;
    this.events.add(answer.events);
    this.tiles.takeMarks(this.events.times);
  }

  #draw() {
    const rates = [];
    for (let index = 1; index < this.#past.length; index += 1) {
      const [before, now] = [this.#past[index - 1], this.#past[index]];
      const elapsed = now.uptimeMilliseconds - before.uptimeMilliseconds;
      if (elapsed > 0) rates.push(between(before.total, now.total, elapsed));
    }
    this.tiles.takeLive(rates, this.#past.at(-1)?.total);
  }
}
