/** Each parameter against the value that trials reached. */

import { html, useMemo, useState } from "hpsearch/html.js";
import { useSame } from "hpsearch/data.js";
import { ink } from "hpsearch/colours.js";
import { number, setting } from "hpsearch/format.js";
import { Plot } from "hpsearch/parts/plot.js";

const REACH = 14;
const MANY = 400; // points of which each is a square: a round one takes longer

/** @param {{rows: any[], searched: string[], logs: Set<string>, metric: string, best: number | null, picked: number | null, onPick: (trial: number) => void}} props */
export function Slices({ rows, searched, logs, metric, best, picked, onPick }) {
  const complete = useSame(rows.filter((row) => row.state === "complete" && row.confirms === null));
  if (!complete.length) return html`<p class="soft">No trial has run to its end yet.</p>`;
  return html`<div class="slices">${searched.map(
    (name) => html`<${Slice} key=${name} name=${name} isLog=${logs.has(name)} rows=${complete} metric=${metric} best=${best} picked=${picked} onPick=${onPick} />`,
  )}</div>`;
}

function Slice({ name, isLog, rows, metric, best, picked, onPick }) {
  const [near, setNear] = useState(/** @type {any} */ (null));
  const { points, words, x, y } = useMemo(() => pointsOf(rows, name, isLog), [rows, name, isLog]);
  const log = words === null && isLog;
  const draw = (ctx, at) => {
    const many = points.length > MANY;
    const side = 4 * at.ratio;
    ctx.fillStyle = ink("blue");
    ctx.globalAlpha = many ? 0.4 : 0.7;
    for (const { x, y } of points) {
      if (many) ctx.fillRect(at.x(x) - side / 2, at.y(y) - side / 2, side, side);
      else dot(ctx, at, x, y, 2.6);
    }
    ctx.globalAlpha = 1;
  };
  const over = (ctx, at) => {
    for (const [which, colour] of [[best, "orange"], [picked, "text"], [near, "text"]]) {
      const one = points.find(({ row }) => row.number === which);
      ctx.fillStyle = ink(colour);
      if (one) dot(ctx, at, one.x, one.y, 4.5);
    }
  };
  const nearest = (left, top, at) => {
    let [least, found] = [REACH * REACH, null];
    for (const { row, x, y } of points) {
      const far = (at.x(x) - left) ** 2 + (at.y(y) - top) ** 2;
      if (far < least) [least, found] = [far, row.number];
    }
    return found;
  };
  const shown = points.find(({ row }) => row.number === near)?.row;
  return html`<figure class="slice">
    <${Plot} x=${x} y=${y} xLog=${log} ticks=${words}
      xLabel=${name} yLabel=${metric} height=${220} stamp=${[rows, name]} draw=${draw} over=${over} near=${nearest} onNear=${setNear} onPick=${(trial) => trial !== null && onPick(trial)}
      label=${`${metric} by ${name}, ${points.length} trials`} />
    <figcaption class="readout num">${shown && html`trial ${shown.number}: <bdi>${setting(shown.params[name])}</bdi>, ${number(shown.value)}`}</figcaption>
  </figure>`;
}

/** Where each trial is; `words` are those of a categorical x. */
function pointsOf(rows, name, isLog) {
  const there = rows.filter((row) => (row.params[name] ?? null) !== null);
  const numeric = there.every((row) => typeof row.params[name] === "number");
  const words = numeric ? null : [...new Set(there.map((row) => String(row.params[name])))].sort();
  const jitter = (row) => ((row.number * 0.618034) % 1) * 0.5 - 0.25;
  const points = there.map((row) => ({ row, x: words ? words.indexOf(String(row.params[name])) + jitter(row) : row.params[name], y: row.value }));
  const x = words ? [-0.5, words.length - 0.5] : spread(points.map((each) => each.x), isLog);
  return { points, words, x, y: spread(points.map((each) => each.y)) };
}

function dot(ctx, at, x, y, size) {
  ctx.beginPath();
  ctx.arc(at.x(x), at.y(y), size * at.ratio, 0, 7);
  ctx.fill();
}

/** The ends of an axis with some room. */
function spread(values, log = false) {
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (log) {
    const room = Math.max(1.2, (high / low) ** 0.04); // a single value has some, too
    return [low / room, high * room];
  }
  const room = 0.05 * (high - low || Math.abs(high) || 1);
  return [low - room, high + room];
}
