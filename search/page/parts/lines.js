/** A few curves that have names, before others that have none. */

import { html, useMemo, useState } from "hpsearch/html.js";
import { ink, useDark } from "hpsearch/colours.js";
import { number, whole } from "hpsearch/format.js";
import { Plot } from "hpsearch/parts/plot.js";

/** What tells the first lines apart, also without colour. */
const INKS = ["blue", "orange", "green", "purple", "sky", "red", "grey"];
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
const FAR = 0.03; // the share of values at either end that may be far off, and is cut

/** The look of the nth line. @returns {{name: string, dash: number[]}} */
export const look = (index) => ({ name: INKS[index % INKS.length], dash: DASHES[Math.floor(index / INKS.length) % DASHES.length] });

/**
 * @typedef {{name: string, x: number[], y: number[], look: {name: string, dash: number[]}, live?: boolean, href?: string}} Line
 * @param {{lines: Line[], others?: {x: number[], y: number[]}[], marks?: number[], xLabel: string, yLabel: string, height?: number, stairs?: boolean}} props
 *   `marks`: places on x with a line across; `stairs`: a value stays until the next one
 */
export function Lines({ lines, others = [], marks = [], xLabel, yLabel, height = 300, stairs = false }) {
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  useDark();
  const { x, y } = useMemo(() => extent(lines, others), [lines, others]);
  const counts = useMemo(() => lines.every((each) => each.x.every(Number.isInteger)), [lines]);
  const draw = (ctx, to) => {
    ctx.lineWidth = to.ratio;
    ctx.strokeStyle = ink("line");
    for (const each of others) path(ctx, to, each, stairs);
    ctx.setLineDash([3 * to.ratio, 3 * to.ratio]);
    ctx.strokeStyle = ink("grey");
    for (const mark of marks) path(ctx, to, { x: [mark, mark], y }, false);
    ctx.lineWidth = 2 * to.ratio;
    for (const each of [...lines].reverse()) {
      ctx.strokeStyle = ctx.fillStyle = ink(each.look.name);
      ctx.setLineDash(each.look.dash.map((length) => length * to.ratio));
      path(ctx, to, each, stairs);
      if (each.x.length === 1 || each.live) dot(ctx, to, each.x.at(-1), each.y.at(-1));
    }
    ctx.setLineDash([]);
  };
  const over = (ctx, to) => {
    for (const each of at === null ? [] : lines) {
      const near = found(each, at, stairs);
      ctx.fillStyle = ink(each.look.name);
      if (near >= 0) dot(ctx, to, each.x[near], each.y[near]);
    }
  };
  return html`
    <ul class="legend lines">
      ${lines.map((each) => html`<li key=${each.name}>
        <svg width="22" height="8" aria-hidden="true"><line x1="1" x2="21" y1="4" y2="4" style=${{ stroke: `var(--${each.look.name})` }}
          stroke-dasharray=${each.look.dash.join(" ")} stroke-width="2.5" /></svg>
        ${each.href ? html`<a href=${each.href}>${each.name}</a>` : each.name}
        <span class="num soft">${told(each, at, stairs)}</span>
      </li>`)}
      ${others.length > 0 && html`<li class="soft"><svg width="22" height="8" aria-hidden="true"><line x1="1" x2="21" y1="4" y2="4"
        style=${{ stroke: "var(--line)" }} stroke-width="2" /></svg>${whole(others.length)} others</li>`}
    </ul>
    <${Plot} x=${x} y=${y} whole=${counts} xLabel=${xLabel} yLabel=${yLabel} height=${height} stamp=${[lines, others, marks.join()]} draw=${draw} over=${over} near=${(left, _, to) => inverse(to.x, x, left)}
      onNear=${setAt} label=${`${yLabel} by ${xLabel}: ${lines.map((each) => each.name).join(", ")}`} />
  `;
}

/** What a line has at a place, or at its end. */
function told({ x, y }, at, stairs) {
  if (!x.length) return "no report";
  const here = at === null ? x.length - 1 : found({ x }, at, stairs);
  return here < 0 ? "–" : `${number(y[here], 5)} at ${number(x[here], 5)}`;
}

/** Which of its values a line has at a place; -1 for none. */
function found({ x }, at, stairs) {
  if (stairs) return x.findLastIndex((each) => each <= at);
  const gap = x.length > 1 ? (x.at(-1) - x[0]) / (x.length - 1) : 0;
  const near = nearest(x, at);
  return near >= 0 && Math.abs(x[near] - at) <= gap ? near : -1;
}

function nearest(x, at) {
  let found = -1;
  for (let k = 0; k < x.length; k++) if (found < 0 || Math.abs(x[k] - at) < Math.abs(x[found] - at)) found = k;
  return found;
}

/** The value whose pixel is `left`, for a function that is straight. */
function inverse(to, [low, high], left) {
  const [from, upto] = [to(low), to(high)];
  return low + ((left - from) / (upto - from || 1)) * (high - low);
}

function path(ctx, to, { x, y }, stairs) {
  ctx.beginPath();
  let before = null;
  for (let k = 0; k < x.length; k++) {
    if (!Number.isFinite(y[k])) continue;
    if (stairs && before !== null) ctx.lineTo(to.x(x[k]), to.y(before));
    ctx.lineTo(to.x(x[k]), to.y(y[k]));
    before = y[k];
  }
  ctx.stroke();
}

function dot(ctx, to, x, y) {
  if (!Number.isFinite(y)) return;
  ctx.beginPath();
  ctx.arc(to.x(x), to.y(y), 4 * to.ratio, 0, 7);
  ctx.fill();
}

/** All of x, and of y what the named lines have, but for a few values that are far off. */
function extent(lines, others) {
  const least = (values, start) => values.reduce((a, b) => Math.min(a, b), start);
  const most = (values, start) => values.reduce((a, b) => Math.max(a, b), start);
  const named = lines.some((each) => each.x.length) ? lines : others;
  const ends = [...lines, ...others].filter((each) => each.x.length);
  const values = named.flatMap((each) => each.y.filter(Number.isFinite)).sort((a, b) => a - b);
  if (!ends.length || !values.length) return { x: [0, 1], y: [0, 1] };
  const share = (of) => values[Math.round(of * (values.length - 1))];
  const bulk = share(1 - FAR) - share(FAR);
  const top = Math.min(values.at(-1), share(1 - FAR) + 2 * bulk || Infinity);
  const bottom = Math.max(values[0], share(FAR) - 2 * bulk || -Infinity);
  const room = 0.05 * (top - bottom || Math.abs(top) || 1);
  const right = most(ends.map((each) => each.x.at(-1)), -Infinity);
  return { x: [least(ends.map((each) => each.x[0]), Math.min(0, right)), right > 0 ? right : right + 1], y: [bottom - room, top + room] };
}
