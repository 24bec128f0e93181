/** How the best value came about, in a few pixels. */

import { html } from "hpsearch/html.js";
import { number } from "hpsearch/format.js";
import { share } from "hpsearch/scale.js";

const [WIDTH, HEIGHT, EDGE] = [120, 30, 3];

/** @param {{improvements: {found: any[], complete: number, metric: string} | undefined}} props */
export function Sparkline({ improvements }) {
  const found = improvements?.found ?? [];
  if (!found.length) return html`<svg class="spark" viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true"></svg>`;
  const values = found.map((each) => each.value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (count) => EDGE + ((count - 1) / Math.max(1, improvements.complete - 1)) * (WIDTH - 2 * EDGE);
  const y = (value) => HEIGHT - EDGE - share(value, low, high) * (HEIGHT - 2 * EDGE);
  let path = `M${x(1)} ${y(values[0])}`;
  for (const each of found.slice(1)) path += `H${x(each.complete)}V${y(each.value)}`;
  const end = x(Math.max(improvements.complete, 1));
  const told = `best ${improvements.metric} from ${number(values[0])} to ${number(values.at(-1))} in ${found.length} steps`;
  return html`<svg class="spark" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${told}>
    <path d="${path}H${end}" /><circle cx=${end} cy=${y(values.at(-1))} r="2.5" /></svg>`;
}
