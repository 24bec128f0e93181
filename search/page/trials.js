/** The trials of a study and their curves, as they change: read once, drawn as they come, then kept by events. */

import { useEffect, useState } from "hpsearch/html.js";
import { useSource } from "hpsearch/data.js";
import { ofStudy } from "hpsearch/routes.js";

const POINTS = 80; // of a curve that is read
const ALL_POINTS = 120_000; // of all curves together
const FEWEST = 8;
const DRAWN = 250; // ms between two drawings of what has changed

const NONE = { rows: [], curves: new Map(), loading: true, problem: null };

/** The paths that a frozen source needs for this. */
const newestPath = (study) => `${ofStudy(study, "trials")}?sort=newest&limit=1`;
export const trialsPath = (study) => `${ofStudy(study, "trials")}?limit=1000`;
export function curvesPath(study, trials, after = null) {
  const points = Math.max(FEWEST, Math.min(POINTS, Math.floor(ALL_POINTS / Math.max(1, trials))));
  return `${ofStudy(study, "curves")}?points=${points}&limit=1000${after === null ? "" : `&after=${after}`}`;
}

/** A number that JSON has no word for. */
export const finite = (value) => (typeof value === "string" ? Number(value.replace("inf", "Infinity")) : value);

/**
 * @returns {{rows: any[], curves: Map<number, {step: number[], value: number[]}>, loading: boolean, problem: any}}
 *   rows by number; both are new objects where anything has changed
 */
export function useTrials(study) {
  const source = useSource();
  const [state, set] = useState(NONE);
  useEffect(() => {
    let gone = false;
    let timer = 0;
    let rows = new Map();
    let curves = new Map();
    let missed = []; // events since the reading began
    let reading = false;

    const draw = () => {
      timer = 0;
      const sorted = [...rows.values()].sort((a, b) => a.number - b.number);
      if (!gone) set({ rows: sorted, curves: new Map(curves), loading: false, problem: null });
    };
    const soon = () => (timer ||= setTimeout(draw, DRAWN));
    const merge = ({ trial, reports }) => {
      rows.set(trial.number, trial);
      const old = curves.get(trial.number) ?? { step: [], value: [] };
      const fresh = reports.filter(([step]) => !old.step.length || step > old.step.at(-1));
      if (fresh.length) {
        const value = [...old.value, ...fresh.map(([, each]) => finite(each))];
        curves.set(trial.number, { step: [...old.step, ...fresh.map(([step]) => step)], value });
      }
    };
    const read = async () => {
      if (reading) return;
      reading = true;
      missed = [];
      const first = rows.size === 0;
      const [listed, some] = [new Map(), new Map()];
      let drawn = 0;
      const come = () => {
        const there = Math.min(listed.size, some.size);
        if (!first || gone || there <= 2 * drawn) return; // each drawing takes as long as all before
        drawn = there;
        set({ rows: [...listed.values()], curves: new Map(some), loading: true, problem: null });
      };
      try {
        const [newest] = await source.get(newestPath(study));
        const rest = async () => {
          for await (const page of source.pages(trialsPath(study))) {
            for (const row of page) listed.set(row.number, row);
            come();
          }
        };
        await Promise.all([rest(), readCurves(source, study, newest ? newest.number + 1 : 0, some, come)]);
        rows = listed;
        curves = some;
        missed.forEach(merge);
        draw();
      } catch (problem) {
        if (!gone) set((old) => ({ ...old, loading: false, problem }));
      }
      reading = false;
    };
    read();
    const forget = source.listen((event) => {
      if (event.kind === "reset") read();
      if (event.kind !== "trial" || event.study !== study) return;
      if (reading) missed.push(event.data);
      else {
        merge(event.data);
        soon();
      }
    });
    return () => {
      gone = true;
      clearTimeout(timer);
      forget();
    };
  }, [source, study]);
  return state;
}

async function readCurves(source, study, trials, found, come) {
  for (let after = null, more = true; more; ) {
    const page = await source.get(curvesPath(study, trials, after));
    page.trial.forEach((number, index) =>
      found.set(number, { step: page.step[index], value: page.value[index].map(finite) }),
    );
    come();
    more = page.more && page.trial.length > 0;
    after = page.trial.at(-1);
  }
}
