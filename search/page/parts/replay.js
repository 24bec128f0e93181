/** A search once more: how it stood at a moment, and the slider that chooses the moment. */

import { html, useEffect, useMemo, useState } from "hpsearch/html.js";
import { clock, counted, duration, number } from "hpsearch/format.js";

const LASTS = 12_000; // ms of a replay
const PARTS = 1000; // of the slider

/**
 * The rows and curves as they stood at a moment.
 *
 * When a trial reported what is not known: its values are spread evenly over its time.
 *
 * @param {any[]} rows @param {Map<number, {step: number[], value: number[]}>} curves @param {number} at ms
 */
export function asOf(rows, curves, at) {
  const then = [];
  const drawn = new Map();
  for (const row of rows) {
    const begun = Date.parse(row.started);
    if (!(begun <= at)) continue; // also one that has not begun
    const ended = row.ended === null ? Infinity : Date.parse(row.ended);
    const curve = curves.get(row.number);
    if (ended <= at) {
      then.push(row);
      if (curve) drawn.set(row.number, curve);
      continue;
    }
    then.push({ ...row, state: "running", value: null });
    if (!curve) continue;
    const points = Number.isFinite(ended) ? Math.floor((curve.step.length * (at - begun)) / (ended - begun)) : curve.step.length;
    if (points > 0) drawn.set(row.number, { step: curve.step.slice(0, points), value: curve.value.slice(0, points) });
  }
  return { rows: then, curves: drawn };
}

/** The best complete trial of a search among rows, as everywhere: others lasted less long; null while there is none. */
export function bestOf(rows, goal) {
  const sign = goal === "minimize" ? 1 : -1;
  const ended = rows.filter((row) => row.state === "complete" && row.value !== null && row.confirms === null);
  return ended.reduce((best, row) => (best === null || sign * (row.value - best.value) < 0 ? row : best), null);
}

/** When the first trial began and the last one ended, in ms; null where none has begun. */
function span(rows, now) {
  const begins = rows.map((row) => Date.parse(row.started)).filter(Number.isFinite);
  const ends = rows.filter((row) => row.started).map((row) => (row.ended === null ? now : Date.parse(row.ended)));
  return begins.length ? [Math.min(...begins), Math.max(...ends)] : null;
}

/** @param {{rows: any[], curves: Map<number, any>, goal: string, metric: string, now: number, children: Function}} props `children` draws {rows, curves, best} */
export function Replay({ rows, curves, goal, metric, now, children }) {
  const [part, set] = useState(PARTS);
  const [plays, play] = useState(false);
  const whole = useMemo(() => span(rows, now), [rows, now]);
  useEffect(() => {
    if (!plays) return undefined;
    let frame = 0;
    let last = performance.now();
    const turn = (moment) => {
      const passed = moment - last;
      last = moment;
      set((old) => {
        const next = old + (PARTS * passed) / LASTS;
        if (next >= PARTS) play(false);
        return Math.min(PARTS, next);
      });
      frame = requestAnimationFrame(turn);
    };
    frame = requestAnimationFrame(turn);
    return () => cancelAnimationFrame(frame);
  }, [plays]);
  const [begin, end] = whole ?? [now, now];
  const at = begin + ((end - begin) * part) / PARTS;
  const then = useMemo(() => (part >= PARTS ? { rows, curves } : asOf(rows, curves, at)), [rows, curves, part]);
  const best = bestOf(then.rows, goal);
  const toggle = () => {
    if (!plays && part >= PARTS) set(0);
    play(!plays);
  };
  return html`
    ${whole && html`<div class="replay row">
      <button type="button" onClick=${toggle} aria-pressed=${plays}>${plays ? "Stop" : "Replay"}</button>
      <input type="range" min="0" max=${PARTS} step="1" value=${Math.round(part)} aria-label="Moment of the search" aria-valuetext=${`${clock(at, now)}, ${counted(then.rows.length, "trials")}`}
        onInput=${(event) => {
          play(false);
          set(Number(event.target.value));
        }} />
      <span class="num soft">${duration((at - begin) / 1000) || "0 s"}: ${counted(then.rows.length, "trials")}${best ? `, best ${metric} ${number(best.value)} (trial ${best.number})` : ""}</span>
    </div>`}
    ${children({ ...then, best: best?.number ?? null })}
  `;
}
