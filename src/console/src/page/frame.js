// What both pages have around their contents: address, verdict, connection, and the key that leads to the search.

import { byId, setText } from "./dom.js";
import { counted } from "./format.js";

/** The query string of these questions, without those that are empty. */
export function queryOf(questions) {
  return new URLSearchParams(Object.entries(questions).filter(([, value]) => value)).toString();
}

/** The address of this page with a query string. */
export function addressWith(query) {
  return (query ? `?${query}` : location.pathname) + location.hash;
}

/** The questions in the address of this page. */
export function askedFor() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

/** Says in the header and in the title how many problems there are. */
export function sayVerdict(count, manner, name) {
  setText(byId("verdict"), count ? counted(count, "problem") : "all well");
  byId("verdict").className = manner;
  document.title = `${count ? `(${count}) ` : ""}${name} · Sheave`;
}

/** Says whether what is seen is of now. */
export function sayConnection(text, isLive) {
  setText(byId("connection"), text);
  byId("connection").className = isLive ? "live" : "bad";
  byId("main").classList.toggle("stale", !isLive);
}

/** Shows the page, with "/" for the search. */
export function begin() {
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      byId("search").select();
      byId("search").focus();
    }
  });
  setText(byId("connection"), "connecting");
  byId("main").hidden = false;
}
