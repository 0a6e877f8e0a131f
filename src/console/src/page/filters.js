// Which Services are looked for: words, a state, a namespace and a cluster.

import { byId, fill, make, setText } from "./dom.js";
import { count, visible } from "./format.js";

export const STATES = ["broken", "degraded", "ok"];

export class Filters {
  #state = "all";
  #counts = { broken: 0, degraded: 0, ok: 0 };
  #offered = {};
  /** What an address asked for before the Services came. */
  #wanted = {};

  /** `changed()` is called when something else is looked for, `leave()` when the keyboard goes on to the list. */
  constructor({ changed, leave }) {
    Object.assign(this, { changed, leave });
    this.search = byId("search");
    this.selects = { namespace: byId("namespace"), cluster: byId("cluster") };
    this.search.addEventListener("input", () => changed());
    this.search.addEventListener("keydown", (event) => this.#leaveSearch(event));
    for (const [key, select] of Object.entries(this.selects)) {
      select.addEventListener("change", () => {
        this.#wanted[key] = select.value;
        changed();
      });
    }
    this.#drawStates();
  }

  /** What the page's address keeps. */
  get query() {
    const { namespace = "", cluster = "" } = this.#wanted;
    return { search: this.search.value, state: this.#state === "all" ? "" : this.#state, namespace, cluster };
  }

  restore({ search = "", state = "", namespace = "", cluster = "" }) {
    this.search.value = search;
    this.#wanted = { namespace, cluster };
    this.#state = STATES.includes(state) ? state : "all";
    this.#drawStates();
    this.#drawSelects();
  }

  /** Looks for everything. */
  clear() {
    this.restore({});
    this.changed();
  }

  /** Whether something is looked for. */
  get isAsked() {
    return Object.values(this.query).some((it) => it.trim());
  }

  /** Whether a Service is; call it once for all of them. */
  test() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { namespace, cluster } = this.query;
    return (service) =>
      (this.#state === "all" || service.state === this.#state) &&
      (!namespace || visible(namespaceOf(service)) === namespace) &&
      (!cluster || service.clusters.some((it) => visible(it.cluster) === cluster)) &&
      words.every((word) => service.words.includes(word));
  }

  takeCounts(counts) {
    this.#counts = counts;
    this.#drawStates();
  }

  /** Offers what these Services have. */
  offer(services) {
    const [namespaces, clusters] = [new Set(), new Set()];
    for (const service of services) {
      namespaces.add(visible(namespaceOf(service)));
      for (const { cluster } of service.clusters) clusters.add(visible(cluster));
    }
    const offered = { namespace: [...namespaces].sort(), cluster: [...clusters].filter(Boolean).sort() };
    if (JSON.stringify(offered) === JSON.stringify(this.#offered)) return;
    this.#offered = offered;
    this.#drawSelects();
  }

  #drawSelects() {
    for (const [key, select] of Object.entries(this.selects)) {
      const wanted = this.#wanted[key] ?? "";
      const known = this.#offered[key] ?? [];
      const all = wanted && !known.includes(wanted) ? [wanted, ...known] : known;
      fill(select, make("option", { value: "" }, `all ${key}s`), all.map((it) => make("option", { value: it }, it)));
      select.value = wanted;
      select.hidden = all.length < 2 && !wanted;
    }
  }

  #drawStates() {
    const box = byId("states");
    const counts = this.#counts;
    const all = STATES.reduce((sum, state) => sum + counts[state], 0);
    if (box.children.length === 1) {
      for (const state of ["all", ...STATES]) {
        const input = make("input", { type: "radio", name: "state", value: state, class: "hidden" });
        input.addEventListener("change", () => {
          this.#state = state;
          this.#drawStates();
          this.changed();
        });
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
      this.changed();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      if (this.leave()) event.preventDefault();
    }
  }
}

const namespaceOf = ({ service }) => service.slice(0, service.indexOf("/"));
