// Elements, made without markup: whatever is text stays text.

import { visible } from "./format.js";

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** An element with attributes and children; strings become text with escapes for what cannot be seen. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, visible(value));
  }
  element.append(...children.flat().filter((child) => child != null).map(node));
  return element;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(visible(child));
}

/** A name that somebody else chose: its direction does not touch what is around it. */
export function name(text, attributes = {}) {
  return make("bdi", attributes, text);
}

/** A sentence in which `commands` stand between backticks. */
export function sentence(text) {
  return text.split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part));
}

/** Sets the text of an element, if it differs: screen readers read anew what is set anew. */
export function setText(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Replaces what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child != null).map(node));
}

/** A table for few rows; `numbers` are the columns that are aligned to the right. */
export function table(caption, heads, rows, numbers = []) {
  const kind = (column) => (numbers.includes(column) ? "number" : null);
  const head = heads.map((text, column) => make("th", { scope: "col", class: kind(column) }, text));
  const body = rows.map((cells) =>
    make("tr", {}, cells.map((cell, column) => make("td", { class: kind(column), "data-head": heads[column] }, cell))),
  );
  return make(
    "div",
    { class: "wide" },
    make(
      "table",
      {},
      make("caption", { class: "hidden" }, caption),
      make("thead", {}, make("tr", {}, head)),
      make("tbody", {}, body),
    ),
  );
}
