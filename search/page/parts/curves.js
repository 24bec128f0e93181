/** The curves of trials, thousands at once: coloured by state, by their values, or by a parameter. */

import { html, useMemo, useRef, useState } from "hpsearch/html.js";
import { colouring, ink, useDark } from "hpsearch/colours.js";
import { number, setting, whole } from "hpsearch/format.js";
import { Legend } from "hpsearch/parts/legend.js";
import { Plot } from "hpsearch/parts/plot.js";

/** What a report says of curves that have more reports than it holds. */
export const THINNED = "Long curves are drawn by some of their reports: the first, the last, and the extremes in between.";
const REACH = 14; // pixels from a curve at which it is the nearest
const MANY = 300; // curves of which each is one pixel wide: a wider line takes six times as long
const ORDER = { fail: 0, pruned: 0, waiting: 1, paused: 2, complete: 3, running: 4 };

/**
 * @param {{rows: any[], curves: Map<number, {step: number[], value: number[]}>, metric: string, resource: string, searched: string[], logs: Set<string>,
 *   rungs?: number[], best?: number | null, picked?: number | null, onPick?: (trial: number) => void, height?: number}} props
 */
export function Curves({ rows, curves, metric, resource, searched, logs, rungs = [], best = null, picked = null, onPick, height = 340 }) {
  const [by, setBy] = useState("state");
  const [log, setLog] = useState(false);
  const [near, setNear] = useState(/** @type {any} */ (null));
  const isDark = useDark();
  const { base, fresh } = useBase(rows, curves);
  const drawn = useMemo(() => [...base, ...fresh], [base, fresh]);
  const few = base.length < MANY;
  const bulk = useMemo(() => bulkOf(few ? drawn : base), [few ? drawn : base]);
  const { x, y, positive } = extent(bulk, fresh);
  const inks = useMemo(() => colouring(by, drawn.map(({ row }) => row), logs.has(by)), [by, drawn, isDark]);
  const scale = by === "state" ? "" : `${inks.classes} ${inks.ends}`; // by which the colours of the base change
  const useLog = log && positive;
  const shown = near ?? picked;

  const paint = (ctx, at, some) => {
    const many = drawn.length > MANY;
    const clear = Math.min(0.85, Math.max(0.12, (many ? 10 : 7) / Math.sqrt(drawn.length)));
    for (const each of some) {
      const over = each.row.state === "pruned" || each.row.state === "fail";
      ctx.globalAlpha = over ? 0.6 * clear : clear;
      ctx.lineWidth = many ? 1 : (over ? 1 : 1.4) * at.ratio;
      ctx.strokeStyle = ctx.fillStyle = inks.of(each.row);
      line(ctx, at, each.step, each.value);
      if (each.step.length === 1 || each.row.state === "running") {
        dot(ctx, at, each.step.at(-1), each.value.at(-1), each.row.state === "running" ? 3 : 1.5);
      }
    }
    ctx.globalAlpha = 1;
  };
  const draw = (ctx, at) => {
    ctx.lineWidth = 1 * at.ratio;
    ctx.strokeStyle = ink("line");
    ctx.setLineDash([3 * at.ratio, 3 * at.ratio]);
    for (const rung of rungs) line(ctx, at, [rung, rung], y);
    ctx.setLineDash([]);
    paint(ctx, at, base);
  };
  const over = (ctx, at) => {
    paint(ctx, at, fresh);
    for (const [which, colour] of [[best, "orange"], [shown, "text"]]) {
      const one = drawn.find((each) => each.row.number === which);
      if (!one) continue;
      ctx.lineWidth = 2.6 * at.ratio;
      ctx.strokeStyle = ctx.fillStyle = ink(colour);
      line(ctx, at, one.step, one.value);
      dot(ctx, at, one.step.at(-1), one.value.at(-1), 3.5);
    }
  };
  const nearest = (left, top, at) => {
    let [least, found] = [REACH * REACH, null];
    for (const each of drawn) {
      for (let k = 0; k < each.step.length; k++) {
        const [dx, dy] = [at.x(each.step[k]) - left, at.y(each.value[k]) - top];
        const far = dx * dx + dy * dy;
        if (far < least) [least, found] = [far, each.row.number];
      }
    }
    return found;
  };
  return html`
    <div class="controls">
      <label>Colour <select value=${by} onChange=${(event) => setBy(event.target.value)}>
        <option value="state">state</option><option value="value">final ${metric}</option>
        ${searched.map((name) => html`<option value=${name}>${name}</option>`)}
      </select></label>
      <label><input type="checkbox" checked=${useLog} disabled=${!positive} onChange=${(event) => setLog(event.target.checked)} /> log</label>
      <${Legend} inks=${inks} by=${by} also=${best === null ? [] : [[`best, trial ${best}`, ink("orange")]]} />
    </div>
    <${Plot} whole x=${x} y=${y} yLog=${useLog} xLabel=${resource} yLabel=${metric} height=${height} stamp=${[base, by, scale, rungs.join()]} draw=${draw} over=${over} near=${nearest} onNear=${setNear}
      onPick=${(trial) => trial !== null && onPick?.(trial)} label=${`${metric} of ${whole(drawn.length)} trials by ${resource}`} />
    <${Readout} each=${drawn.find((one) => one.row.number === shown)} metric=${metric} resource=${resource} searched=${searched} />
  `;
}

/** What is known of the curve that is pointed at. Its line is there from the start, so that nothing moves. */
function Readout({ each, metric, resource, searched }) {
  if (!each) return html`<p class="readout soft">Point at a curve; drag to zoom, double-click to see all.</p>`;
  const { row, step, value } = each;
  const last = `${metric} ${number(value.at(-1))} at ${whole(step.at(-1))} ${resource}`;
  const params = searched.filter((name) => name in row.params).map((name, index) => html`${index > 0 && ", "}<bdi>${name} ${setting(row.params[name])}</bdi>`);
  return html`<p class="readout num"><b>trial ${row.number}</b> ${row.state}, ${last}; ${params}</p>`;
}

function line(ctx, at, steps, values) {
  ctx.beginPath();
  for (let k = 0; k < steps.length; k++) {
    if (Number.isFinite(values[k])) ctx.lineTo(at.x(steps[k]), at.y(values[k]));
  }
  ctx.stroke();
}

function dot(ctx, at, step, value, size) {
  ctx.beginPath();
  ctx.arc(at.x(step), at.y(value), size * at.ratio, 0, 7);
  ctx.fill();
}

/**
 * The curves in two parts: the base, which is painted once for many drawings, and those that change or are newer.
 *
 * The base becomes another when one of it changes, or when so many have ended since that they would slow down each drawing.
 */
function useBase(rows, curves) {
  const kept = useRef({ rows: new Set(), base: [] });
  return useMemo(() => {
    const curveOf = (row) => ({ row, ...curves.get(row.number) });
    const begun = rows.filter((row) => curves.get(row.number)?.step.length);
    const ended = new Set(begun.filter((row) => row.state !== "running"));
    const old = kept.current.rows;
    if (ended.size > 1.05 * old.size + 20 || [...old].some((row) => !ended.has(row))) {
      const base = [...ended].map(curveOf).sort((a, b) => (ORDER[a.row.state] ?? 0) - (ORDER[b.row.state] ?? 0));
      kept.current = { rows: ended, base };
    }
    const { base, rows: those } = kept.current;
    return { base, fresh: begun.filter((row) => !those.has(row)).map(curveOf) };
  }, [rows, curves]);
}

/** Where the values of curves lie, most of them and all, and the last of their steps. */
function bulkOf(drawn) {
  const values = Float64Array.from(drawn.flatMap(({ value }) => value.filter(Number.isFinite))).sort(); // as numbers, and fast
  const at = (share) => values[Math.min(values.length - 1, Math.floor(share * values.length))];
  const last = drawn.reduce((most, { step }) => Math.max(most, step.at(-1)), 1);
  return { low: values[0] ?? Infinity, from: at(0.03), to: at(0.97), high: values.at(-1) ?? -Infinity, last };
}

/** What of the curves is shown at first: all steps, and the values but for a few that are far off. */
function extent(bulk, fresh) {
  let { low, high, last } = bulk;
  for (const { step, value } of fresh) {
    last = Math.max(last, step.at(-1));
    for (const each of value) if (Number.isFinite(each)) [low, high] = [Math.min(low, each), Math.max(high, each)];
  }
  if (low > high || bulk.from === undefined) return { x: [0, 1], y: [0, 1], positive: false };
  let y = ends(bulk, bulk.low, bulk.high);
  if (low < y[0] || high > y[1]) y = ends(bulk, low, high); // else all is painted where it was
  return { x: [0, last], y, positive: y[0] > 0 };
}

/** The ends of an axis with some room. */
function ends({ from, to }, low, high) {
  const bulk = to - from;
  const top = high > to + 2 * bulk ? to + 0.2 * bulk : high;
  const bottom = low < from - 2 * bulk ? from - 0.2 * bulk : low;
  const room = 0.04 * (top - bottom || Math.abs(top) || 1);
  return [bottom > 0 ? Math.max(bottom - room, bottom / 1.1) : bottom - room, top + room];
}
