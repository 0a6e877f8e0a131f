// The process: its table, where its objects come from and how fresh they are, and the gateways beside it.

import { byId, fill, make, name, setText, table } from "./dom.js";
import { count, counted, span } from "./format.js";

/** The line below the title. */
export function headline({ status }) {
  const table = status.role === "controller" ? [] : [`generation ${count(status.generation)}`, counted(status.frontends, "frontend")];
  return [...table, `up ${span(status.uptimeSeconds)}`, `Sheave ${status.version}`].join(" · ");
}

export function draw({ status, gateways }) {
  setText(byId("process-title"), status.role === "controller" ? "This controller" : "This gateway");
  const announcing = status.announcing && gateways ? gatewayTables(status, gateways) : [];
  fill(byId("facts"), make("dl", { class: "facts" }, facts(status).flatMap(fact)), sources(status), announcing);
}

function facts(status) {
  const { steering, announcing, controller, role, takeover } = status;
  // A controller forwards nothing.
  const forwards = role !== "controller";
  return [
    ["State", state(status)],
    forwards && ["Routing table", `generation ${count(status.generation)}${age(status.tableAgeSeconds)}`],
    ["Process", `started ${span(status.uptimeSeconds)} ago, ${status.role}, version ${status.version}`],
    steering && ["Frontends", frontends(status)],
    forwards && ["Snapshot", snapshot(status.source.snapshot)],
    forwards && ["Announcing", announcing ? announced(announcing) : "nothing: another load balancer or router brings packets here"],
    controller && ["Controller", leading(controller)],
    takeover && (takeover.seconds != null || takeover.failures > 0) && ["Hot upgrades", takeovers(takeover)],
    status.guard.length && ["Held lists", status.guard.map(held).join("; ")],
  ].filter(Boolean);
}

function frontends({ frontends, steering: { sockets, steered, kernel = 0, mode } }) {
  const closed = frontends - sockets - steered - kernel;
  const byKernel = kernel > 0 ? `, ${count(kernel)} by the kernel path` : "";
  const rest = closed > 0 ? `, ${count(closed)} closed` : "";
  return `${count(sockets)} by sockets of their own, ${count(steered)} by steering (${mode})${byKernel}${rest}`;
}

function fact([title, text]) {
  return [make("dt", {}, title), make("dd", { dir: "auto" }, text)];
}

function state(status) {
  const { draining, lameDuck, notReady, workerStuck } = status;
  if (draining) return "draining: nothing new is accepted, and open connections finish";
  if (lameDuck) return "about to drain: not ready any more, but still accepting";
  if (workerStuck) return "a worker does not answer";
  return notReady ? `not ready: ${notReady}` : status.role === "controller" ? "ready" : "serving";
}

function age(seconds) {
  return seconds == null ? "" : `, changed ${span(seconds)} ago`;
}

function snapshot(snapshot) {
  if (!snapshot) return "none: objects come from a folder";
  if (snapshot.error) return `${snapshot.path}: ${snapshot.error}`;
  return snapshot.ageSeconds == null ? `${snapshot.path}, not written yet` : `${snapshot.path}, written ${span(snapshot.ageSeconds)} ago`;
}

const STATES = {
  eligible: "may own addresses",
  holdDown: "waits before it owns addresses, until it has been heard for long enough",
  fenced: "owns no addresses, since too few gateways hear it",
  leaving: "hands its addresses over, since it is about to end",
};

function announced({ shared, state, heardBy, counted, addresses, announced }) {
  // By BGP each gateway announces what it can serve, and hears of no other.
  if (shared) return `${count(announced)} of ${count(addresses)} addresses, by BGP`;
  return `${STATES[state] ?? state}; ${count(announced)} of ${count(addresses)} addresses here; heard by ${heardBy} of ${counted} gateways`;
}

function leading({ leading, leader, gateways, services }) {
  if (!leading) return leader ? `${leader} leads; this one is on standby` : "none leads";
  return `this one leads; ${counted(gateways ?? 0, "gateway")} ready, ${counted(services ?? 0, "Service")} served`;
}

function takeovers({ seconds, failures }) {
  const took = seconds == null ? null : `this process took over within ${Math.max(1, Math.round(1000 * seconds))} ms`;
  const failed = failures ? `${counted(failures, "attempt")} to take over from it failed` : null;
  return [took, failed].filter(Boolean).join("; ");
}

function held({ kind, there, listed, remainingSeconds }) {
  return `${kind}: ${listed} listed where there were ${there}, believed in ${span(remainingSeconds)}`;
}

function sources({ source, karmada }) {
  const all = [["Source", source], ...(karmada ? [["Karmada", karmada]] : [])];
  const parts = all.map(([title, { server, fromSnapshot, kinds }]) => {
    const rows = kinds.map(({ kind, synced, objects, lastHeardSeconds, restarts, error }) => [
      kind,
      count(objects),
      synced ? "yes" : fromSnapshot ? "from the snapshot" : "no",
      lastHeardSeconds == null ? "–" : `${span(lastHeardSeconds)} ago`,
      count(restarts),
      error ? make("span", { class: "bad", dir: "auto" }, error) : "–",
    ]);
    // Files are not watched as an API server is.
    const columns = server ? 6 : 3;
    const where = server ? ["API server ", name(server)] : ["a folder of manifests"];
    const heads = ["Kind", "Objects", "Listed", "Last heard of", "Listed again", "Error"];
    return make("div", {}, make("h3", {}, `${title}: `, ...where), table(title, heads.slice(0, columns), rows.map((cells) => cells.slice(0, columns)), [1, 4]));
  });
  return make("div", { class: "sources" }, parts);
}

function gatewayTables({ node }, { shared, members, addresses, tieBreaker }) {
  const states = { candidate: "alive", notAlive: "dead", notEligible: "waiting" };
  const isSilent = (it) => it.state === "candidate" && !it.heard && !it.heardVia && it.node !== node;
  const rows = members.map((it) => [
    make("span", {}, name(it.node), it.node === node ? make("span", { class: "muted" }, " (here)") : null),
    it.address ?? "–",
    make("span", { class: it.state === "notAlive" ? "bad" : "" }, isSilent(it) ? "silent" : (states[it.state] ?? it.state)),
    it.node === node ? "–" : it.heard ? `${count(it.silentMilliseconds ?? 0)} ms ago` : it.heardVia ? `by ${it.heardVia}` : "no",
    it.roundTripMilliseconds == null ? "–" : `${count(it.roundTripMilliseconds)} ms`,
    make("span", { class: it.disagreement ? "bad" : "" }, it.disagreement ? `no: ${it.disagreement}` : it.agrees ? "yes" : "no"),
    it.ready ? "yes" : "no",
  ]);
  const breaker = tieBreaker ? make("p", { class: "muted" }, `The tie-breaker ${tieBreaker.address} ${tieBreaker.reachable ? "answers" : "does not answer"}.`) : null;
  const failed = shared ? addresses.filter((it) => it.state) : addresses;
  const troubled = failed.map((it) => [name(it.address), name(it.owner ?? "–"), `${it.state || "no owner"}: ${it.message}`]);
  return [
    shared ? null : make("h3", {}, "Gateways"),
    shared ? null : table("Gateways", ["Node", "Address", "State", "Heard", "Round trip", "Agrees", "Ready"], rows, [4]),
    breaker,
    troubled.length ? make("h3", {}, "Addresses that are not simply announced") : null,
    troubled.length ? table("Addresses", ["Address", "Owner", "Here"], troubled) : null,
  ].filter(Boolean);
}
