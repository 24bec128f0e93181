/** Where the time of trials went: to those that ran to their end, to those that were stopped, to confirming. */

import { html } from "hpsearch/html.js";
import { counted, duration } from "hpsearch/format.js";

const KINDS = [
  ["complete", "green", "ran to their end"],
  ["pruned", "grey", "stopped early"],
  ["confirming", "purple", "confirm the best"],
  ["fail", "red", "failed"],
  ["running", "blue", "run"],
  ["paused", "orange", "wait at a rung, or to be resumed"],
];

/** Seconds and numbers of trials by kind. */
export function spent(rows) {
  const found = new Map(KINDS.map(([kind]) => [kind, { seconds: 0, trials: 0 }]));
  for (const row of rows) {
    const kind = row.confirms !== null ? "confirming" : row.state === "waiting" ? "paused" : row.state;
    const each = found.get(kind);
    if (each && row.seconds !== null) {
      each.seconds += row.seconds; // of one that ended as it began, none
      each.trials += 1;
    }
  }
  return found;
}

export function TimeSpent({ rows }) {
  const found = spent(rows);
  const total = [...found.values()].reduce((sum, each) => sum + each.seconds, 0);
  if (!total) return html`<p class="soft">No trial has trained yet.</p>`;
  const shown = KINDS.filter(([kind]) => found.get(kind).trials > 0);
  return html`
    <div class="stack" aria-hidden="true">${shown.map(([kind, colour]) => html`<span key=${kind} style=${{ width: `${(100 * found.get(kind).seconds) / total}%`, background: `var(--${colour})` }}></span>`)}</div>
    <table class="plain"><tbody>${shown.map(([kind, colour, words]) => {
      const { seconds, trials } = found.get(kind);
      return html`<tr key=${kind}><td><span class="swatch" style=${{ background: `var(--${colour})` }}></span></td><td class="right num">${duration(seconds)}</td>
        <td class="right num">${Math.round((100 * seconds) / total)} %</td><td>${counted(trials, "trials")} ${trials === 1 ? { complete: "ran to its end", confirming: "confirms the best", running: "runs", paused: "waits" }[kind] ?? words : words}</td></tr>`;
    })}</tbody></table>
  `;
}
