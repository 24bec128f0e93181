/** The values of several configurations side by side: what differs first. */

import { html } from "hpsearch/html.js";
import { setting } from "hpsearch/format.js";

/** Names of values that differ among columns, and of those that are equal in all. @returns {[string[], string[]]} */
export function parted(columns) {
  const names = [...new Set(columns.flatMap(({ values }) => Object.keys(values)))];
  const differs = (name) => new Set(columns.map(({ values }) => (name in values ? JSON.stringify(values[name]) : undefined))).size > 1;
  return [names.filter(differs), names.filter((name) => !differs(name))];
}

/**
 * @param {{columns: {name: any, values: Object<string, any>, href?: string}[], kinds?: Object<string, string>, label?: string, wide?: boolean}} props
 *   `wide`: columns as wide as those of other tables of the same things;
 *   `kinds`: of each parameter "searched", "constant" or the expression it is derived by
 */
export function Differences({ columns, kinds = {}, label = "Parameters", wide = false }) {
  const [differing, same] = parted(columns);
  const alone = columns.length === 1;
  const shown = (values, name) => (name in values ? setting(values[name]) : html`<span class="soft">–</span>`);
  const row = (name, class_ = "") => html`<tr key=${name} class=${class_}>
    <th scope="row">${name}${kinds[name] && kinds[name] !== "searched" ? html` <span class="soft kind">${kinds[name]}</span>` : ""}</th>
    ${columns.map(({ values }, index) => html`<td class=${`num ${typeof values[name] === "number" ? "one" : ""} ${index > 0 && JSON.stringify(values[name]) !== JSON.stringify(columns[0].values[name]) ? "differs" : ""}`}>${shown(values, name)}</td>`)}</tr>`;
  const searched = (names) => [...names].sort((a, b) => Number(kinds[a] !== "searched") - Number(kinds[b] !== "searched"));
  return html`<div class="scroll-x" tabindex="0" role="group" aria-label=${label}><table class=${`plain wide differences ${wide ? "aligned" : ""}`} style=${{ "--columns": columns.length }}>
    ${!alone && html`<thead><tr><th scope="col"><span class="hidden">parameter</span></th>${columns.map(
      ({ name, href }) => html`<th scope="col">${href ? html`<a href=${href}>${name}</a>` : name}</th>`,
    )}</tr></thead>`}
    <tbody>${searched(alone ? same : differing).map((name) => row(name))}</tbody>
    ${!alone && same.length > 0 && html`<tbody class="same"><tr><th colspan=${columns.length + 1} scope="rowgroup">${differing.length ? "the same in all" : "no value differs"}</th></tr>
      ${searched(same).map((name) => row(name))}</tbody>`}
  </table></div>`;
}
