/** Colours that the colour-blind tell apart, on a light and on a dark ground. */

import { useEffect, useReducer } from "hpsearch/html.js";
import { share } from "hpsearch/scale.js";

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** Draw again when the ground turns dark or light. @returns {boolean} whether it is dark */
export function useDark() {
  const [, again] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    dark.addEventListener("change", again);
    return () => dark.removeEventListener("change", again);
  }, []);
  return dark.matches;
}

/** A colour of `page.css`, for a canvas. */
export const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Of each state of a trial. */
export const STATE_INKS = { complete: "green", pruned: "grey", fail: "red", running: "blue", paused: "orange", waiting: "purple" };
export const CLASS_INKS = ["blue", "orange", "green", "purple", "sky", "red", "grey"];

const VIRIDIS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37],
];

/** A colour of a scale that rises in lightness; a share from 0 to 1. */
export function shade(/** @type {number} */ part) {
  const [low, high] = dark.matches ? [0.3, 1] : [0, 0.82]; // what would vanish in the ground is left out
  const at = (low + Math.min(1, Math.max(0, part)) * (high - low)) * (VIRIDIS.length - 1);
  const index = Math.min(VIRIDIS.length - 2, Math.floor(at));
  const mixed = VIRIDIS[index].map((from, k) => Math.round(from + (at - index) * (VIRIDIS[index + 1][k] - from)));
  return `rgb(${mixed.join(" ")})`;
}

/**
 * How trials are coloured.
 *
 * @param {string} by "state", "value", or the name of a parameter
 * @returns {{of: (row: any) => string, classes: [string, string][], ends: [any, any] | null}} `classes`: words and
 *   colours for a legend; `ends`: of a scale instead
 */
export function colouring(by, rows, log = false) {
  if (by === "state") {
    const classes = Object.entries(STATE_INKS).filter(([state]) => rows.some((row) => row.state === state));
    const inks = Object.fromEntries(classes.map(([state, name]) => [state, ink(name)]));
    return { of: (row) => inks[row.state] ?? ink("grey"), classes: Object.entries(inks), ends: null };
  }
  const value = by === "value" ? (row) => (row.state === "complete" ? row.value : null) : (row) => row.params[by];
  const present = rows.map(value).filter((each) => each !== null && each !== undefined);
  if (present.length && present.every((each) => typeof each === "number")) {
    const scale = log ? Math.log : (x) => x;
    const least = present.reduce((a, b) => Math.min(a, b));
    const most = present.reduce((a, b) => Math.max(a, b));
    const none = ink("line");
    return {
      of: (row) => (typeof value(row) === "number" ? shade(share(scale(value(row)), scale(least), scale(most))) : none),
      classes: [],
      ends: [least, most],
    };
  }
  const names = [...new Set(present.map(String))].sort();
  const inks = Object.fromEntries(names.map((name, index) => [name, ink(CLASS_INKS[index % CLASS_INKS.length])]));
  return { of: (row) => inks[String(value(row))] ?? ink("line"), classes: Object.entries(inks), ends: null };
}
