/** What colours mean. */

import { html } from "hpsearch/html.js";
import { shade } from "hpsearch/colours.js";
import { setting } from "hpsearch/format.js";

const STOPS = [0, 0.2, 0.4, 0.6, 0.8, 1];

export function Legend({ inks, by, also = [] }) {
  if (inks.ends) {
    const ramp = `linear-gradient(90deg, ${STOPS.map(shade).join(", ")})`;
    return html`<span class="legend num" aria-label=${`Colours of ${by}`}>${setting(inks.ends[0])}
      <span class="ramp" style=${{ background: ramp }}></span>${setting(inks.ends[1])}
      ${also.map(([word, colour]) => html`<span class="swatch" style=${{ background: colour, margin: "0 .35rem 0 .9rem" }}></span>${word}`)}</span>`;
  }
  return html`<ul class="legend" aria-label="Colours">
    ${[...inks.classes, ...also].map(([word, colour]) => html`<li><span class="swatch" style=${{ background: colour }}></span>${word}</li>`)}
  </ul>`;
}
