// The Services: what the stream says of them, which of them are searched for, and the list.

import { byId, make, setText } from "./dom.js";
import { count, counted } from "./format.js";
import { VirtualList } from "./list.js";
import * as row from "./row.js";
import { Detail } from "./service_detail.js";
import { RowTraffic } from "./traffic.js";

const STATES = ["broken", "degraded", "ok"];

/** A key is `Service shop/web`, as Problems name objects. */
const keyOf = ({ source, service }) => `${source} ${service}`;

export class Services {
  #all = new Map();
  #sorted = null;
  #state = "all";
  #counts = { broken: 0, degraded: 0, ok: 0 };
  #more = 0;
  #isAsked = false;
  #details = new Map();
  #traffic = new RowTraffic();

  /**
   * `explain(service)` is called for a Service that a person asks about, `changed()` when what is searched for has; `unreadable()` gives
   * the names of files that may have further ones.
   */
  constructor({ explain, changed, unreadable }) {
    Object.assign(this, { explain, changed, unreadable });
    this.search = byId("search");
    this.list = new VirtualList(byId("scroller"), byId("rows"), {
      create: () => row.create((key) => this.list.toggle(key)),
      update: (key, made) => {
        row.update(made, key, this.#all.get(key));
        row.updateTraffic(made, this.#traffic.rates(key));
      },
      detail: (key) => this.#open(key),
      folded: (key) => this.#details.delete(key),
    });
    this.search.addEventListener("input", () => this.#filter());
    this.search.addEventListener("keydown", (event) => this.#leaveSearch(event));
    this.#drawStates();
  }

  /** What the page's address keeps. */
  get query() {
    return { search: this.search.value, state: this.#state === "all" ? "" : this.#state };
  }

  restore({ search = "", state = "" }) {
    this.search.value = search;
    this.#choose(STATES.includes(state) ? state : "all");
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
  }

  takeCounts(counts) {
    this.#counts = counts;
    this.#drawStates();
  }

  /** Asks for the counters of the rows in sight. */
  async refreshTraffic() {
    const shown = this.list.shown.filter((key) => this.#all.has(key));
    await this.#traffic.refresh(shown.map((key) => this.#all.get(key)));
    for (const key of this.list.shown) {
      this.list.with(key, (made) => row.updateTraffic(made, this.#traffic.rates(key)));
    }
    for (const [key, detail] of this.#details) detail.takeCounts(this.#traffic.counts(key) ?? {});
  }

  /** Brings one Service into sight and opens it. */
  reveal(key) {
    if (!this.#all.has(key)) return;
    if (!this.list.has(key)) {
      this.search.value = "";
      this.#choose("all");
    }
    if (!this.list.isExpanded(key)) this.list.toggle(key);
    byId("services").scrollIntoView({ block: "start" });
    this.list.focus(key);
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
    const detail = new Detail(this.#all.get(key), this.explain);
    this.#details.set(key, detail);
    return detail.element;
  }

  /** The worst first, then by name. */
  get #order() {
    this.#sorted ??= [...this.#all]
      .sort(([, one], [, other]) => rank(one) - rank(other) || (keyName(one) < keyName(other) ? -1 : 1))
      .map(([key]) => key);
    return this.#sorted;
  }

  #filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (key) => {
      const service = this.#all.get(key);
      return (this.#state === "all" || service.state === this.#state) && words.every((word) => service.words.includes(word));
    };
    const found = words.length || this.#state !== "all" ? this.#order.filter(fits) : this.#order;
    this.list.show(found);
    const several = [...this.#all.values()].some(({ clusters }) => clusters.length > 1);
    const owned = [...this.#all.values()].some(({ owners }) => owners?.length);
    byId("list").classList.toggle("one-cluster", !several);
    byId("list").classList.toggle("no-owners", !owned);
    const asked = words.length > 0 || this.#state !== "all";
    setText(byId("matches"), asked ? `${counted(found.length, "match", "matches")}` : this.#more ? "loading" : "");
    byId("no-rows").hidden = found.length > 0;
    this.#isAsked = asked;
    this.sayNone();
    this.changed();
  }

  /** Says why no row is shown, if none is. */
  sayNone() {
    const files = this.unreadable();
    const more = files.length ? ` A file that cannot be read may have more: ${files.join(", ")}.` : "";
    const none = this.#isAsked ? "No Service matches." : "No Services. Create one of type LoadBalancer with loadBalancerClass sheave.dev/l4.";
    setText(byId("no-rows"), none + more);
  }

  #choose(state) {
    this.#state = state;
    this.#drawStates();
    this.#filter();
  }

  #drawStates() {
    const box = byId("states");
    const counts = this.#counts;
    const all = STATES.reduce((sum, state) => sum + counts[state], 0);
    if (box.children.length === 1) {
      for (const state of ["all", ...STATES]) {
        const input = make("input", { type: "radio", name: "state", value: state, class: "hidden" });
        input.addEventListener("change", () => this.#choose(state));
        box.append(make("label", { class: state }, input, make("span", {}, `${state} `, make("b"))));
      }
    }
    for (const input of box.querySelectorAll("input")) {
      input.checked = input.value === this.#state;
      setText(input.parentElement.querySelector("b"), count(input.value === "all" ? all : counts[input.value]));
    }
  }

  #leaveSearch(event) {
    if (event.key === "Escape" && this.search.value) {
      event.preventDefault();
      this.search.value = "";
      this.#filter();
    } else if ((event.key === "ArrowDown" || event.key === "Enter") && this.list.shown.length) {
      event.preventDefault();
      this.list.focus(this.list.shown[0]);
    }
  }
}

// What is served elsewhere alone comes before what is simply well.
const rank = ({ state, elsewhere }) => 2 * STATES.indexOf(state) - (elsewhere ? 1 : 0);
const keyName = ({ service, source }) => `${service} ${source}`;
