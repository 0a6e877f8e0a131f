// The stream of events: opened while the page is seen, opened again where it ended.

/** A stream that ends by itself is back within this time; only then people are told. */
const GRACE = 4000;
const RETRY = 3000;
/** Rows are opened and sorted one after the other; the stream is asked for what all of them need. */
const TURN = 100;

/**
 * Calls `handlers[event](data)` for each event, and `handlers.connection(live, since)` when it comes and goes. Gives a function that takes
 * the kinds of rows whose counters the stream has to bring as well.
 */
export function follow(url, handlers) {
  let source = null;
  let last = null;
  let traffic = "";
  let turning = null;
  let silent = null;
  let since = new Date();
  const heard = () => {
    clearTimeout(silent);
    silent = setTimeout(lost, GRACE);
    since = new Date();
    handlers.connection(true, since);
  };
  const lost = () => {
    handlers.connection(false, since);
    // A connection that hangs says nothing: begin anew.
    reopen();
  };
  const close = () => {
    clearTimeout(silent);
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    const query = new URLSearchParams(Object.entries({ lastEvent: last, traffic }).filter(([, value]) => value));
    source = new EventSource(query.size ? `${url}?${query}` : url);
    for (const name of handlers.events) {
      source.addEventListener(name, (event) => {
        heard();
        handlers[name](JSON.parse(event.data));
        if (event.lastEventId) last = event.lastEventId;
      });
    }
    source.onerror = () => {
      if (source?.readyState === EventSource.CLOSED) silent = setTimeout(lost, RETRY);
    };
    silent = setTimeout(lost, GRACE);
  };
  const reopen = () => {
    if (document.visibilityState === "visible") open();
  };
  // A browser has few connections to a server: hidden pages leave them to others.
  document.addEventListener("visibilitychange", () => (document.visibilityState === "visible" ? open() : close()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && reopen());
  reopen();
  return (kinds) => {
    const wanted = kinds.join(",");
    if (wanted === traffic) return;
    traffic = wanted;
    clearTimeout(turning);
    turning = setTimeout(reopen, TURN);
  };
}
