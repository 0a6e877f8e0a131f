// The order of the Services: by a column, either way. On narrow pages, which have no heads, a list chooses it.

import { make } from "./dom.js";

/** What a row is compared by, and whether the greatest comes first. Rates are of all Services, in sight or not. */
const COLUMNS = {
  state: { title: "State", of: ({ rank }) => rank },
  name: { title: "Service", of: ({ name }) => name },
  address: { title: "Address", of: ({ service }) => service.frontends[0] ?? "" },
  owner: { title: "Gateway", of: ({ service }) => service.owners?.[0] ?? "" },
  cluster: { title: "Cluster", of: ({ service }) => service.clusters[0]?.cluster ?? "" },
  endpoints: { title: "Endpoints", of: ({ healthy }) => healthy },
  opened: { title: "Connections/s", of: ({ rates }) => rates?.opened ?? 0, isRate: true },
  bytes: { title: "Bytes/s", of: ({ rates }) => rates?.bytes ?? 0, isRate: true },
  errors: { title: "Errors/s", of: ({ rates }) => rates?.errors ?? 0, isRate: true },
};

/** The worst come first, unless somebody chooses. */
const USUAL = "state";
const names = new Intl.Collator("en", { numeric: true });

export class Order {
  #by = USUAL;
  #isReversed = false;

  /** `head` has a cell for each column, with the column in `data-sort`; `changed()` is called for another order. */
  constructor(head, select, changed) {
    this.changed = changed;
    this.select = select;
    this.heads = [...head.querySelectorAll("[data-sort]")];
    for (const cell of this.heads) {
      const by = cell.dataset.sort;
      const button = make("button", { type: "button", class: "sort" }, ...cell.childNodes);
      button.addEventListener("click", () => this.#choose(by, by === this.#by && !this.#isReversed));
      cell.replaceChildren(button);
    }
    select.append(...Object.entries(COLUMNS).map(([by, { title }]) => make("option", { value: by }, title)));
    select.addEventListener("change", () => this.#choose(select.value, false));
    this.#draw();
  }

  /** What the page's address keeps. */
  get query() {
    const isUsual = this.#by === USUAL && !this.#isReversed;
    return { sort: isUsual ? "" : `${this.#isReversed ? "-" : ""}${this.#by}` };
  }

  restore({ sort = "" }) {
    const by = sort.replace(/^-/, "");
    [this.#by, this.#isReversed] = by in COLUMNS ? [by, sort.startsWith("-")] : [USUAL, false];
    this.#draw();
  }

  /** Whether rates of all Services are needed. */
  get isByRate() {
    return Boolean(COLUMNS[this.#by].isRate);
  }

  /** Sorts keys; `facts(key)` gives what a row is compared by. */
  sort(keys, facts) {
    const { of, isRate } = COLUMNS[this.#by];
    const known = new Map(keys.map((key) => [key, facts(key)]));
    const values = new Map(keys.map((key) => [key, of(known.get(key))]));
    const compare = typeof values.get(keys[0]) === "string" ? names.compare : (one, other) => one - other;
    const turn = Boolean(isRate) !== this.#isReversed ? -1 : 1;
    const byName = (one, other) => (known.get(one).name < known.get(other).name ? -1 : 1);
    return [...keys].sort((one, other) => turn * compare(values.get(one), values.get(other)) || byName(one, other));
  }

  #choose(by, isReversed) {
    this.#by = by;
    this.#isReversed = isReversed;
    this.#draw();
    this.changed();
  }

  #draw() {
    this.select.value = this.#by;
    for (const cell of this.heads) {
      const isChosen = cell.dataset.sort === this.#by;
      const isFalling = Boolean(COLUMNS[this.#by].isRate) !== this.#isReversed;
      if (isChosen) cell.setAttribute("aria-sort", isFalling ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
  }
}
