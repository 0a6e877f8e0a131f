// A list of any length of which only the rows in sight are in the document.

import { make } from "./dom.js";

/** Rows beyond either edge of what is in sight. */
const SPARE = 8;

/**
 * `create()` gives `{ row, button }`, of which `button` takes the focus; `update(key, made)` fills it; `detail(key)` gives the
 * element below an expanded row, and `folded(key)` is called when that goes.
 */
export class VirtualList {
  #keys = [];
  #places = new Map();
  #made = new Map();
  #expanded = new Map();
  /** Rows that are out of sight, to be filled again: making one takes longer. */
  #spare = [];
  #current = null;
  #scheduled = false;
  #height = 1;
  #above = spacer();
  #below = spacer();

  /** The page scrolls: the list is as high as all of its rows. */
  constructor(table, body, view) {
    Object.assign(this, { table, body, view });
    body.append(this.#above, this.#below);
    addEventListener("scroll", () => this.schedule(), { passive: true });
    addEventListener("resize", () => {
      this.#measure();
      this.schedule();
    });
    this.#measure();
    body.addEventListener("keydown", (event) => this.#move(event));
    this.sizes = new ResizeObserver(() => this.schedule());
    // What is above the list moves it.
    this.sizes.observe(document.body);
  }

  /** Shows these, in this order. */
  show(keys) {
    this.#keys = keys;
    this.#places = new Map(keys.map((key, place) => [key, place]));
    for (const key of this.#expanded.keys()) {
      if (!this.#places.has(key)) this.#fold(key);
    }
    this.table.setAttribute("aria-rowcount", keys.length + 1);
    this.schedule();
  }

  /** What is in the document. */
  get shown() {
    return [...this.#made.keys()];
  }

  /** Calls `act(made)` for a row that is in the document. */
  with(key, act) {
    const made = this.#made.get(key);
    if (made) act(made);
  }

  /** Whether it is among those shown, in sight or not. */
  has(key) {
    return this.#places.has(key);
  }

  isExpanded(key) {
    return this.#expanded.has(key);
  }

  toggle(key) {
    if (this.#expanded.has(key)) {
      this.#fold(key);
    } else {
      const row = make("tr", { role: "row", class: "detail" });
      row.append(make("td", { role: "cell", "aria-colspan": 10 }, this.view.detail(key)));
      this.#expanded.set(key, { row, height: this.#height * 4 });
      this.sizes.observe(row);
    }
    this.#render();
  }

  #fold(key) {
    const { row } = this.#expanded.get(key);
    this.sizes.unobserve(row);
    row.remove();
    this.#expanded.delete(key);
    this.view.folded(key);
  }

  /** Brings a row into sight, `block: "start"` below the head, and gives it the focus. */
  focus(key, block = "nearest") {
    const place = this.#places.get(key);
    if (place === undefined) return;
    const { top: start, head } = this.#sight();
    const top = this.#top(place) - start;
    const bottom = top + this.#height - innerHeight;
    if (block === "start" || top < head) scrollBy({ top: top - head, behavior: "instant" });
    else if (bottom > 0) scrollBy({ top: bottom, behavior: "instant" });
    this.#current = key;
    this.#render();
    this.#made.get(key)?.button.focus({ preventScroll: true });
  }

  /** Goes to the first row in sight; whether there is one. */
  focusFirst() {
    if (!this.#keys.length) return false;
    this.focus(this.#keys[0]);
    return true;
  }

  /** Where the window begins, from the first row, and what the heads of page and table cover of it. */
  #sight() {
    const head = this.table.tHead.getBoundingClientRect();
    const sticky = parseFloat(getComputedStyle(this.table.tHead).top) || 0;
    return { top: -this.body.getBoundingClientRect().top, head: sticky + head.height };
  }

  schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#render();
    });
  }

  /** All rows have it; it depends on the width of the page. */
  #measure() {
    this.#height = parseFloat(getComputedStyle(this.table).getPropertyValue("--row"));
  }

  /** Places and heights of expanded rows, in order. */
  #extras() {
    const extra = ([key, detail]) => {
      // Out of sight it is not in the document, and as high as it was.
      detail.height = detail.row.offsetHeight || detail.height;
      return [this.#places.get(key), detail.height];
    };
    return [...this.#expanded].map(extra).sort(([one], [other]) => one - other);
  }

  #top(place, extras = this.#extras()) {
    let top = place * this.#height;
    for (const [at, height] of extras) if (at < place) top += height;
    return top;
  }

  #placeAt(offset, extras) {
    let [low, high] = [0, Math.max(0, this.#keys.length - 1)];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#top(middle, extras) <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #render() {
    const extras = this.#extras();
    const { top } = this.#sight();
    const first = Math.max(0, this.#placeAt(top, extras) - SPARE);
    const end = Math.min(this.#keys.length, this.#placeAt(top + innerHeight, extras) + SPARE + 1);
    const wanted = this.#keys.slice(first, end);
    const known = new Set(wanted);
    for (const [key, { row }] of this.#made) {
      if (!known.has(key)) this.#drop(key, row);
    }
    if (!this.#places.has(this.#current)) this.#current = null;
    let next = this.#above.nextElementSibling;
    wanted.forEach((key, index) => {
      next = this.#put(key, first + index, next);
    });
    const whole = this.#top(this.#keys.length, extras);
    stretch(this.#above, this.#top(first, extras));
    stretch(this.#below, whole - this.#top(end, extras));
    const reached = known.has(this.#current) ? this.#current : wanted[0];
    for (const [key, { button }] of this.#made) button.tabIndex = key === reached ? 0 : -1;
  }

  /** Puts a row, and what is below it, before `next`; gives what is next then. */
  #put(key, place, next) {
    let made = this.#made.get(key);
    if (!made) {
      made = this.#spare.pop() ?? this.view.create();
      this.#made.set(key, made);
    }
    this.view.update(key, made);
    made.row.setAttribute("aria-rowindex", place + 2);
    const detail = this.#expanded.get(key)?.row;
    made.button.setAttribute("aria-expanded", Boolean(detail));
    for (const row of detail ? [made.row, detail] : [made.row]) {
      if (row === next) next = next.nextElementSibling;
      else this.body.insertBefore(row, next);
    }
    return next;
  }

  #drop(key, row) {
    const detail = this.#expanded.get(key)?.row;
    const focused = row.contains(document.activeElement) || detail?.contains(document.activeElement);
    row.remove();
    detail?.remove();
    this.#spare.push(this.#made.get(key));
    this.#made.delete(key);
    // Else the keyboard would begin at the top of the page again.
    if (focused) this.table.focus({ preventScroll: true });
  }

  #move(event) {
    const made = [...this.#made].find(([, { button }]) => button === event.target);
    if (!made || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape" && this.#expanded.has(made[0])) {
      event.preventDefault();
      this.toggle(made[0]);
      return;
    }
    const page = Math.max(1, Math.floor(innerHeight / this.#height) - 3);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const place = this.#places.get(made[0]) + step;
    this.focus(this.#keys[Math.min(this.#keys.length - 1, Math.max(0, place))]);
  }
}

function spacer() {
  return make("tr", { class: "spacer", "aria-hidden": "true", role: "presentation" });
}

function stretch(element, height) {
  element.style.height = `${height}px`;
}
