// Traffic of one Service or of all: a tile for each quantity, over the last minute, hour or day.

import { Chart, choice } from "./chart.js";
import { fill, make, setText } from "./dom.js";
import { bytes, count, duration, rate } from "./format.js";

/** Seconds of the live rates. */
export const SAMPLES = 60;

const SPANS = { minute: 60, hour: 3600, day: 86_400 };
const perSecond = (value) => `${rate(value)}/s`;
const bytesPerSecond = (value) => `${bytes(value)}/s`;

/** The bound of a connect time; -1 is beyond the last one. */
const within = (seconds) => (seconds < 0 ? "> 1 s" : `≤ ${duration(seconds)}`);
/** From a tenth of a millisecond to a second, in powers of ten; what took longer is at the upper edge. */
const BOUNDS = { top: "1 s", place: (seconds) => (seconds < 0 ? 1 : Math.min(0.95, Math.max(0.03, (Math.log10(seconds) + 4) / 4.2))) };

/** A quantity, as the live rates and the history name it. */
const KINDS = [
  { title: "Connections", show: perSecond, live: "opened", past: ["opened"] },
  { title: "To clients", show: bytesPerSecond, live: "toClients", past: ["endpointBytes"] },
  { title: "To endpoints", show: bytesPerSecond, live: "toEndpoints", past: ["clientBytes"] },
  { title: "Errors", show: perSecond, live: "errors", past: ["errors"], bars: true },
  { title: "Connect time", show: within, past: ["connectP50", "connectP99"], labels: ["p50", "p99"], scale: BOUNDS },
];

/** Samples that a chart has room for at least. */
const LEAST = 30;

let made = 0;

export class Tiles {
  #span = "hour";
  #rates = [];
  #history = null;
  #marks = [];

  constructor() {
    this.tiles = KINDS.map((kind) => new Tile(kind));
    const spans = Object.keys(SPANS).map((it) => [it, it]);
    made += 1;
    const chosen = (span) => {
      this.#span = span;
      this.#draw();
    };
    this.spans = choice("Time shown", `span-${made}`, spans, this.#span, chosen);
    this.element = make("div", { class: "tiles" }, this.tiles.map(({ element }) => element));
  }

  /** Takes the rates of the last seconds, and the newest counters. */
  takeLive(rates, counts) {
    this.#rates = rates;
    const [connections, toClients, toEndpoints, errors] = this.tiles;
    for (const tile of this.tiles) tile.say(rates);
    connections.note(counts ? `${count(counts.open)} open` : "");
    toClients.note(counts ? `${bytes(counts.endpointBytes)} in total` : "");
    toEndpoints.note(counts ? `${bytes(counts.clientBytes)} in total` : "");
    errors.note(counts ? `${count(counts.errors)} in total` : "");
    if (this.#span === "minute") this.#draw();
  }

  /** Takes the answer of `/api/history`. */
  takeHistory(history) {
    this.#history = history;
    this.tiles.at(-1).sayTimes(history.recent);
    this.#draw();
  }

  /** Takes the moments (milliseconds) when something changed. */
  takeMarks(marks) {
    this.#marks = marks;
    this.#draw();
  }

  #draw() {
    const span = SPANS[this.#span];
    const { recent, day, end } = this.#history ?? {};
    const past = this.#span === "day" ? day : recent;
    const ended = end ? Date.parse(end) : Date.now();
    for (const tile of this.tiles) {
      if (this.#span === "minute" && tile.kind.live) tile.drawLive(this.#rates, span);
      else tile.drawPast(past, covered(past, span), ended, this.#marks);
    }
  }
}

/** A process that is young has not that much to show. */
function covered(samples, span) {
  return samples ? Math.min(span, Math.max(LEAST * samples.seconds, samples.opened.length * samples.seconds)) : span;
}

class Tile {
  constructor(kind) {
    this.kind = kind;
    this.value = make("b", {}, "–");
    this.text = make("span", { class: "muted" });
    this.chart = new Chart(kind);
    this.element = make("div", { class: "tile" }, make("h3", {}, kind.title), this.value, this.text, this.chart.element);
  }

  note(text) {
    setText(this.text, text);
  }

  /** The rate of now. */
  say(rates) {
    const { live, show } = this.kind;
    if (!live) return;
    setText(this.value, rates.length ? show(rates.at(-1)[live]) : "–");
    this.value.classList.toggle("bad", live === "errors" && rates.at(-1)?.errors > 0);
  }

  /** The connect times of the last sample that has some. */
  sayTimes({ connectP50, connectP99 }) {
    const at = connectP50.findLastIndex((it) => it != null);
    setText(this.value, at < 0 ? "–" : within(connectP50[at]));
    this.note(at < 0 ? "" : `p99 ${within(connectP99[at])}`);
  }

  drawLive(rates, span) {
    const values = rates.map((it) => it[this.kind.live]);
    this.chart.update({ series: [{ values }], seconds: 1, span, end: Date.now() });
  }

  drawPast(samples, span, end, marks) {
    const { past, labels = [], live } = this.kind;
    const { seconds = 10 } = samples ?? {};
    const most = Math.ceil(span / seconds);
    const per = live ? seconds : 1;
    const values = (column) => (samples?.[column] ?? []).slice(-most).map((it) => (it == null || it < 0 ? it : it / per));
    const series = past.map((column, index) => ({ values: values(column), label: labels[index], kind: index ? "second" : "" }));
    this.chart.update({ series, seconds, span, end, marks });
  }
}

/** Puts the tiles below a line with what else is said. */
export function withTiles(box, tiles, ...head) {
  fill(box, make("div", { class: "bar" }, head, tiles.spans), tiles.element);
}
