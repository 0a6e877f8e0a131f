// Who gets what: clusters and endpoints with the share that is intended next to the one that is measured.

import { make, name, setText, table } from "./dom.js";
import { count, counted, span } from "./format.js";

/** Endpoints that are listed; `sheave explain` has all. */
const LISTED = 200;

const percent = (part, total) => (total > 0 ? `${count((100 * part) / total)} %` : "–");

/** A share as a bar, with a mark where it should end. */
class Meter {
  constructor(intended) {
    this.bar = make("i");
    const mark = intended == null ? null : make("b");
    if (mark) mark.style.left = `${intended}%`;
    this.text = make("span", {}, "–");
    this.element = make("span", { class: "meter" }, make("span", { "aria-hidden": "true" }, this.bar, mark), this.text);
  }

  update(part, total) {
    this.bar.style.width = total > 0 ? `${(100 * part) / total}%` : "0";
    setText(this.text, percent(part, total));
  }
}

/** The clusters of a Service. */
export class ClusterTable {
  constructor(all) {
    this.meters = all.map(({ cluster, share }) => [cluster, new Meter(share)]);
    const rows = all.map(({ cluster, serving, unhealthy = 0, of, share }, index) => [
      name(cluster),
      `${count(serving - unhealthy)}/${count(of)}`,
      unhealthy ? count(unhealthy) : "–",
      `${share} %`,
      this.meters[index][1].element,
    ]);
    this.element = table("Clusters", ["Cluster", "Healthy", "Unhealthy", "Intended share", "Measured share"], rows, [1, 2, 3]);
  }

  update(measured) {
    for (const [cluster, meter] of this.meters) meter.update(measured.of(cluster).picks, measured.total);
  }
}

/** Every endpoint of an answer, and what becomes of it; `isMeasured` adds what it really gets. */
export class EndpointTable {
  #measured = [];

  constructor({ endpoints, allEndpoints }, isMeasured = false) {
    const total = allEndpoints?.count ?? endpoints.length;
    if (!endpoints.length) {
      this.element = make("p", { class: "muted" }, total ? `It has ${counted(total, "endpoint")}, which the gateway itself lists.` : "It has no endpoints.");
      return;
    }
    const several = endpoints.some(({ cluster }) => cluster);
    const used = endpoints.filter((it) => it.used).length;
    const isPlain = total === endpoints.length && endpoints.every(({ share, weight }) => share == null && weight == null);
    const intended = (it) => (it.share != null ? it.share : isPlain && it.used ? 100 / used : null);
    const heads = ["Endpoint", "State", several ? "Cluster" : null, "Node", "Zone", isMeasured ? "Intended" : "Used"];
    heads.push(isMeasured ? "Measured" : null, isMeasured ? "Open" : null, "Why");
    const rows = endpoints.slice(0, LISTED).map((it) => {
      const share = intended(it);
      const text = !it.used ? "no" : share == null || (!isMeasured && it.share == null) ? "yes" : `${count(share)} %`;
      const meter = new Meter(it.used ? share : 0);
      const open = make("span", {}, "–");
      this.#measured.push({ cluster: it.cluster, address: it.address, meter, open });
      return [
        name(it.address || "–"),
        make("span", { class: it.unhealthy ? "bad" : it.state === "Ready" && it.used ? "ok" : "dim" }, it.unhealthy ? `${it.state}, unhealthy` : it.state),
        name(it.cluster || "–"),
        make("span", {}, name(it.node || "–"), it.local ? make("span", { class: "muted" }, " (here)") : null),
        name(it.zone || "–"),
        text,
        meter.element,
        open,
        make("span", { dir: "auto" }, it.reason),
      ];
    });
    const kept = (cells) => cells.filter((_, column) => heads[column] !== null);
    const left = total - Math.min(endpoints.length, LISTED);
    this.element = make(
      "div",
      {},
      table("Endpoints", kept(heads), rows.map(kept)),
      left > 0 ? make("p", { class: "muted" }, `and ${counted(left, "more endpoint")}`) : null,
    );
  }

  update(measured) {
    for (const { cluster, address, meter, open } of this.#measured) {
      const { picks, open: now } = measured.of(cluster, address);
      meter.update(picks, measured.total);
      setText(open, count(now));
    }
  }
}

/** How many connections a measured share is of. */
export function basis({ total, seconds }) {
  if (!total) return "Shares are measured once a connection comes.";
  return `Measured over ${counted(total, "connection")}${seconds === null ? ", all that this gateway counted" : ` of the last ${span(seconds)}`}.`;
}

/** What decides besides endpoints, as a list. */
export function notes({ reasons, endpoints, closed }) {
  // Those of endpoints are in their table.
  const isTabled = (reason) => endpoints.some((it) => reason.startsWith(`${it.address} (`) && reason.endsWith(`: ${it.reason}`));
  const all = [...(closed ? [closed] : []), ...reasons.filter((reason) => !isTabled(reason))];
  return make("ul", { class: "notes" }, all.map((reason) => make("li", { dir: "auto" }, reason)));
}
