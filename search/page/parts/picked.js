/** What is picked to be compared: a box that picks, and what leads to the comparison. */

import { html } from "hpsearch/html.js";
import { MOST, compared, entryOf, partsOf, usePicked } from "hpsearch/picked.js";

/** Picks a trial, or a study. */
export function Pick({ study, trial = null, words = "" }) {
  const picked = usePicked();
  const entry = entryOf(study, trial);
  const has = picked.has(entry);
  const what = trial === null ? study : `trial ${trial}`;
  return html`<label class="pick" title=${picked.full && !has ? `${MOST} at most` : `Compare ${what}`}>
    <input type="checkbox" checked=${has} disabled=${picked.full && !has} aria-label=${words ? null : `Compare ${what}`} onChange=${() => picked.toggle(entry)} />
    ${words}</label>`;
}

/** What is picked, on every screen. */
export function PickedBar() {
  const picked = usePicked();
  if (!picked.entries.length) return null;
  const names = picked.entries.map((entry) => {
    const { study, trial } = partsOf(entry);
    return trial === null ? study : `${study} ${trial}`;
  });
  return html`<aside class="picked-bar" aria-label="Picked to be compared">
    <span class="names">${names.join(", ")}</span>
    <a class="button primary" href=${`#${compared(picked.entries)}`}>Compare ${picked.entries.length}</a>
    <button type="button" class="quiet" onClick=${picked.clear}>Clear</button>
  </aside>`;
}
