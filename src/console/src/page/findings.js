// What is wrong, the worst first, each with what to do.

import { byId, fill, make, name, sentence, setText } from "./dom.js";
import { count, counted } from "./format.js";

/** As many as leave room for the Services. */
const SHOWN = 6;
const OF_A_REASON = 2;

export class Findings {
  #process = [];
  #controller = [];
  #objects = { total: 0, findings: [], reasons: [], notServedTotal: 0, notServed: [] };
  #whole = false;
  #stuck = null;
  #known = false;
  #drawn = "";

  /** `reveal(key)` shows a Service by the name of its object. */
  constructor({ reveal }) {
    this.reveal = reveal;
    byId("more-findings").addEventListener("click", () => {
      this.#whole = !this.#whole;
      this.#draw();
    });
  }

  /** The process does not answer, or does again (null). */
  stuck(why) {
    this.#stuck = why;
    this.#draw();
  }

  takeStatus({ wrong, status }) {
    this.#process = wrong;
    this.#controller = status.controller?.problems ?? [];
    this.#draw();
  }

  takeObjects(objects) {
    this.#objects = objects;
    this.#known = true;
    this.#draw();
  }

  get count() {
    return this.#processItems.length + this.#others.length + this.#objects.total;
  }

  /** Whether the gateway has said what is wrong. */
  get isKnown() {
    return this.#known;
  }

  /** The worst state among them: "broken", "degraded", or "" if nothing is wrong. */
  get worst() {
    const states = this.#objects.findings.map(({ state }) => state);
    if (this.#stuck || this.#process.length || states.includes("broken")) return "broken";
    return this.count ? "degraded" : "";
  }

  /** Files that cannot be read. */
  get files() {
    return this.#objects.findings.map(({ object }) => split(object)).filter(([kind]) => kind === "File").map(([, file]) => file);
  }

  get #processItems() {
    return [...(this.#stuck ? [this.#stuck] : []), ...this.#process];
  }

  /** What only the controller knows. */
  get #others() {
    const same = (one, other) => ["object", "reason", "message"].every((key) => one[key] === other[key]);
    return this.#controller.filter((one) => !this.#objects.findings.some((other) => same(one, other)));
  }

  #draw() {
    const { findings, notServed, notServedTotal } = this.#objects;
    const state = JSON.stringify([this.#processItems, this.#others, this.#objects, this.#whole, this.#known]);
    if (state === this.#drawn) return;
    this.#drawn = state;
    const known = [...findings, ...this.#others.map((problem) => ({ state: "degraded", advice: "", ...problem }))];
    const items = [...this.#processItems.map((text) => processItem(text)), ...this.#grouped(known)];
    const shown = this.#whole ? items : items.slice(0, SHOWN);
    fill(byId("findings"), shown);
    byId("calm").hidden = items.length > 0;
    setText(byId("calm"), this.#known ? "Nothing is wrong." : "Waiting for the gateway");
    const more = byId("more-findings");
    more.hidden = items.length <= SHOWN;
    setText(more, this.#whole ? "Show fewer" : `Show ${items.length - SHOWN} more`);
    this.#drawNotServed(notServed, notServedTotal);
  }

  /** A few of each reason, and how many more there are. */
  #grouped(known) {
    const items = [];
    const group = ({ state, reason }) => `${state} ${reason}`;
    for (const of of new Set(known.map(group))) {
      const same = known.filter((it) => group(it) === of);
      const all = this.#objects.reasons.find((it) => group(it) === of)?.count ?? 0;
      const listed = this.#whole ? same.length : Math.min(same.length, OF_A_REASON);
      const left = Math.max(same.length, all) - listed;
      same.slice(0, listed).forEach((finding) => items.push(this.#item(finding)));
      if (left > 0) items.at(-1).lastElementChild.append(make("p", { class: "rest" }, `and ${count(left)} more with the reason ${same[0].reason}`));
    }
    return items;
  }

  #item({ object, reason, message, port, field, file, line, state, advice }) {
    const place = [port && `port ${port.port}/${port.protocol}`, field, file && (line ? `${file}:${line}` : file)].filter(Boolean);
    const [kind, service] = split(object);
    const title = make("span", { class: "object" }, make("span", { class: "muted" }, `${kind} `), name(service));
    const link = make("button", { type: "button", class: "link" }, title);
    link.addEventListener("click", () => this.reveal(object));
    const isService = ["Service", "MultiClusterService", "Gateway"].includes(kind);
    return make(
      "li",
      { class: state },
      make("span", { class: "state" }, state),
      make(
        "div",
        {},
        make("p", {}, isService ? link : title, " ", make("span", { class: "reason" }, reason)),
        make("p", { dir: "auto" }, place.length ? make("span", { class: "muted" }, name(place.join(" · ")), ": ") : null, sentence(message)),
        advice ? make("p", { class: "advice" }, sentence(advice)) : null,
      ),
    );
  }

  #drawNotServed(notServed, total) {
    const box = byId("not-served");
    box.hidden = total === 0;
    const what = counted(total, "LoadBalancer does", "LoadBalancers do");
    setText(box.querySelector("summary"), `${what} not ask for this gateway`);
    const left = total - notServed.length;
    const items = notServed.map(({ object, message }) => make("li", {}, name(object), ": ", make("span", { dir: "auto" }, message)));
    fill(box.querySelector("ul"), items, left > 0 ? make("li", { class: "muted" }, `and ${counted(left, "more", "more")}`) : null);
  }
}

function split(object) {
  const space = object.indexOf(" ");
  return [object.slice(0, space), object.slice(space + 1)];
}

/** The sentences of `sheave status`: what is wrong, and after a colon or semicolon what to do. */
function processItem(text) {
  const sentenceCase = text.charAt(0).toUpperCase() + text.slice(1);
  return make("li", { class: "degraded" }, make("span", { class: "state" }, "gateway"), make("div", {}, make("p", { dir: "auto" }, sentence(`${sentenceCase}.`))));
}
