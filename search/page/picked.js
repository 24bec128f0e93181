/** What is picked to be compared: trials and studies, in this tab, until it is closed.
 *
 * An entry is `study` or `study:3`, as the address of the comparison has it; the name is percent-encoded.
 */

import { useEffect, useReducer } from "hpsearch/html.js";
import { Listeners } from "hpsearch/listeners.js";

export const MOST = 20;
const KEY = `hpsearch picked ${location.pathname}`;
const listeners = new Listeners();
let picked = read();

function read() {
  try {
    const held = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
    return Array.isArray(held) ? held.filter((each) => typeof each === "string").slice(0, MOST) : [];
  } catch {
    return []; // no storage in a document that was opened from a file, say
  }
}

function set(/** @type {string[]} */ entries) {
  picked = [...new Set(entries)].slice(0, MOST);
  try {
    sessionStorage.setItem(KEY, JSON.stringify(picked));
  } catch {
    // they last as long as the document
  }
  listeners.tell();
}

/** @returns {{entries: string[], has: (entry: string) => boolean, toggle: (entry: string) => void, clear: () => void, full: boolean}} */
export function usePicked() {
  const [, again] = useReducer((n) => n + 1, 0);
  useEffect(() => listeners.add(again), []);
  return {
    entries: picked,
    has: (entry) => picked.includes(entry),
    toggle: (entry) => set(picked.includes(entry) ? picked.filter((each) => each !== entry) : [...picked, entry]),
    clear: () => set([]),
    full: picked.length >= MOST,
  };
}

export const entryOf = (study, trial = null) => `${encodeURIComponent(study)}${trial === null ? "" : `:${trial}`}`;

/** An entry's study and trial. */
export function partsOf(/** @type {string} */ entry) {
  const [name, trial] = entry.split(":");
  let study = name.trim();
  try {
    study = decodeURIComponent(study);
  } catch {
    // a name that somebody has typed as it is
  }
  return { study, trial: /^\d{1,9}$/.test(trial ?? "") ? Number(trial) : null };
}

/** The address of the comparison of entries. */
export const compared = (/** @type {string[]} */ entries) => `/compare?of=${entries.join(",").replaceAll("%", "%25")}`;

/** The entries of an address, or of what somebody has typed. */
export function entriesOf(/** @type {string | undefined} */ asked) {
  const all = (asked ?? "").split(",").map((each) => partsOf(each)).filter(({ study }) => study);
  return [...new Set(all.map(({ study, trial }) => entryOf(study, trial)))].slice(0, MOST);
}
