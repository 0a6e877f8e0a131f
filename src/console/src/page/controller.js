// The page of a controller: asks it again and again for the state of all gateways while the page is seen.

import { AllGateways } from "./all_gateways.js";
import { byId, setText } from "./dom.js";
import { ExplainAll } from "./explain_all.js";
import { counted } from "./format.js";
import { addressWith, askedFor, begin, queryOf, sayConnection, sayVerdict } from "./frame.js";
import * as process from "./process.js";

/** Between an answer and the next question. */
const EVERY = 5000;

const gateways = new AllGateways({ changed: keep });
const explain = new ExplainAll({ changed: keep });

let restored = false;
let failed = null;
let since = new Date();

/** Keeps the question and the search in the address, without a step in the browser's history for each letter. */
function keep() {
  if (!restored) return;
  history.replaceState(null, "", addressWith(queryOf({ ...gateways.query, ...explain.query })));
}

function verdict() {
  const count = gateways.count + (failed ? 1 : 0);
  sayVerdict(count, count ? "bad" : "", "all gateways");
}

async function get(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.json();
}

async function refresh() {
  try {
    const [view, status] = await Promise.all([get("api/fleet"), get("api/status")]);
    gateways.take(view);
    setText(byId("headline"), `${counted(view.gateways.length, "gateway")} · ${view.leader ? `${view.leader} leads` : "no controller leads"}`);
    process.draw({ status });
    failed = null;
    since = new Date();
  } catch (error) {
    failed = error instanceof TypeError ? "the controller does not answer" : error.message;
  }
  const at = since.toLocaleTimeString("en-GB");
  sayConnection(failed ? `not live since ${at}: ${failed}` : `as of ${at}`, failed === null);
  verdict();
}

/** One question at a time, and none while nobody looks. */
let timer = null;
let asking = false;

async function follow() {
  clearTimeout(timer);
  if (asking || document.visibilityState !== "visible") return;
  asking = true;
  await refresh();
  asking = false;
  timer = setTimeout(follow, EVERY);
}

document.addEventListener("visibilitychange", follow);
begin();
const query = askedFor();
gateways.restore(query);
explain.restore(query);
restored = true;
follow();
