/** What runs and what waits, over time, with how sure each moment is. */

import { html } from "hpsearch/html.js";
import { about, clock } from "hpsearch/format.js";

/**
 * @param {{rows: {name: string, href: string, state: string, begins: any, ends: any, note: string}[], now: number}} props
 *   `begins` and `ends`: {expected, earliest, latest} in ISO 8601, or null where nobody knows
 */
export function Gantt({ rows, now }) {
  const moments = rows.flatMap(({ begins, ends }) => [begins?.expected, ends?.latest, ends?.expected]).filter(Boolean).map(Date.parse);
  const begun = rows.filter((row) => row.state !== "queued").map((row) => row.begins && Date.parse(row.begins.expected));
  const last = Math.max(now + 60_000, ...moments);
  const longest = (last - now) * 0.35; // of what has passed already
  const first = Math.max(Math.min(now, ...begun.filter(Boolean)), now - longest);
  const place = (moment) => (100 * (Math.min(Math.max(moment, first), last) - first)) / (last - first);
  const ticks = times(first, last, now);
  return html`
    <div class="gantt" role="table" aria-label="The queue over time">
      ${rows.map((row) => {
        const from = row.begins ? Date.parse(row.begins.expected) : null;
        const to = row.ends ? Date.parse(row.ends.expected) : null;
        return html`<div class="lane" role="row" key=${row.name}>
          <span class="who" role="rowheader"><a href=${row.href}>${row.name}</a></span>
          <span class="track" role="cell">
            ${ticks.map((at) => html`<span class="tick" style=${{ left: `${place(at)}%` }}></span>`)}
            ${from !== null && html`<span class=${`bar ${row.state} ${to === null ? "open" : ""}`} title=${row.note}
              style=${{ left: `${place(from)}%`, width: `${Math.max(0.6, place(to ?? last) - place(from))}%` }}></span>`}
            ${to !== null && html`<span class="unsure" title=${`ends between ${clock(row.ends.earliest, now)} and ${clock(row.ends.latest, now)}`}
              style=${{ left: `${place(Date.parse(row.ends.earliest))}%`, width: `${place(Date.parse(row.ends.latest)) - place(Date.parse(row.ends.earliest))}%` }}></span>`}
            <span class="present" style=${{ left: `${place(now)}%` }}></span>
          </span>
          <span class="when num" role="cell">${said(row, from, to, now)}</span>
        </div>`;
      })}
      <div class="lane axis" aria-hidden="true"><span></span><span class="track">
        ${ticks.map((at) => html`<span class="mark-at num" style=${{ left: `${place(at)}%` }}>${clock(at, now)}</span>`)}
      </span><span></span></div>
    </div>
  `;
}

function said(row, from, to, now) {
  if (from === null) return "nobody knows when";
  const end = to === null ? "end unknown" : `ends ${clock(to, now)}`;
  return from > now ? `begins ${clock(from, now)}, ${end}` : to === null ? end : `${end}, in ${about(Math.max(1, (to - now) / 1000))}`;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080].map((minutes) => minutes * 60_000);

/** Round moments between two. */
function times(first, last) {
  const step = STEPS.find((each) => (last - first) / each <= 6) ?? STEPS.at(-1);
  const shift = new Date(first).getTimezoneOffset() * 60_000;
  const found = [];
  for (let at = Math.ceil((first - shift) / step) * step + shift; at < last; at += step) found.push(at);
  return found;
}
