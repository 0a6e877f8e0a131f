// All gateways: what is wrong and what differs, and a table in which those that are not well come first.

import { byId, fill, make, name, sentence, setText, table } from "./dom.js";
import { count, counted, span } from "./format.js";

/** As many as leave room for the gateways. */
const SHOWN = 12;
/** Rows at once: a search finds the others. */
const ROWS = 200;
/** Gateways that a line names. */
const NAMED = 4;

const STATES = { serving: "serving", notReady: "not ready", lameDuck: "about to drain", draining: "draining", silent: "silent" };

export class AllGateways {
  #view = null;
  #whole = false;
  #drawn = "";

  /** `changed()` is called for a new search. */
  constructor({ changed }) {
    this.changed = changed;
    this.search = byId("search");
    this.search.addEventListener("input", () => {
      this.changed();
      this.#drawRows();
    });
    byId("more-findings").addEventListener("click", () => {
      this.#whole = !this.#whole;
      this.#drawFindings();
    });
  }

  /** What the page's address keeps. */
  get query() {
    return { search: this.search.value.trim() };
  }

  restore({ search = "" }) {
    this.search.value = search;
  }

  /** How many things are wrong, as far as it is known. */
  get count() {
    return this.#view ? this.#findings().length + this.#left : 0;
  }

  /** How many of them the answer does not list. Gateways may have the further ones of the controller as well, so they count for none. */
  get #left() {
    const { moreProblems, moreUnhealthy } = this.#view;
    return moreProblems + moreUnhealthy;
  }

  take(view) {
    this.#view = view;
    this.#drawFindings();
    this.#drawRows();
  }

  #findings() {
    const { gateways, differences, problems, unwell, unhealthy, controllerWrong, controllerProblems } = this.#view;
    const silent = gateways.filter(({ state }) => state === "silent");
    const rest = gateways.filter(({ state }) => state !== "silent");
    const answering = rest.length;
    const none = gateways.length
      ? []
      : ["There is no gateway: check that gateways run, and that the Service of `gateways.service` in the config selects their Pods"];
    return [
      ...none.map((text) => finding("broken", "gateways", sentence(text))),
      ...silent.map(({ node, error }) => finding("broken", "silent", [name(node), ` does not answer: `, ...sentence(error ?? "")])),
      ...differences.map((text) => finding("degraded", "differ", sentence(capital(text)))),
      ...controllerWrong.map((text) => finding("degraded", "controller", sentence(capital(text)))),
      ...rest.flatMap(({ node, error, wrong }) =>
        [error, ...wrong].filter(Boolean).map((text) => finding("degraded", "gateway", [name(node), ": ", ...sentence(text)])),
      ),
      ...problems.map((it) => finding("degraded", "problem", problem(it), whose(it, answering))),
      ...controllerProblems.map((it) => finding("degraded", "problem", problem(it), "as the controller sees it")),
      ...unwell.map((it) => finding(it.state, "service", [name(it.object), `: ${it.why}`])),
      ...unhealthy.map((it) =>
        finding("degraded", "endpoint", [name(it.endpoint), ` (${it.protocol}) of `, name(it.service), `: ${it.reason}`], whose(it, answering)),
      ),
    ];
  }

  #drawFindings() {
    const items = this.#findings();
    const { leading, leader } = this.#view;
    const calm = items.length ? "" : "Nothing is wrong, and all gateways are alike.";
    // What controllers alone see is known to the leader.
    const standby = !leading && leader ? `This controller does not lead: Problems that only controllers see are on the page of ${leader}.` : "";
    setText(byId("calm"), [calm, standby].filter(Boolean).join(" "));
    byId("calm").hidden = !calm && !standby;
    const shown = this.#whole ? items : items.slice(0, SHOWN);
    const left = this.#left;
    const rest = this.#whole && left ? make("li", { class: "muted" }, `and ${count(left)} more`) : null;
    const { moreControllerProblems } = this.#view;
    const ofController = this.#whole && moreControllerProblems
      ? make("li", { class: "muted" }, `and ${count(moreControllerProblems)} more by the controller, which gateways may have as well`)
      : null;
    const list = make("ul", {}, shown, rest, ofController);
    // What is drawn anew loses what a person has selected.
    if (list.innerText !== this.#drawn || byId("findings").childElementCount !== list.childElementCount) {
      this.#drawn = list.textContent;
      fill(byId("findings"), [...list.children]);
    }
    const more = byId("more-findings");
    more.hidden = items.length <= SHOWN;
    setText(more, this.#whole ? "Show fewer" : `Show ${count(items.length - SHOWN)} more`);
  }

  #drawRows() {
    if (!this.#view) return;
    const words = this.query.search.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = this.#view.gateways.filter((it) => words.every((word) => text(it).includes(word)));
    matching.sort((one, other) => rank(one) - rank(other));
    const heads = ["Node", "Address", "State", "Differs in", "Version", "Table", "Frontends", "Problems", "Unhealthy", "Announces"];
    const drawn = table("Gateways", heads, matching.slice(0, ROWS).map(cells), [6, 7, 8, 9]);
    drawn.querySelectorAll("tbody tr").forEach((row, index) => {
      const level = rank(matching[index]);
      if (level < 2) row.className = level ? "degraded" : "broken";
    });
    fill(byId("list"), matching.length ? drawn : make("p", { class: "calm" }, this.#view.gateways.length ? "No gateway matches." : "There is no gateway."));
    const left = matching.length - ROWS;
    const found = words.length ? counted(matching.length, "match", "matches") : counted(matching.length, "gateway");
    setText(byId("matches"), left > 0 ? `${found}; ${count(ROWS)} are shown` : found);
  }
}

/** Those that do not serve come first, then those that differ. */
function rank({ state, differs, wrong, error }) {
  if (state === "silent" || state === "notReady") return 0;
  return differs.length || wrong.length || error || state !== "serving" ? 1 : 2;
}

/** What a search looks at. */
function text({ node, addresses, state, version, differs }) {
  return [node, ...addresses, STATES[state] ?? state, version ?? "", ...differs].join(" ").toLowerCase();
}

function cells(it) {
  const number = (value) => (value == null ? "–" : count(value));
  const age = it.tableAgeSeconds == null ? "" : `, ${span(it.tableAgeSeconds)} ago`;
  return [
    name(it.node),
    name(it.addresses.join(", ")),
    make("span", { class: "state" }, STATES[it.state] ?? it.state),
    it.differs.length ? make("span", { class: "differs" }, it.differs.join(", ")) : "–",
    name(it.version ?? "–"),
    it.tableHash ? `${it.tableHash.slice(0, 6)}${age}` : "–",
    number(it.frontends),
    number(it.problems),
    number(it.unhealthyEndpoints),
    it.announcing ? `${count(it.announcing.announced)} of ${count(it.announcing.addresses)}` : "–",
  ];
}

function problem({ object, reason, message, port }) {
  const place = port ? [`port ${port.port}/${port.protocol}: `] : [];
  return [name(object), " ", make("span", { class: "reason" }, reason), ": ", ...place, ...sentence(message)];
}

/** Which gateways have it. */
function whose({ gateways, missing }, answering) {
  // Of the others nothing is known.
  if (gateways.length + missing.length < answering) return `on ${names(gateways)}`;
  if (!missing.length) return gateways.length === 1 ? `on ${names(gateways)}` : `on all ${count(gateways.length)} gateways that answer`;
  return missing.length < gateways.length ? `on all but ${names(missing)}` : `on ${names(gateways)} only`;
}

/** The first few names, and how many more there are. */
export function names(all) {
  const left = all.length - NAMED;
  return all.slice(0, NAMED).join(", ") + (left > 0 ? ` and ${count(left)} more` : "");
}

function finding(level, kind, content, where = null) {
  return make(
    "li",
    { class: level },
    make("span", { class: "state" }, kind),
    make("div", {}, make("p", { dir: "auto" }, content), where ? make("p", { class: "advice" }, where) : null),
  );
}

function capital(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
