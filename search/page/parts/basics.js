/** Small things that many screens draw. */

import { html } from "hpsearch/html.js";
import { number } from "hpsearch/format.js";

/** The state of a study or a trial, in its colour and in words. */
export const State = ({ state, title = "" }) =>
  html`<span class=${`state ${state}`} title=${title}><span class="dot" aria-hidden="true"></span>${state}</span>`;

/** How much of an amount is used: a bar and its words. */
export function Progress({ used, total, label }) {
  const share = total ? Math.min(1, used / total) : 0;
  return html`<span class="progress" role="progressbar" aria-valuemin="0" aria-valuemax="100" aria-label=${label}
    aria-valuenow=${Math.round(100 * share)}><span style=${{ width: `${100 * share}%` }}></span></span>`;
}

const STATES = [["complete", "green"], ["pruned", "grey"], ["fail", "red"], ["running", "blue"], ["paused", "orange"], ["waiting", "purple"]];

/** How many trials are in which state, out of a budget where there is one. */
export function States({ states, total, label }) {
  const there = STATES.filter(([state]) => states[state]);
  const all = Math.max(total ?? 0, there.reduce((sum, [state]) => sum + states[state], 0), 1);
  const words = there.map(([state]) => `${states[state]} ${state}`).join(", ") || "none";
  return html`<span class="progress states" role="img" aria-label=${`${label}: ${words}`} title=${words}>${there.map(
    ([state, colour]) => html`<span key=${state} style=${{ width: `${(100 * states[state]) / all}%`, background: `var(--${colour})` }}></span>`,
  )}</span>`;
}

/** A value of a metric; its place stays the same while it is unknown. */
export const Value = ({ value, digits = 6 }) =>
  html`<span class="value">${value === null || value === undefined ? "–" : number(value, digits)}</span>`;

/** What stands in place of what could not be had. */
export const Trouble = ({ problem, retry = null }) => html`
  <div class="card bad-card" role="alert">
    <p class="bad">${problem.message}</p>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>
`;

/** What stands in place of what is on its way. */
export const Loading = ({ lines = 3 }) => html`
  <div class="card loading" role="status" aria-busy="true" aria-label="Loading">
    ${Array.from({ length: lines }, () => html`<span class="bone"></span>`)}
  </div>
`;

/** What stands in place of what there is none of. */
export const Empty = ({ title, children }) => html`<div class="card empty"><h2>${title}</h2>${children}</div>`;

/** The content of an answer, or what stands in its place. */
export function Answered({ of, lines = 3, children }) {
  if (of.value !== undefined) return children(of.value);
  return of.problem ? html`<${Trouble} problem=${of.problem} retry=${of.reload} />` : html`<${Loading} lines=${lines} />`;
}
