/** How the best value came about: a falling line, and the trials that made it fall. */

import { html } from "hpsearch/html.js";
import { ago, counted, number } from "hpsearch/format.js";
import { share } from "hpsearch/scale.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, EDGE] = [360, 130, 46, 18, 6];
const MOST = 5; // improvements that are listed

/** @param {{improvements: any, now: number, href: (trial: number) => string}} props */
export function Course({ improvements, now, href }) {
  const { found, complete, metric } = improvements;
  if (!found.length) return html`<p class="soft none">No trial has run to its end yet.</p>`;
  const values = found.map((each) => each.value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (count) => LEFT + ((count - 1) / Math.max(1, complete - 1)) * (WIDTH - LEFT - EDGE);
  const y = (value) => HEIGHT - BOTTOM - EDGE - share(value, low, high) * (HEIGHT - BOTTOM - 2 * EDGE);
  let path = `M${x(1)} ${y(values[0])}`;
  for (const each of found.slice(1)) path += `H${x(each.complete)}V${y(each.value)}`;
  return html`
    <svg class="course" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${`The best ${metric} from ${number(values[0])} to ${number(values.at(-1))}`}>
      ${(high > low ? [low, high] : [low]).map((value) => html`<text x=${LEFT - 6} y=${y(value) + 3} text-anchor="end">${number(value, 4)}</text><line x1=${LEFT} x2=${WIDTH} y1=${y(value)} y2=${y(value)} />`)}
      <text x=${LEFT} y=${HEIGHT - 4}>1</text><text x=${WIDTH - EDGE} y=${HEIGHT - 4} text-anchor="end">${counted(complete, "trials")} that ran to their end</text>
      <path d="${path}H${x(Math.max(1, complete))}" />
      ${found.map((each) => html`<circle key=${each.trial} cx=${x(each.complete)} cy=${y(each.value)} r="3"><title>trial ${each.trial}: ${number(each.value)}</title></circle>`)}
    </svg>
    <table class="plain"><tbody>${found.slice(-MOST).reverse().map(
      (each) => html`<tr key=${each.trial}><td><a href=${href(each.trial)}>trial ${each.trial}</a></td><td class="right num">${number(each.value)}</td><td class="soft num">${ago(each.ended, now)}</td></tr>`,
    )}</tbody></table>
  `;
}
