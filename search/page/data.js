/** How components get data: answers that are read again when an event says that they have changed. */

import { createContext, useContext, useEffect, useReducer, useRef, useState } from "hpsearch/html.js";

const PAUSE = 600; // ms at least between two reads of the same

export const Source = createContext(/** @type {any} */ (null));

/** @returns {any} the source of this page: see `source.js` */
export const useSource = () => useContext(Source);

/** @returns {{state: string, since: number, why: string}} whether what is shown is what is so */
export function useStatus() {
  const source = useSource();
  const [, again] = useReducer((n) => n + 1, 0);
  useEffect(() => source.watch(again), [source]);
  return source.status;
}

/** Call `hear` with each event, for as long as the component is there. */
export function useEvents(hear) {
  const source = useSource();
  const now = useRef(hear);
  now.current = hear;
  useEffect(() => source.listen((event) => now.current(event)), [source]);
}

/**
 * What a route answers, kept up to date.
 *
 * @param {string | null} path after v1/; null asks for nothing
 * @param {{kinds?: string[], study?: string | null, trial?: number | null, pages?: boolean, text?: boolean, every?: number}} [options]
 *   read again after an event of one of these kinds, about this study where one is named,
 *   of events about a trial those about this one where it is, and after so many ms;
 *   `pages`: all of them as one array; `text`: as it is sent
 * @returns {{value: any, problem: any, loading: boolean, reload: () => void}} `value` stays while it is read
 *   again, and where that fails
 */
export function useAnswer(path, { kinds = [], study = null, trial = null, pages = false, text = false, every = 0 } = {}) {
  const source = useSource();
  const [state, set] = useState({ path: null, value: undefined, problem: null });
  const reload = useRef(() => {});
  useEffect(() => {
    if (path === null) return undefined;
    let gone = false;
    let timer = 0;
    let busy = false;
    let again = false;
    let next = 0; // not before
    const read = async () => {
      timer = 0;
      busy = true;
      const began = performance.now();
      try {
        const value = await (text ? source.text(path) : pages ? source.list(path) : source.get(path));
        if (!gone) set({ path, value, problem: null });
      } catch (problem) {
        if (!gone) set((old) => ({ path, value: old.path === path ? old.value : undefined, problem }));
      }
      const now = performance.now();
      next = now + Math.max(PAUSE, 6 * (now - began)); // a busy server is asked less often
      busy = false;
      if (again) soon();
    };
    const soon = () => {
      again = busy || document.hidden; // nobody sees it: later
      if (!again && !timer && !gone) timer = setTimeout(read, Math.max(0, next - performance.now()));
    };
    reload.current = soon;
    read();
    const forget = source.listen((event) => {
      const of = (study === null || event.study === study) && (trial === null || event.kind !== "trial" || event.data.trial.number === trial);
      if ((kinds.includes(event.kind) && of) || event.kind === "reset") soon();
    });
    const ticking = every && !source.frozen ? setInterval(() => document.hidden || soon(), every) : 0;
    const seen = () => again && !document.hidden && soon();
    document.addEventListener("visibilitychange", seen);
    return () => {
      gone = true;
      clearTimeout(timer);
      clearInterval(ticking);
      document.removeEventListener("visibilitychange", seen);
      forget();
    };
  }, [source, path, kinds.join(), study, trial, pages, text, every]);
  const fits = state.path === path;
  return {
    value: fits ? state.value : undefined,
    problem: fits ? state.problem : null,
    loading: path !== null && (!fits || (state.value === undefined && state.problem === null)),
    reload: () => reload.current(),
  };
}

/** The list that was there before, where the new one has the same elements: what is derived from it stays. */
export function useSame(/** @type {any[]} */ list) {
  const last = useRef(list);
  const same = list.length === last.current.length && list.every((each, index) => each === last.current[index]);
  if (!same) last.current = list;
  return last.current;
}

/** The time, anew each so many ms while the page is seen: for what says how long ago something was. */
export function useNow(every = 1000) {
  const source = useSource();
  const [now, set] = useState(source.frozen ? source.status.since : Date.now());
  useEffect(() => {
    if (source.frozen) return undefined;
    const timer = setInterval(() => document.hidden || set(Date.now()), every);
    return () => clearInterval(timer);
  }, [source, every]);
  return now;
}
