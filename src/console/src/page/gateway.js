// The page of a gateway: joins its parts to the stream of events, and keeps in its address what is searched for and asked.

import { byId, setText } from "./dom.js";
import { Explain } from "./explain.js";
import { Findings } from "./findings.js";
import { addressWith, askedFor, begin, queryOf, sayConnection, sayVerdict } from "./frame.js";
import * as process from "./process.js";
import { Services } from "./services.js";
import { follow } from "./stream.js";
import { TotalTraffic } from "./traffic.js";

const findings = new Findings({ reveal: (object) => services.reveal(object) });
const services = new Services({
  explain: (service, frontend) => explain.about(service, frontend),
  trace: (service, frontend) => explain.traceTo(service, frontend),
  changed: () => keep(),
  needs: (kinds) => bring(kinds),
  unreadable: () => findings.files,
});
const explain = new Explain({
  suggestions: (text, most) => services.suggestions(text, most),
  frontends: (service) => services.frontends(service),
  find: (text) => services.find(text),
  changed: () => keep(true),
});
const total = new TotalTraffic({ reveal: (object) => services.reveal(object) });

let restored = false;
/** What the address has asked for so far. */
let kept = "";

/** Keeps the question and the search in the address. A question is a step in the browser's history, a letter of the search is none. */
function keep(isStep = false) {
  if (!restored) return;
  const query = queryOf({ ...services.query, ...explain.query });
  if (isStep && query !== location.search.slice(1)) history.pushState(null, "", addressWith(query));
  else history.replaceState(null, "", addressWith(query));
  kept = location.search;
}

/** Shows what the address of the page asks for. */
function restore() {
  restored = false;
  kept = location.search;
  const query = askedFor();
  services.restore(query);
  explain.restore(query);
  restored = true;
}

function verdict() {
  const manner = { broken: "bad", degraded: "warned" }[findings.worst] ?? "";
  sayVerdict(findings.count, manner, byId("node").textContent);
  place();
}

/** What is wrong comes first, and the traffic if nothing is. */
function place() {
  if (!findings.isKnown) return;
  const [problems, traffic] = [byId("problems"), byId("traffic")];
  const isCalm = findings.count === 0;
  const isAbove = Boolean(traffic.compareDocumentPosition(problems) & Node.DOCUMENT_POSITION_FOLLOWING);
  // What has the focus would lose it.
  if (isAbove === isCalm || traffic.contains(document.activeElement)) return;
  if (isCalm) problems.before(traffic);
  else problems.after(traffic);
}

const bring = follow("api/live", {
  events: ["status", "findings", "services", "traffic", "history", "stuck", "serviceTraffic", "endpointTraffic"],
  status(event) {
    setText(byId("node"), event.status.node);
    setText(byId("headline"), process.headline(event));
    process.draw(event);
    findings.stuck(null);
    findings.takeStatus(event);
    verdict();
  },
  findings(event) {
    services.takeCounts(event.services);
    findings.takeObjects(event);
    services.sayNone();
    verdict();
  },
  services: (event) => services.take(event),
  traffic(event) {
    total.take(event);
    services.refreshTraffic();
  },
  history: (event) => total.restart(event),
  serviceTraffic: (event) => services.takeServiceTraffic(event),
  endpointTraffic: (event) => services.takeEndpointTraffic(event),
  stuck(why) {
    findings.stuck(why);
    verdict();
  },
  connection(live, since) {
    const at = since.toLocaleTimeString("en-GB");
    sayConnection(live ? "live" : `not live since ${at}`, live);
    if (live) return;
    findings.stuck(`it does not answer, so that what you see is as of ${at}: check that it runs, and the way to it; this page tries again by itself`);
    verdict();
  },
});

begin();
restore();
// A link within the page is a step as well, and changes no question.
addEventListener("popstate", () => location.search === kept || restore());
