/** Shares with their intervals. */

import { html } from "hpsearch/html.js";

/** @param {{items: {name: string, share: number, low: number | null, high: number | null}[], label: string}} props shares from 0 to 1 */
export function Bars({ items, label }) {
  const most = Math.max(0.01, ...items.map((each) => Math.max(each.share, each.high ?? 0)));
  const width = (share) => `${(100 * share) / most}%`;
  const percent = (share) => `${Math.round(100 * share)} %`;
  return html`<dl class="bars" aria-label=${label}>
    ${items.map(
      ({ name, share, low, high }) => html`<div key=${name}>
        <dt>${name}</dt>
        <dd><span class="bar-track">
            <span class="bar-fill" style=${{ width: width(share) }}></span>
            ${low !== null && high !== null && html`<span class="whisker" style=${{ left: width(low), width: width(high - low) }}></span>`}
          </span>
          <span class="num">${percent(share)}${low !== null && high !== null ? html` <span class="soft">${percent(low)} to ${percent(high)}</span>` : ""}</span>
        </dd>
      </div>`,
    )}
  </dl>`;
}
