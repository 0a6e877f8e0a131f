// How numbers and foreign text are shown; formats.json holds the numbers of this file and those of `sheave top` to the same results.

// What changes other text, or cannot be seen: control characters, line and paragraph separators, direction marks, zero-width
// characters, variation selectors, tags.
const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

/** The text with an escape for each character that cannot be seen as it is. */
export function visible(text) {
  return String(text).replace(UNSEEN, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}

const integers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fractions = new Intl.NumberFormat("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 });

/** A count: 12,345. */
export function count(number) {
  return integers.format(number);
}

/** `1 Service`, `2 Services`. */
export function counted(number, one, several = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : several}`;
}

/** A rate per second, in at most five characters: 0, 0.4, 17, 1,204, 12k, 3.4M. */
export function rate(number) {
  if (number >= 9_999.5) {
    return scaled(number, ["", "k", "M", "G", "T"]);
  }
  return number > 0 && number < 9.95 ? fractions.format(number) : count(number);
}

/** Bytes: 0 B, 812 B, 1.2 kB, 34 MB. */
export function bytes(number) {
  return number < 999.5 ? `${count(number)} B` : scaled(number, [" B", " kB", " MB", " GB", " TB", " PB", " EB"]);
}

function scaled(number, units) {
  let unit = 0;
  while (number >= 999.5 && unit + 1 < units.length) {
    number /= 1000;
    unit += 1;
  }
  return (number < 9.95 && unit > 0 ? fractions.format(number) : count(number)) + units[unit];
}

/** A short duration, such as that of a connect: 0.5 ms, 50 ms, 1 s. */
export function duration(seconds) {
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : `${Number(seconds.toPrecision(3))} s`;
}

/** As much of a duration as people read: 42 s, 3 min, 5 h 20 min, 9 d 4 h. */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [minutes, hours, days] = [60, 3600, 86_400].map((unit) => Math.floor(whole / unit));
  if (whole < 120) return `${whole} s`;
  if (whole < 7_200) return `${minutes} min`;
  if (whole < 172_800) return `${hours} h ${minutes % 60} min`;
  return `${days} d ${hours % 24} h`;
}
