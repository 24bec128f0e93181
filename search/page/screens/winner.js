/** The winner of a study: first how sure it is, then what it is, what that rests on, and how to take it away. */

import { html, useMemo, useState } from "hpsearch/html.js";
import { useAnswer, useSource } from "hpsearch/data.js";
import { counted, number, sentence, whole } from "hpsearch/format.js";
import { compared, entryOf } from "hpsearch/picked.js";
import { href, ofStudy } from "hpsearch/routes.js";
import { useTrial } from "hpsearch/trial.js";
import { Answered, Empty, Loading } from "hpsearch/parts/basics.js";
import { Command, Copy } from "hpsearch/parts/copy.js";
import { Differences } from "hpsearch/parts/differences.js";
import { Download } from "hpsearch/parts/download.js";
import { Estimate, Intervals } from "hpsearch/parts/intervals.js";
import { useKeys } from "hpsearch/parts/keys.js";
import { Asked, useMay } from "hpsearch/parts/steer.js";

export const path = "studies/:study/winner";
export const title = ({ study }) => `winner of ${study}`;

const FORMS = [
  ["yaml", "hpsearch: YAML"],
  ["json", "hpsearch: JSON"],
  ["command", "the script's own command"],
  ["flags", "flags of a command line"],
  ["trl", "TRL"],
  ["peft", "PEFT"],
  ["axolotl", "Axolotl"],
  ["llamafactory", "LLaMA-Factory"],
];

export function Screen({ params: { study }, go }) {
  const winner = useAnswer(ofStudy(study, "winner"), { kinds: ["best", "study"], study });
  const trial = winner.value?.trial ?? null;
  useKeys(useMemo(() => [["o", "Open the winner's trial", () => trial !== null && go(`/studies/${encodeURIComponent(study)}/trials/${trial}`)]], [study, trial]));
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href=${href("studies", study)}>${study}</a><span aria-hidden="true">/</span><span>winner</span></nav>
    <${Answered} of=${winner} lines=${8}>${(found) => (found.trial === null ? html`<${None} found=${found} />` : html`<${Found} found=${found} />`)}<//>
  `;
}

/** Whether its search runs now, by what can be done next. */
const runs = ({ next }) => next.some((step) => step.operation === "pause" || step.operation === "stop");

function None({ found }) {
  return html`<h1>No winner yet</h1>
    <${Empty} title="No trial has run to its end">
      <p>${runs(found) ? "The search goes on; the winner is shown here when there is one." : "Trials that were stopped early, or have failed, cannot win."}</p>
      <a class="button" href=${href("studies", found.study)}>Its trials</a>
    <//>`;
}

function Found({ found }) {
  const { study, trial, verdict, why } = found;
  return html`
    <div class="title">
      <h1>${verdict}</h1>
      <p class="why">${why}${runs(found) ? " The search goes on, so this may change." : ""}</p>
    </div>
    <${Figures} found=${found} />
    <div class="two">
      <div>
        <${Confirmation} found=${found} />
        ${found.audit.length > 0 && html`<section class="card" aria-labelledby="audit"><h2 id="audit">What early stopping may have lost</h2>
          ${found.audit.map((each) => html`<p>${sentence(each)}</p>`)}</section>`}
        <${Parameters} found=${found} />
      </div>
      <div>
        <${Take} found=${found} />
        <${Recipe} study=${study} trial=${trial} />
      </div>
    </div>
  `;
}

function Figures({ found }) {
  const { study, metric, goal, trial, value, searched, gain, comparison, ties } = found;
  return html`<dl class="figures three">
    <div><dt>${value ? `Expect ${metric}` : `${metric} in the search`}</dt><dd class="num">${number(value ? value.value : searched, 5)}</dd>
      <dd class="soft num">${value ? `${number(value.low, 5)} to ${number(value.high, 5)}, 19 times in 20; the search saw ${number(searched, 5)}` : `${goal === "minimize" ? "less" : "more"} is better; no interval without new seeds`}</dd></div>
    <div><dt>Gain over the baseline</dt><dd class="num">${gain ? `${gain.value > 0 ? "+" : ""}${number(gain.value, 4)}` : "–"}</dd>
      <dd class="soft num">${gain ? `${number(gain.low, 4)} to ${number(gain.high, 4)}; above 0 is better` : sentence(comparison ?? "")}</dd></div>
    <div><dt>Trial</dt><dd class="num"><a href=${href("studies", study, "trials", trial)}>trial ${trial}</a></dd>
      <dd class="soft">${ties.length
        ? html`ties with ${ties.map((each, index) => html`${index ? ", " : ""}<a href=${href("studies", study, "trials", each)}>${each}</a>`)} · <a href=${`#${compared([trial, ...ties].map((each) => entryOf(study, each)))}`}>compare</a>`
        : among(found)}</dd></div>
  </dl>`;
}

const among = ({ candidates, baseline, trial }) =>
  trial === baseline ? "the baseline itself" : candidates.length ? `of ${counted(candidates.length, "candidates")}` : "the best of the search";

function Confirmation({ found }) {
  const [alone, setAlone] = useState(false);
  const { study, trial, metric, baseline, ties, candidates, confirmation, next } = found;
  const items = candidates.map((each) => ({
    key: each.trial,
    name: html`<a href=${href("studies", study, "trials", each.trial)}>trial ${each.trial}</a>${each.trial === trial ? html` <b>winner</b>` : ""}${each.is_baseline ? html` <span class="soft">baseline</span>` : ""}${
      ties.includes(each.trial) ? html` <span class="soft">tie</span>` : ""}`,
    ink: each.is_baseline ? "grey" : each.trial === trial ? "green" : ties.includes(each.trial) ? "orange" : "blue",
    mean: each.mean,
    points: each.trainings.map((training) => training.value),
    before: each.searched,
    note: underWay(each),
  }));
  const far = items.length > 2 && candidates.some((each) => each.is_baseline && each.trial !== trial);
  const shown = alone && far ? items.filter((each) => each.key !== baseline) : items;
  const advised = next.find((step) => step.operation === "run");
  return html`<section class="card" aria-labelledby="confirmation"><div class="head"><h2 id="confirmation">${items.length ? "How it was confirmed" : "Confirmation"}</h2>
      ${far && html`<label><input type="checkbox" checked=${alone} onChange=${(event) => setAlone(event.target.checked)} /> without the baseline</label>`}</div>
    ${items.length > 0
      ? html`<${Intervals} items=${shown} label=${`${metric} of each candidate with new seeds`} beforeWords="in the search" />
        <ul class="legend"><li><span class="key-point"></span>a training with a new seed</li><li><span class="key-mean"></span>their mean, with its interval</li><li><span class="key-before"></span>in the search</li></ul>`
      : html`<p class="soft none">Nothing was trained again.</p>`}
    <ul class="facts">${confirmation.map((each) => html`<li>${sentence(each)}</li>`)}</ul>
    ${candidates.length > 0 && html`<details class="seeds"><summary>The values of each seed</summary><${Seeds} study=${study} candidates=${candidates} /></details>`}
    ${advised && html`<${Confirm} study=${study} baseline=${baseline} step=${advised} />`}
    ${baseline === null && html`<p class="soft">The space has no baseline, so there is no gain to tell.</p>`}
  </section>`;
}

/** That it can still be confirmed, and the button for who may do that. */
function Confirm({ study, baseline, step }) {
  const may = useMay("write");
  const [open, set] = useState(false);
  const { confirm, budget } = step.arguments;
  const limits = Object.entries(budget ?? {}).map(([limit, value]) => `${limit} ${value}`).join(", ");
  const does = `The best ${whole(confirm.top)} train again with new seeds${baseline === null ? "" : ", and so does the baseline"}.${limits ? ` The budget becomes ${limits}.` : ""}`;
  const send = ["PATCH", ofStudy(study), { desired: "run", confirm, ...(budget && { budget }) }];
  return html`<p class="soft">It can still be confirmed: the best few are trained again with new seeds.</p>
    ${may && html`<p><button type="button" class="primary" onClick=${() => set(true)}>Confirm it</button></p>`}
    ${open && html`<${Asked} label="Confirm" does=${does} send=${send} report=${{ name: study }} rows=${[]} onClose=${() => set(false)} />`}`;
}

function underWay({ trainings }) {
  const done = trainings.filter((each) => each.value !== null).length;
  const failed = trainings.filter((each) => ["fail", "pruned"].includes(each.state)).length;
  return failed ? `${counted(failed, "trainings")} did not come to an end` : `${done} of ${counted(trainings.length, "seeds")} so far`;
}

function Seeds({ study, candidates }) {
  const seeds = [...new Set(candidates.flatMap((each) => each.trainings.map(({ seed }) => seed)))].sort((a, b) => a - b);
  return html`<div class="scroll-x" tabindex="0" role="group" aria-label="The values of each seed"><table class="plain wide"><thead><tr><th scope="col">trial</th><th scope="col" class="right">search</th>${seeds.map((seed) => html`<th scope="col" class="right">seed ${seed}</th>`)}</tr></thead>
    <tbody>${candidates.map((each) => html`<tr><th scope="row"><a href=${href("studies", study, "trials", each.trial)}>${each.trial}</a></th><td class="right num">${number(each.searched)}</td>
      ${seeds.map((seed) => {
        const training = each.trainings.find((one) => one.seed === seed);
        return html`<td class="right num">${training ? html`<a href=${href("studies", study, "trials", training.trial)}>${training.value === null ? training.state : number(training.value)}</a>` : ""}</td>`;
      })}</tr>`)}</tbody></table></div>`;
}

function Parameters({ found }) {
  const { study, trial, baseline, params } = found;
  const own = useTrial(study, trial);
  const first = useTrial(study, baseline === trial ? null : baseline);
  const columns = [{ name: `winner, ${trial}`, href: href("studies", study, "trials", trial), values: params }];
  if (first.value) columns.push({ name: `baseline, ${baseline}`, href: href("studies", study, "trials", baseline), values: first.value.params });
  return html`<section class="card" aria-labelledby="parameters"><h2 id="parameters">Parameters</h2><${Differences} columns=${columns} kinds=${own.value?.kinds} /></section>`;
}

/** The address of this server, as a command line names it. */
const server = (source) => (source.frozen ? "" : ` --server ${location.origin}${location.pathname.replace(/\/$/, "")}`);

/** A name as a shell takes it. */
const quoted = (/** @type {string} */ text) => (/^[\w./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

function Take({ found }) {
  const source = useSource();
  const { study, status } = found;
  const [anyway, set] = useState(false);
  const asks = status === "unconfirmed";
  const file = quoted(`${study.replace(/[^\w.-]+/g, "-")}.yaml`);
  return html`<section class="card" aria-labelledby="take"><h2 id="take">Take it</h2>
    ${!source.frozen && html`
      <p>Its model or adapter, its configuration, and the versions it was trained with, in one zip.</p>
      ${asks && html`<p><label><input type="checkbox" checked=${anyway} onChange=${(event) => set(event.target.checked)} /> I want it though it is not confirmed</label></p>`}
      ${asks && !anyway
        ? html`<button type="button" disabled>Download</button>`
        : html`<${Download} primary path=${`${ofStudy(study, "winner.zip")}${asks ? "?unconfirmed=yes" : ""}`}>Download<//>`}`}
    <h3>Train it</h3>
    <${Command} line=${`hpsearch${server(source)} export ${quoted(study)} -o ${file}`} />
    <${Command} line=${`hpsearch train ${file}`} />
  </section>`;
}

function Recipe({ study, trial }) {
  const source = useSource();
  const [form, set] = useState("yaml");
  const recipe = useAnswer(`${ofStudy(study, "winner", "recipe")}?format=${form}`, { kinds: ["best"], study });
  if (source.frozen && recipe.problem && form === "yaml") return null;
  const found = recipe.value;
  const lost = Object.entries(found?.lost ?? {});
  return html`<section class="card" aria-labelledby="recipe"><h2 id="recipe">Recipe</h2>
    <div class="controls"><label>For <select value=${form} onChange=${(event) => set(event.target.value)}>${FORMS.map(([key, words]) => html`<option value=${key}>${words}</option>`)}</select></label>
      <span class="spread"></span>${found && html`<${Copy} text=${found.text} />`}</div>
    ${recipe.problem ? html`<p class="soft" role="alert">${sentence(recipe.problem.message)}</p>` : found ? html`<pre class="recipe" tabindex="0" aria-label=${`Recipe of trial ${trial}`}>${found.text}</pre>` : html`<${Loading} />`}
    ${lost.length > 0 && html`<h3>What this form cannot say</h3><ul class="facts">${lost.map(([name, why]) => html`<li><code>${name}</code> ${why}</li>`)}</ul>`}
    ${found?.to_fill.length > 0 && html`<p>To be filled in: ${found.to_fill.join(", ")}.</p>`}
  </section>`;
}
