// One row of the list of Services.

import { Sparkline } from "./chart.js";
import { fill, make, name, setText } from "./dom.js";
import { bytes, count, rate, visible } from "./format.js";
import { SAMPLES } from "./tiles.js";

/** Seconds that a row's rates are the mean of, lest a connection now and then looks like a flood. */
const AVERAGED = 5;

/** A row without a Service; `toggle(key)` opens what is below the one that it shows. */
export function create(toggle) {
  const cell = (kind, ...children) => make("td", { role: "cell", class: kind }, ...children);
  const cells = {
    name: make("bdi"),
    state: cell("state"),
    addresses: cell("addresses"),
    owner: cell("owner"),
    clusters: cell("clusters"),
    endpoints: cell("number endpoints"),
    opened: cell("number opened"),
    bytes: cell("number bytes"),
    errors: cell("number errors"),
  };
  const button = make("button", { type: "button", class: "disclose", "aria-expanded": "false", tabindex: "-1" }, cells.name);
  const spark = new Sparkline((value) => `${rate(value)}/s`);
  const first = make("th", { role: "rowheader", scope: "row", class: "name" }, button);
  const row = make("tr", { role: "row" }, first, ...Object.values(cells).slice(1), cell("spark", spark.element));
  const made = { row, button, cells, spark, key: null, service: null };
  // Wherever it is clicked, unless that selects text; the button is for the keyboard.
  row.addEventListener("click", () => getSelection().isCollapsed && toggle(made.key));
  return made;
}

/** What marks the rows of other objects than Services. */
const TAGS = { MultiClusterService: "multi-cluster", Gateway: "listener" };

/** Fills a row with its Service, if that is not what it shows. */
export function update(made, key, service) {
  made.key = key;
  if (made.service === service) return;
  made.service = service;
  const { row, cells, button } = made;
  row.className = service.elsewhere ? "elsewhere" : service.state;
  const [namespace, own] = splitName(service.service);
  const fleet = service.source in TAGS ? make("span", { class: "tag" }, TAGS[service.source]) : null;
  const title = "Source ranges admit some clients alone; ask below about one of them";
  const restricted = service.restricted ? make("span", { class: "tag", title }, "restricted") : null;
  const byKernel = service.byKernel ? make("span", { class: "tag", title: visible(kernelTitle(service)) }, "kernel") : null;
  fill(cells.name, make("span", { class: "muted" }, `${namespace}/`), own, fleet, restricted, byKernel);
  button.title = visible(service.service);
  setText(cells.state, service.elsewhere ? "not here" : service.state);
  cells.state.title = visible(service.why ?? "");
  showPlaces(cells.addresses, service.frontends);
  showList(cells.owner, service.owners ?? [], (service.owners ?? []).join("\n"));
  showClusters(cells.clusters, service.clusters);
  const [healthy, of] = endpoints(service);
  setText(cells.endpoints, service.frontends.length ? `${count(healthy)}/${count(of)}` : "–");
}

function kernelTitle({ byKernel, frontends }) {
  const which = byKernel < frontends.length ? `${byKernel} of ${frontends.length} frontends` : "connections";
  return `The kernel carries its ${which}; open connections, bytes and errors are not counted`;
}

/** Shows the last values of a Service's counters. */
export function updateTraffic({ cells, spark, service }, rates) {
  const recent = rates.slice(-AVERAGED);
  const mean = (key) => recent.reduce((sum, it) => sum + it[key], 0) / recent.length;
  const show = (cell, text) => setText(cell, recent.length ? text() : "");
  show(cells.opened, () => rate(mean("opened")));
  show(cells.bytes, () => bytes(mean("bytes")));
  const refused = service?.state === "broken" && !service.clusters.some(({ serving }) => serving);
  cells.errors.title = refused ? "The kernel refuses clients of a Service without endpoints, and counts none" : "";
  show(cells.errors, () => (refused ? "–" : rate(mean("errors"))));
  cells.errors.classList.toggle("bad", !refused && mean("errors") > 0);
  spark.update(rates.map(({ opened }) => opened), SAMPLES);
}

/** Endpoints that may be used, and all there are. */
export function endpoints(service) {
  const sum = (pick) => service.clusters.reduce((total, cluster) => total + pick(cluster), 0);
  return [sum(({ serving, unhealthy = 0 }) => serving - unhealthy), sum(({ of }) => of)];
}

/** The address of `address:port/protocol`, IPv6 without brackets. */
export function addressOf(frontend) {
  return frontend.slice(0, frontend.lastIndexOf(":")).replace(/^\[|\]$/g, "");
}

/** Where it is reached: the first place, and how many more there are. */
function showPlaces(cell, frontends) {
  cell.title = visible(frontends.join("\n"));
  const [first, ...others] = frontends;
  if (first === undefined) {
    fill(cell, make("span", { class: "muted" }, "–"));
    return;
  }
  const port = first.slice(first.lastIndexOf(":")).replace(/\/TCP$/, "");
  fill(cell, name(addressOf(first)), make("span", { class: "muted" }, port, others.length ? ` +${count(others.length)}` : null));
}

function splitName(service) {
  const slash = service.indexOf("/");
  return [service.slice(0, slash), service.slice(slash + 1)];
}

function showList(cell, texts, title) {
  cell.title = visible(title);
  const [first, ...others] = texts;
  const more = others.length ? make("span", { class: "muted" }, ` +${count(others.length)}`) : null;
  fill(cell, first === undefined ? make("span", { class: "muted" }, "–") : name(first), more);
}

function showClusters(cell, clusters) {
  const several = clusters.length > 1;
  const one = ({ cluster, share }, index) => [index ? ", " : null, name(cluster), several ? ` ${count(share)} %` : null];
  fill(cell, clusters.flatMap(one));
  cell.title = visible(clusters.map(({ cluster, share }) => `${cluster} ${share} %`).join("\n"));
}
