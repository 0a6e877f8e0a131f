// What changed, newest first.

import { clock } from "./chart.js";
import { fill, make, name, setText } from "./dom.js";
import { count } from "./format.js";

/** Events that are shown at first, and at most. */
const FEW = 4;
const MOST = 300;

export class Events {
  #events = [];
  #whole = false;
  #drawn = null;

  /** `reveal(key)`, if there is one, shows the Service of an event by the name of its object. */
  constructor({ reveal = null } = {}) {
    this.reveal = reveal;
    this.list = make("ol", { class: "events", reversed: true });
    this.none = make("p", { class: "calm" }, "Nothing is known yet.");
    this.more = make("button", { type: "button", hidden: true });
    this.more.addEventListener("click", () => {
      this.#whole = !this.#whole;
      this.#draw();
    });
    this.element = make("div", {}, this.none, this.list, this.more);
  }

  /** Replaces the events, which are oldest first. */
  take(events) {
    this.#events = events;
    this.#draw();
  }

  /** Adds those that are newer than all before. */
  add(events) {
    const last = this.newest;
    const newer = events.filter(({ time }) => Date.parse(time) > last);
    if (newer.length || !this.#drawn) this.take([...this.#events, ...newer].slice(-10 * MOST));
  }

  /** When the last of them was (milliseconds); 0 if there is none. */
  get newest() {
    return this.#events.length ? Date.parse(this.#events.at(-1).time) : 0;
  }

  /** When each of them was, in milliseconds. */
  get times() {
    return this.#events.map(({ time }) => Date.parse(time));
  }

  #draw() {
    const shown = this.#events.slice(this.#whole ? -MOST : -FEW).reverse();
    const state = JSON.stringify(shown);
    this.none.hidden = shown.length > 0;
    setText(this.none, "Nothing has changed in this time.");
    const left = Math.min(MOST, this.#events.length) - FEW;
    this.more.hidden = left <= 0;
    setText(this.more, this.#whole ? "Show fewer" : `Show ${count(Math.max(0, left))} more`);
    // What is drawn anew loses what a person has selected.
    if (state === this.#drawn) return;
    this.#drawn = state;
    fill(this.list, shown.map((event) => this.#item(event)));
  }

  #item({ time, service, source, message }) {
    return make(
      "li",
      {},
      make("time", { datetime: time }, when(Date.parse(time))),
      this.reveal ? this.#object(service, source) : null,
      make("span", { dir: "auto" }, message),
    );
  }

  #object(service, source) {
    if (!service) return make("span", { class: "muted" }, "gateway");
    const link = make("button", { type: "button", class: "link" }, make("span", { class: "object" }, name(service)));
    link.addEventListener("click", () => this.reveal(`${source} ${service}`));
    return link;
  }
}

/** The time, with the day if that is not today. */
function when(time) {
  const date = new Date(time);
  const isToday = date.toDateString() === new Date().toDateString();
  const day = isToday ? "" : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} `;
  return day + clock(time);
}
