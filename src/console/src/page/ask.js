// Questions to the admin server, asked once, or again and again while somebody looks.

/** The answer to a question, or `{ error }` that says why there is none; what is empty is not asked. */
export async function ask(path, question = {}) {
  const query = new URLSearchParams(Object.entries(question).filter(([, value]) => value));
  try {
    const response = await fetch(`${path}?${query}`);
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.startsWith("application/json");
    return isJson ? JSON.parse(text) : { error: text.trim() || `The gateway answers ${response.status}.`, status: response.status };
  } catch {
    return { error: "The gateway does not answer." };
  }
}

/** The gateway takes plain names alone; objects of manifests may have others, which are not served. */
export const isPlain = (service) => /^[A-Za-z0-9.-]+(\/[A-Za-z0-9.-]+)+$/.test(service);

/** How `/api/explain` and `/api/trace` name a Service, one of its frontends, and a client. */
export function question(service, source, frontend, client) {
  const [namespace, name, ...listener] = service.split("/");
  const asked = { service: `${namespace}/${name}`, listener: listener.join("/"), client };
  if (source === "MultiClusterService") asked.multiCluster = "true";
  if (source === "Gateway") asked.kind = "gateway";
  const place = /^\[?(.*?)\]?:(\d+)\/(\w+)$/.exec(frontend ?? "");
  if (place) ["address", "port", "protocol"].forEach((key, index) => (asked[key] = place[index + 1]));
  return asked;
}

/** How `/api/history` names a Service or a listener; null if there is no past to ask for. */
export function pastOf({ service, source }) {
  if (!isPlain(service)) return null;
  if (source === "Gateway") return service.split("/").length === 3 ? { listener: service } : null;
  return source === "MultiClusterService" ? { multiClusterService: service } : { service };
}

/** Between an answer and the next question: the gateway takes a sample as often. */
const EVERY = 10_000;

/** Calls `act` now and again and again, one at a time, and never while the page is hidden; gives what ends that. */
export function repeat(act) {
  let timer = null;
  let running = false;
  let ended = false;
  const go = async () => {
    clearTimeout(timer);
    if (running || ended || document.visibilityState !== "visible") return;
    running = true;
    await act();
    running = false;
    if (!ended) timer = setTimeout(go, EVERY);
  };
  document.addEventListener("visibilitychange", go);
  go();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", go);
  };
}
