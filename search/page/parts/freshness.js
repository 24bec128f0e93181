/** Says whether what is shown is what is so, and since when it is not. */

import { html } from "hpsearch/html.js";
import { useNow, useStatus } from "hpsearch/data.js";
import { about, clock } from "hpsearch/format.js";

const WORDS = { connecting: "connecting", live: "live", asleep: "asleep", denied: "no access" };

export function Freshness() {
  const { state, since, why } = useStatus();
  const now = useNow(5000);
  let words = WORDS[state] ?? "";
  if (state === "stale") words = `as of ${clock(since, now)}, ${about(Math.max(1, (now - since) / 1000))} ago`;
  if (state === "frozen") words = `report of ${clock(since, 0)}`;
  return html`<p class=${`freshness ${state}`} role="status" title=${why}><span class="dot" aria-hidden="true"></span>${words}</p>`;
}
