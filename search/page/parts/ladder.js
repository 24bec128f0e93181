/** The rungs of a study: who has come how far, who waits there, who went on, and who was stopped. */

import { html, useMemo } from "hpsearch/html.js";
import { number, whole } from "hpsearch/format.js";

const MOST = 400; // trials that are drawn of a rung
const KINDS = [
  ["on", "went on"],
  ["here", "trains"],
  ["waits", "waits here"],
  ["stopped", "stopped here"],
];

/**
 * The trials at each rung of a bracket, the best first.
 *
 * @returns {{step: number | null, trials: {trial: number, value: number, kind: string, state: string}[]}[]} the last has those that are complete
 */
export function rungsOf(bracket, goal, last) {
  const sign = goal === "minimize" ? 1 : -1;
  const best = (a, b) => sign * (a.value - b.value) || a.trial - b.trial;
  const steps = bracket.rungs.map((step, index) => ({
    step,
    trials: bracket.trials
      .filter((each) => each.values.length > index)
      .map((each) => ({ trial: each.trial, value: each.values[index], state: each.state, kind: kindAt(each, index) }))
      .sort(best),
  }));
  const none = bracket.trials.filter((each) => !each.values.length && each.state !== "complete");
  const start = none.map(({ trial, state }) => ({ trial, value: null, state, kind: state === "running" ? "here" : kindAt({ state, values: [] }, 0) }));
  const complete = bracket.trials.filter((each) => each.end !== null);
  const end = complete.map(({ trial, end: value, state }) => ({ trial, value, state, kind: "on" })).sort(best);
  return [...(start.length ? [{ step: 0, trials: start }] : []), ...steps, { step: last, trials: end }];
}

function kindAt(each, index) {
  if (each.values.length > index + 1 || each.state === "complete") return "on";
  if (each.state === "paused" || each.state === "waiting") return "waits";
  return each.state === "running" ? "here" : "stopped";
}

/** @param {{ladder: any, picked: number | null, onPick: (trial: number) => void}} props */
export function Ladder({ ladder, picked, onPick }) {
  return useMemo(() => drawn(ladder, picked, onPick), [ladder, picked, onPick]); // thousands of buttons, while curves grow beside it
}

function drawn(ladder, picked, onPick) {
  const brackets = ladder.brackets.filter((each) => each.trials.some(({ values, end }) => values.length || end !== null));
  if (!ladder.brackets.length) return html`<p class="soft">Its trials are not compared at rungs.</p>`;
  if (!brackets.length) return html`<p class="soft">No trial has reached a rung yet.</p>`;
  const pick = (event) => {
    const trial = event.target.dataset?.trial;
    if (trial !== undefined) onPick(Number(trial));
  };
  return html`
    <p class="soft">One in ${ladder.eta} goes on at each rung, the best first${ladder.promotion ? "; the others wait, and may go on later" : ""}.</p>
    <ul class="legend">${KINDS.filter(([kind]) => kind !== "waits" || ladder.promotion).map(([kind, words]) => html`<li><span class=${`step ${kind}`}></span>${words}</li>`)}</ul>
    <div class="ladders" onClick=${pick}>
      ${brackets.map(
        (bracket) => html`<div class="ladder" role="group" aria-label=${`Bracket ${bracket.number}`} key=${bracket.number}>
          ${ladder.brackets.length > 1 && html`<h3>Bracket ${bracket.number}</h3>`}
          ${rungsOf(bracket, ladder.goal, ladder.last).reverse().map(
            ({ step, trials }, index) => html`<div class="rung" key=${step}>
              <span class="num at">${index === 0 ? "end" : step === 0 ? "start" : whole(step)}</span>
              <span class="steps">${trials.slice(0, MOST).map(
                (each) => html`<button type="button" key=${each.trial} class=${`step ${each.kind} ${each.trial === picked ? "picked" : ""}`} data-trial=${each.trial} tabindex="-1"
                  title=${`trial ${each.trial}: ${each.value === null ? "" : `${number(each.value)}, `}${each.state}`} aria-label=${`trial ${each.trial}, ${each.state}`}></button>`,
              )}</span>
              <span class="num soft">${whole(trials.length)}</span>
            </div>`,
          )}
        </div>`,
      )}
    </div>
  `;
}
