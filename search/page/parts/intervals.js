/** Values that were measured several times: each one, their mean, and between what it lies. */

import { html } from "hpsearch/html.js";
import { number } from "hpsearch/format.js";
import { placed } from "hpsearch/scale.js";

const DIGITS = 5;

/** A value with its interval, in words. */
export const Estimate = ({ of, digits = DIGITS }) =>
  html`<span class="num">${number(of.value, digits)} <span class="soft">(${number(of.low, digits)} to ${number(of.high, digits)})</span></span>`;

/**
 * @param {{items: {name: any, key: any, mean: {value: number, low: number, high: number} | null, points: (number | null)[], before: number | null,
 *   ink?: string, note?: string}[], label: string, beforeWords: string, zero?: boolean}} props
 *   `points`: single values; `before`: an earlier value to compare with; `zero`: whether 0 is shown in any case
 */
export function Intervals({ items, label, beforeWords = "", zero = false }) {
  const values = items.flatMap(({ mean, points, before }) => [mean?.low, mean?.high, before, ...points, zero ? 0 : null]).filter(Number.isFinite).map(placed);
  if (!values.length) return null;
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const room = 0.06 * (most - least || Math.abs(most) || 1);
  const [low, high] = [least - room, most + room].map(placed);
  const at = (value) => `${(100 * (placed(value) - low)) / (high - low)}%`;
  const ticks = [0.1, 0.5, 0.9].map((share) => low + share * (high - low));
  return html`<div class="intervals" role="group" aria-label=${label}>
    ${items.map(({ name, key, mean, points, before, ink = "blue", note = "" }) => html`<div class="interval" key=${key}>
      <span class="who">${name}</span>
      <span class="interval-track" aria-hidden="true" style=${{ "--ink": `var(--${ink})` }}>
        ${zero && html`<span class="zero" style=${{ left: at(0) }}></span>`}
        ${mean && html`<span class="band" style=${{ left: at(mean.low), width: `${(100 * (placed(mean.high) - placed(mean.low))) / (high - low)}%` }}></span>`}
        ${points.map((point, index) => Number.isFinite(point) && html`<span class="point" key=${index} style=${{ left: at(point) }} title=${number(point)}></span>`)}
        ${before !== null && html`<span class="before" style=${{ left: at(before) }} title=${`${beforeWords} ${number(before)}`}></span>`}
        ${mean && html`<span class="mean" style=${{ left: at(mean.value) }}></span>`}
      </span>
      <span class="told">${mean ? html`<${Estimate} of=${mean} />` : html`<span class="soft">${note}</span>`}</span>
    </div>`)}
    <div class="interval axis" aria-hidden="true"><span></span><span class="interval-track">${ticks.map((tick) => html`<span class="tick num" style=${{ left: at(tick) }}>${number(tick, 4)}</span>`)}</span><span></span></div>
  </div>`;
}
