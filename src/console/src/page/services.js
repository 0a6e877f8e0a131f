// The Services: what the stream says of them, which of them are looked for, in which order, and the list.

import { repeat } from "./ask.js";
import { EndpointShares, ServiceRates } from "./counters.js";
import { byId, setText } from "./dom.js";
import { Filters, STATES } from "./filters.js";
import { counted } from "./format.js";
import { VirtualList } from "./list.js";
import { Order } from "./order.js";
import * as row from "./row.js";
import { Detail } from "./service_detail.js";
import { RowTraffic } from "./traffic.js";

/** A key is `Service shop/web`, as Problems name objects. */
const keyOf = ({ source, service }) => `${source} ${service}`;
/** Counters of all Services come once a second; rows that move as often cannot be read. */
const SORTED_EVERY = 5;

export class Services {
  #all = new Map();
  #sorted = null;
  #more = 0;
  #details = new Map();
  #traffic = new RowTraffic();
  #rates = new ServiceRates();
  #shares = new EndpointShares();
  #ticks = 0;

  /**
   * `explain(service, frontend)` and `trace(service, frontend)` are called for a Service that a person asks about, `changed()` when what
   * is looked for has, `needs(kinds)` for the kinds of counters that the stream has to bring; `unreadable()` gives the names of files
   * that may have further Services.
   */
  constructor({ explain, trace, changed, needs, unreadable }) {
    Object.assign(this, { explain, trace, changed, needs, unreadable });
    this.filters = new Filters({ changed: () => this.#filter(), leave: () => this.#enter() });
    this.order = new Order(byId("list").tHead, byId("order"), () => {
      this.#sorted = null;
      this.#filter();
      this.#need();
    });
    this.list = new VirtualList(byId("list"), byId("rows"), {
      create: () => row.create((key) => this.list.toggle(key)),
      update: (key, made) => {
        row.update(made, key, this.#all.get(key));
        row.updateTraffic(made, this.#traffic.rates(key));
      },
      detail: (key) => this.#open(key),
      folded: (key) => this.#fold(key),
    });
    // What the gateway remembers of Services that are open.
    repeat(() => Promise.all([...this.#details.values()].map((detail) => detail.loadPast())));
  }

  /** What the page's address keeps. */
  get query() {
    return { ...this.filters.query, ...this.order.query };
  }

  restore(query) {
    this.filters.restore(query);
    this.order.restore(query);
    this.#sorted = null;
    this.#filter();
    this.#need();
  }

  /** Takes an event of the stream in. */
  take({ reset, rows, removed, more }) {
    if (reset) this.#all.clear();
    for (const gone of removed) this.#all.delete(keyOf(gone));
    for (const service of rows) {
      const words = [service.service, service.source, service.why ?? "", ...service.frontends, ...(service.owners ?? [])];
      words.push(...service.clusters.map(({ cluster }) => cluster));
      service.words = words.join("\n").toLowerCase();
      this.#all.set(keyOf(service), service);
    }
    this.#more = more;
    this.#sorted = null;
    for (const [key, detail] of this.#details) {
      if (this.#all.has(key)) detail.update(this.#all.get(key));
    }
    // The first rows are shown at once, the others when all have come.
    if (reset || !more) this.#filter();
    if (!more) this.filters.offer(this.#all.values());
  }

  takeCounts(counts) {
    this.filters.takeCounts(counts);
  }

  /** Takes the counters of all Services. */
  takeServiceTraffic(event) {
    this.#rates.take(event);
    this.#ticks = event.reset ? 0 : this.#ticks + 1;
    if (!this.order.isByRate || this.#ticks % SORTED_EVERY !== 1) return;
    this.#sorted = null;
    this.#show();
  }

  /** Takes the counters of all endpoints. */
  takeEndpointTraffic(event) {
    this.#shares.take(event);
    for (const [key, detail] of this.#details) detail.takeMeasured(this.#shares.measured(key));
  }

  /** Asks for the counters of the rows in sight. */
  async refreshTraffic() {
    const open = [...this.#details.keys()];
    const shown = [...new Set([...open, ...this.list.shown])].filter((key) => this.#all.has(key));
    await this.#traffic.refresh(shown.map((key) => this.#all.get(key)));
    for (const key of this.list.shown) {
      this.list.with(key, (made) => row.updateTraffic(made, this.#traffic.rates(key)));
    }
    for (const [key, detail] of this.#details) detail.takeLive(this.#traffic.rates(key), this.#traffic.counts(key));
  }

  /** Brings one Service into sight and opens it. */
  reveal(key) {
    if (!this.#all.has(key)) return;
    if (!this.list.has(key)) {
      this.filters.clear();
    }
    if (!this.list.isExpanded(key)) this.list.toggle(key);
    this.list.focus(key, "start");
  }

  /** Names for the box that asks for one. */
  suggestions(text, most) {
    const wanted = text.toLowerCase();
    const found = [];
    for (const { service } of this.#all.values()) {
      if (service.toLowerCase().includes(wanted) && found.push(service) === most) break;
    }
    return found;
  }

  /** The Service, and the frontend if it says so, that an address or the end of a name means; null if that is none, or several. */
  find(text) {
    if (!text || text.includes("/")) {
      const [, place, protocol] = /^(.*:\d+)\/(tcp|udp)$/i.exec(text ?? "") ?? [];
      if (!place) return null;
      text = `${place}/${protocol.toUpperCase()}`;
    }
    const found = [];
    // IPv6 in capitals.
    const at = text.replace(/^[^/]+/, (address) => address.toLowerCase());
    for (const { service, frontends } of this.#all.values()) {
      const frontend = frontends.find((it) => it === at || it.startsWith(`${at}/`) || row.addressOf(it) === at);
      if (frontend) found.push({ service, frontend });
      else if (service.slice(service.indexOf("/") + 1) === text) found.push({ service, frontend: frontends[0] ?? "" });
    }
    return new Set(found.map(({ service }) => service)).size === 1 ? found[0] : null;
  }

  frontends(service) {
    return [...this.#all.values()].filter((it) => it.service === service).flatMap(({ frontends }) => frontends);
  }

  #open(key) {
    const detail = new Detail(this.#all.get(key), { explain: this.explain, trace: this.trace });
    this.#details.set(key, detail);
    this.#shares.follow(key);
    detail.takeLive(this.#traffic.rates(key), this.#traffic.counts(key));
    detail.loadPast();
    this.#need();
    return detail.element;
  }

  #fold(key) {
    this.#details.delete(key);
    this.#shares.forget(key);
    this.#need();
  }

  /** Asks the stream for the counters that are needed now. */
  #need() {
    this.needs([...(this.order.isByRate ? ["services"] : []), ...(this.#shares.isNeeded ? ["endpoints"] : [])]);
  }

  get #order() {
    this.#sorted ??= this.order.sort([...this.#all.keys()], (key) => {
      const service = this.#all.get(key);
      const [healthy, of] = row.endpoints(service);
      return { service, name: keyName(service), rank: rank(service), healthy: of ? healthy / of : -1, rates: this.#rates.of(key) };
    });
    return this.#sorted;
  }

  #filter() {
    const found = this.#show();
    const several = [...this.#all.values()].some(({ clusters }) => clusters.length > 1);
    const owned = [...this.#all.values()].some(({ owners }) => owners?.length);
    byId("list").classList.toggle("one-cluster", !several);
    byId("list").classList.toggle("no-owners", !owned);
    setText(byId("matches"), this.filters.isAsked ? counted(found, "match", "matches") : this.#more ? "loading" : "");
    byId("no-rows").hidden = found > 0;
    this.sayNone();
    this.changed();
  }

  /** Shows those that are looked for; gives how many there are. */
  #show() {
    const test = this.filters.test();
    const found = this.filters.isAsked ? this.#order.filter((key) => test(this.#all.get(key))) : this.#order;
    this.list.show(found);
    return found.length;
  }

  /** Goes from the search to the first row. */
  #enter() {
    return this.list.focusFirst();
  }

  /** Says why no row is shown, if none is. */
  sayNone() {
    const files = this.unreadable();
    const more = files.length ? ` A file that cannot be read may have more: ${files.join(", ")}.` : "";
    const none = this.filters.isAsked ? "No Service matches." : "No Services. Create one of type LoadBalancer with loadBalancerClass sheave.dev/l4.";
    setText(byId("no-rows"), none + more);
  }
}

// What is served elsewhere alone comes before what is simply well.
const rank = ({ state, elsewhere }) => 2 * STATES.indexOf(state) - (elsewhere ? 1 : 0);
const keyName = ({ service, source }) => `${service} ${source}`;
