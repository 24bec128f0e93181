/** Numbers and times as the command line prints them. */

/** A value as Python's `.6g` has it; empty for none. */
export function number(value, digits = 6) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value; // "nan", "inf"
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= digits) {
    const sign = exponent < 0 ? "-" : "+";
    return `${trimmed(mantissa)}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  return trimmed(value.toFixed(digits - 1 - exponent));
}

const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** A whole number with commas. */
export const whole = (count) => Math.round(count).toLocaleString("en-US");

/** `1 trial`, `1,200 trials`. */
export const counted = (count, things) => `${whole(count)} ${count === 1 ? things.replace(/s$/, "") : things}`;

/** `45 s`, `30 min`, `1 h 30 min`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${number(seconds, 3)} s`;
  const all = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  const parts = [[hours, "h"], [minutes, "min"], [hours ? 0 : rest, "s"]];
  return parts.filter(([count]) => count).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

/** About how long, in one unit: `40 s`, `12 min`, `3.5 h`, `2 days`. */
export function about(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${trimmed((seconds / 3600).toFixed(1))} h`;
  return counted(Math.round(seconds / 86400), "days");
}

/** How long ago a moment was. */
export const ago = (moment, now) => `${about(Math.max(0, (now - Date.parse(moment)) / 1000))} ago`;

/** A moment as a clock shows it, with its day where that is not today. */
export function clock(moment, now = Date.now()) {
  const at = new Date(moment);
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (at.toDateString() === new Date(now).toDateString()) return time;
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** An amount of memory, or the size of a file. */
export function bytes(amount) {
  if (amount < 1024) return counted(amount, "bytes");
  const [size, unit] = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([least]) => amount >= least) ?? [1, ""];
  return `${number(amount / size, 3)} ${unit}`;
}

/** Numbers in few words: `0-3, 6`. */
export function spans(/** @type {number[]} */ numbers) {
  const found = [];
  for (const each of numbers) {
    const last = found.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else found.push([each, each]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

/** A configuration's value as a space file has it. */
export function setting(value) {
  if (typeof value === "number") return number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Words that go on from something, as a sentence of their own. */
export const sentence = (/** @type {string} */ text) => text && `${text[0].toUpperCase()}${text.slice(1)}${/[.:]$/.test(text) ? "" : "."}`;
