// Small charts: a line or bars over time, with a scale, and the value at a moment under the pointer or by the arrow keys.

import { fill, make, setText } from "./dom.js";
import { visible } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
/** Room above the highest value, in parts of the height. */
const HEAD = 0.03;

/** An element of a drawing. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, visible(value));
  element.append(...children);
  return element;
}

/** A drawing that fills its box, whatever that is wide. */
function drawing(width, height, ...children) {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...children);
}

/** Points of a line with a gap where a value is missing; a value without neighbours becomes a short stroke. */
function line(values, x, y) {
  const has = (index) => values[index] != null;
  return values
    .map((value, index) => {
      if (value == null) return "";
      const point = `${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      if (has(index - 1)) return `L${point}`;
      return `M${point}${has(index + 1) ? "" : "h1.5"}`;
    })
    .join("");
}

/** Parts of a chart's height for values from 0 to the highest one. */
const linear = (top) => (value) => (top > 0 ? value / top : 0);

/** A round number that is not below the highest value: 1, 2 or 5 times a power of ten. */
export function roundUp(value) {
  if (value <= 0) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((it) => it >= value * (1 - 1e-9)) ?? 10 * power;
}

/**
 * A chart of one quantity. `show(value)` is the value as text. `scale`, if there is one, gives `{ top, place(value) }`: the text of the
 * upper edge, and the part of the height of a value. `bars` are for what happens now and then.
 */
export class Chart {
  #data = { series: [], seconds: 1, span: 60, end: 0, marks: [] };
  #at = null;

  constructor({ title, show, scale = null, bars = false, width = 240, height = 56 }) {
    Object.assign(this, { title, show, scale, bars, width, height });
    this.lines = draw("g");
    this.cursor = draw("path", { class: "cursor" });
    this.svg = drawing(width, height, this.lines, this.cursor);
    this.top = make("span", { class: "top" });
    this.from = make("span", {});
    this.value = make("output", { class: "value", "aria-live": "off" });
    this.plot = make(
      "div",
      { class: "plot", role: "slider", tabindex: "0", "aria-readonly": "true", "aria-orientation": "horizontal", "aria-label": title },
      this.svg,
      this.top,
    );
    const axis = make("div", { class: "axis", "aria-hidden": "true" }, this.from, this.value, make("span", {}, "now"));
    this.element = make("div", { class: "chart" }, this.plot, axis);
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("pointerdown", (event) => this.#point(event));
    this.plot.addEventListener("pointerleave", () => this.#move(null));
    this.plot.addEventListener("keydown", (event) => this.#step(event));
    this.plot.addEventListener("blur", () => this.#move(null));
  }

  /**
   * Draws lists of values, of which the last one ended at `end` (milliseconds), one each `seconds`, over `span` seconds. `marks` are
   * moments to point at.
   */
  update({ series, seconds, span, end, marks = [] }) {
    this.#data = { series, seconds, span, end, marks };
    const { width, height, bars } = this;
    const highest = Math.max(0, ...series.flatMap(({ values }) => values).filter((it) => it != null));
    const top = roundUp(highest);
    const place = this.scale?.place ?? linear(top);
    const y = (value) => height - 0.75 - place(value) * height * (1 - HEAD);
    const middle = (index) => (this.#x(index) - this.#width / 2).toFixed(1);
    const bar = (value, index) => (value ? `M${middle(index)} ${height}V${Math.min(y(value), height - 2).toFixed(1)}` : "");
    const paths = series.map(({ values, kind = "" }) => {
      const d = bars ? values.map(bar).join("") : line(values, (index) => this.#x(index), y);
      // A bar is as wide as its time; a line has its width whatever the chart is stretched to.
      const stroke = bars ? { "stroke-width": Math.max(1, this.#width * 0.9) } : { "vector-effect": "non-scaling-stroke" };
      return draw("path", { d, class: `${bars ? "bar" : "line"} ${kind}`, ...stroke });
    });
    const at = (time) => width - ((end - time) / 1000 / span) * width;
    const ticks = marks.map(at).filter((x) => x >= 0 && x <= width).map((x) => `M${x.toFixed(1)} ${height}v-6`);
    const mark = draw("path", { d: ticks.join(""), class: "mark", "vector-effect": "non-scaling-stroke" });
    this.lines.replaceChildren(...paths, mark);
    setText(this.top, this.scale?.top ?? (top ? this.show(top) : ""));
    setText(this.from, spanText(span));
    this.#say();
  }

  get #length() {
    return Math.max(0, ...this.#data.series.map(({ values }) => values.length));
  }

  /** How wide one value is. */
  get #width() {
    return (this.width * this.#data.seconds) / this.#data.span;
  }

  /** Where a value ends. */
  #x(index) {
    return this.width - (this.#length - 1 - index) * this.#width;
  }

  #point({ clientX }) {
    const { left, width } = this.plot.getBoundingClientRect();
    const back = Math.floor(((1 - (clientX - left) / width) * this.#data.span) / this.#data.seconds);
    this.#move(this.#length - 1 - Math.max(0, back));
  }

  #step(event) {
    const page = Math.ceil(this.#data.span / this.#data.seconds / 12);
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity };
    if (event.key === "Escape" && this.#at != null) {
      event.stopPropagation();
      this.#move(null);
      return;
    }
    if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.#move((this.#at ?? this.#length) + steps[event.key]);
  }

  /** Points at a value; null is at none. */
  #move(at) {
    this.#at = at == null || !this.#length ? null : Math.min(this.#length - 1, Math.max(0, at));
    this.#say();
  }

  /** Says the value that is pointed at, and else the newest. */
  #say() {
    const { series, seconds, end } = this.#data;
    const length = this.#length;
    if (this.#at != null && this.#at >= length) this.#at = length ? length - 1 : null;
    const at = this.#at ?? length - 1;
    const texts = series.map(({ values, label }) => `${label ? `${label} ` : ""}${values[at] == null ? "–" : this.show(values[at])}`);
    const text = length ? texts.join(" · ") : "nothing yet";
    const time = clock(end - (length - 1 - at) * seconds * 1000, seconds < 60);
    const isPointed = this.#at != null;
    setText(this.value, isPointed ? `${time}  ${text}` : "");
    this.value.parentElement.classList.toggle("pointed", isPointed);
    this.cursor.setAttribute("d", isPointed ? `M${(this.#x(at) - this.#width / 2).toFixed(1)} 0V${this.height}` : "");
    const state = { valuemin: 0, valuemax: Math.max(0, length - 1), valuenow: Math.max(0, at), valuetext: length ? `${time}, ${text}` : text };
    for (const [name, value] of Object.entries(state)) this.plot.setAttribute(`aria-${name}`, value);
  }
}

/** How far back a chart goes. */
function spanText(span) {
  if (span <= 60) return `${span} s ago`;
  return span < 7200 ? `${Math.round(span / 60)} min ago` : `${Math.round(span / 3600)} h ago`;
}

/** The time of the day, as people's clocks have it. */
export function clock(time, withSeconds = true) {
  const options = { hour: "2-digit", minute: "2-digit", ...(withSeconds ? { second: "2-digit" } : {}) };
  return new Date(time).toLocaleTimeString("en-GB", options);
}

/** A line over the last values in a row of a table, with the highest value, or the one under the pointer, beside it. */
export class Sparkline {
  #values = [];
  #room = 1;
  #back = null;

  constructor(show, width = 96, height = 20) {
    Object.assign(this, { show, width, height });
    this.path = draw("path", { class: "line", "vector-effect": "non-scaling-stroke" });
    this.svg = drawing(width, height, this.path);
    this.scale = make("small", { class: "muted" });
    this.element = make("div", { class: "sparkline" }, this.svg, this.scale);
    this.element.addEventListener("pointermove", ({ clientX }) => {
      const { left, width: wide } = this.svg.getBoundingClientRect();
      this.#back = Math.min(this.#room - 1, Math.max(0, Math.floor((1 - (clientX - left) / wide) * this.#room)));
      this.#say();
    });
    this.element.addEventListener("pointerleave", () => {
      this.#back = null;
      this.#say();
    });
  }

  /** Draws one value a second, of `room`. */
  update(values, room) {
    this.#values = values;
    this.#room = room;
    const { width, height } = this;
    const top = Math.max(0, ...values);
    const x = (index) => width - ((values.length - 1 - index) * width) / (room - 1);
    const y = (value) => height - 1 - (value / top) * (height - 2);
    this.path.setAttribute("d", values.length < 2 || top === 0 ? "" : line(values, x, y));
    this.#say();
  }

  #say() {
    const values = this.#values;
    const pointed = this.#back == null ? null : values[values.length - 1 - this.#back];
    if (this.#back != null) setText(this.scale, pointed == null ? "–" : `${this.show(pointed)} ${this.#back} s ago`);
    else setText(this.scale, values.length && Math.max(...values) > 0 ? `≤ ${this.show(Math.max(...values))}` : "");
  }
}

/** Buttons of which one is chosen. `choices` are `[value, text]`; `chosen(value)` is called for another one. */
export function choice(label, name, choices, value, chosen) {
  const buttons = choices.map(([it, text]) => {
    const input = make("input", { type: "radio", class: "hidden", name, value: it });
    input.checked = it === value;
    input.addEventListener("change", () => input.checked && chosen(it));
    return make("label", {}, input, make("span", {}, text));
  });
  const set = make("fieldset", { class: "choice" });
  fill(set, make("legend", { class: "hidden" }, label), buttons);
  return set;
}
