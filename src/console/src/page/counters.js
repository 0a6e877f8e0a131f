// Counters of all rows, which the stream brings while something on the page needs them: of every Service to sort by rates, of every
// endpoint to measure shares.

/** Rows by their number, as the stream's events change them. */
class NumberedRows {
  rows = new Map();
  uptime = 0;

  /** Takes an event in; gives the milliseconds since the one before, 0 for the first one of a process. */
  take({ uptimeMilliseconds: uptime, reset, gone, rows, counts }) {
    const elapsed = this.uptime && uptime > this.uptime ? uptime - this.uptime : 0;
    this.uptime = uptime;
    if (reset) this.rows.clear();
    for (const id of gone) this.rows.delete(id);
    for (const label of rows) this.rows.set(label.id, { counts: null, ...this.rows.get(label.id), label });
    for (const [id, now] of counts) {
      const row = this.rows.get(id);
      if (row) row.counts = now;
    }
    return elapsed;
  }
}

/** How much of a rate is of the last second, lest the order of rows changes by chance. */
const FRESH = 0.3;
/** Where `serviceTraffic` has these counters. */
const [OPENED, CLIENT_BYTES, ENDPOINT_BYTES, ERRORS] = [0, 2, 3, 5];

const NONE = { opened: 0, bytes: 0, errors: 0 };

/** Rates of all Services. */
export class ServiceRates {
  #numbered = new NumberedRows();
  #rates = new Map();

  take(event) {
    const elapsed = this.#numbered.take(event);
    const rates = new Map();
    for (const row of this.#numbered.rows.values()) {
      const { counts, before, label } = row;
      row.before = counts;
      const key = `${label.source} ${label.service}`;
      const last = this.#rates.get(key) ?? NONE;
      // Most of thousands are quiet.
      if (!elapsed || !before || (counts === before && last === NONE)) {
        rates.set(key, last);
        continue;
      }
      const per = (...columns) => columns.reduce((sum, at) => sum + Math.max(0, counts[at] - before[at]), 0) / (elapsed / 1000);
      const mean = (was, now) => was + FRESH * (now - was);
      rates.set(key, {
        opened: mean(last.opened, per(OPENED)),
        bytes: mean(last.bytes, per(CLIENT_BYTES, ENDPOINT_BYTES)),
        errors: mean(last.errors, per(ERRORS)),
      });
    }
    this.#rates = rates;
  }

  of(key) {
    return this.#rates.get(key);
  }
}

/** Seconds over which shares are measured, and the connections that they take; with fewer, all that were counted are. */
const WINDOW = 60;
const ENOUGH = 20;

/** Measured shares of the endpoints of some Services. */
export class EndpointShares {
  #numbered = new NumberedRows();
  #followed = new Map();

  /** Measures the shares of a Service from now on. */
  follow(key) {
    this.#followed.set(key, []);
  }

  forget(key) {
    this.#followed.delete(key);
  }

  /** Whether anything is measured. */
  get isNeeded() {
    return this.#followed.size > 0;
  }

  take(event) {
    if (!this.#numbered.take(event)) for (const key of this.#followed.keys()) this.#followed.set(key, []);
    const now = new Map([...this.#followed.keys()].map((key) => [key, new Map()]));
    for (const { label, counts } of this.#numbered.rows.values()) {
      const rows = now.get(`${label.source} ${label.service}`);
      if (counts) rows?.set(`${label.cluster} ${label.endpoint}`, { cluster: label.cluster, endpoint: label.endpoint, counts });
    }
    for (const [key, rows] of now) {
      const moments = [...this.#followed.get(key), { at: this.#numbered.uptime, rows }];
      this.#followed.set(key, moments.slice(-WINDOW - 1));
    }
  }

  /**
   * How often each endpoint of a Service was chosen, and its open connections: `{ seconds, total, of(cluster, endpoint) }`, and the sums
   * of a cluster with `endpoint` left out; null if it is not known. Without `seconds` it is since the gateway counts.
   */
  measured(key) {
    const moments = this.#followed.get(key) ?? [];
    if (!moments.length) return null;
    const [first, last] = [moments[0], moments.at(-1)];
    const picked = (isRecent) => [...last.rows].map(([id, row]) => row.counts[0] - (isRecent ? (first.rows.get(id)?.counts[0] ?? 0) : 0));
    const sum = (all) => all.reduce((total, picks) => total + Math.max(0, picks), 0);
    const isRecent = sum(picked(true)) >= ENOUGH;
    const picks = picked(isRecent);
    const rows = [...last.rows.values()].map((row, index) => ({ ...row, picks: Math.max(0, picks[index]), open: row.counts[1] }));
    const of = (cluster, endpoint = null) => {
      const own = rows.filter((it) => (!cluster || it.cluster === cluster) && (endpoint === null || it.endpoint === endpoint));
      return { picks: sum(own.map((it) => it.picks)), open: sum(own.map((it) => it.open)) };
    };
    const seconds = isRecent ? Math.round((last.at - first.at) / 1000) : null;
    return { seconds, total: sum(picks), of };
  }
}
