/** One trial: what it is beside the winner, why it was proposed, paused or ended, what it printed and left. */

import { html, useMemo, useState } from "hpsearch/html.js";
import { useAnswer, useNow, useSource } from "hpsearch/data.js";
import { ago, bytes, clock, counted, duration, number, whole } from "hpsearch/format.js";
import { compared, entryOf } from "hpsearch/picked.js";
import { href, ofStudy } from "hpsearch/routes.js";
import { finite } from "hpsearch/trials.js";
import { useTrial } from "hpsearch/trial.js";
import { Answered, State, Trouble } from "hpsearch/parts/basics.js";
import { CloneTrial } from "hpsearch/parts/clone.js";
import { Differences } from "hpsearch/parts/differences.js";
import { Download } from "hpsearch/parts/download.js";
import { useKeys } from "hpsearch/parts/keys.js";
import { THINNED } from "hpsearch/parts/curves.js";
import { Lines, look } from "hpsearch/parts/lines.js";
import { Log } from "hpsearch/parts/log.js";
import { Pick } from "hpsearch/parts/picked.js";
import { Asked, useMay } from "hpsearch/parts/steer.js";

export const path = "studies/:study/trials/:trial";
export const title = ({ study, trial }) => `trial ${trial} of ${study}`;

const OTHERS = 80; // trials whose curves are drawn behind
const WAITS = ["running", "paused", "waiting"];

export function Screen({ params: { study, trial: asked }, go }) {
  const trial = Number(asked);
  if (!/^\d{1,9}$/.test(asked)) return html`<${Trouble} problem=${{ message: `"${asked}" is no number of a trial.` }} />`;
  return html`<${Trial} study=${study} trial=${trial} go=${go} />`;
}

function Trial({ study, trial, go }) {
  const own = useTrial(study, trial);
  const newest = useAnswer(`${ofStudy(study, "trials")}?sort=newest&limit=1&fields=number`, { kinds: ["study"], study });
  const last = newest.value?.[0]?.number ?? null;
  const there = (number) => number >= 0 && (last === null || number <= last);
  const open = (number) => there(number) && go(`/studies/${encodeURIComponent(study)}/trials/${number}`);
  useKeys(
    useMemo(
      () => [
        ["j", "The next trial", () => open(trial + 1)],
        ["k", "The trial before", () => open(trial - 1)],
        ["w", "The winner", () => go(`/studies/${encodeURIComponent(study)}/winner`)],
      ],
      [study, trial, last],
    ),
  );
  const step = (to, words) =>
    there(to)
      ? html`<a class="button" rel=${words} href=${href("studies", study, "trials", to)} aria-label=${`The ${words} trial, ${to}`}>${words === "next" ? "›" : "‹"}</a>`
      : html`<span class="button" aria-disabled="true">${words === "next" ? "›" : "‹"}</span>`;
  return html`
    <nav class="crumbs" aria-label="Where this is">
      <a href=${href("studies", study)}>${study}</a><span aria-hidden="true">/</span>
      <a href=${`${href("studies", study)}?tab=trials`}>trials</a>
      <span class="steps-between">${step(trial - 1, "prev")}${step(trial + 1, "next")}</span>
    </nav>
    <${Answered} of=${own} lines=${8}>${(found) => html`<${Found} found=${found} study=${study} trial=${trial} go=${go} reload=${own.reload} />`}<//>
  `;
}

function Found({ found, study, trial, go, reload }) {
  const winner = useAnswer(ofStudy(study, "winner"), { kinds: ["best", "study"], study });
  const best = winner.value?.trial ?? null;
  const baseline = winner.value?.baseline ?? null;
  return html`
    <${Head} found=${found} winner=${winner.value} go=${go} reload=${reload} />
    <div class="two">
      <div>
        <${Curve} found=${found} best=${best} />
        <${Story} study=${study} trial=${trial} found=${found} />
      </div>
      <div>
        <${Parameters} found=${found} best=${best} baseline=${baseline} params=${winner.value?.params} />
        ${found.bracket_rungs.length > 0 && html`<${Rungs} found=${found} />`}
      </div>
    </div>
    <${Printed} study=${study} trial=${trial} live=${WAITS.includes(found.state)} />
    <${Files} study=${study} trial=${trial} found=${found} />
  `;
}

/** What it has come to, and what can be done with it. */
function Head({ found, winner, go, reload }) {
  const { study, number: trial, metric, resource, state } = found;
  const now = useNow(5000);
  const may = useMay("write");
  const [asked, ask] = useState(/** @type {any} */ (null));
  const [cloning, clone] = useState(false);
  const last = found.curve.at(-1);
  const value = state === "complete" ? found.value : (last?.[1] ?? null);
  const of = { name: `trial ${trial} of ${study}` };
  const post = (...parts) => ["POST", ofStudy(study, "trials", trial, ...parts)];
  const kill = { label: "Kill", danger: true, send: post("kill"), does: `It ends at once, as failed${found.seconds ? `; what it trained in ${duration(found.seconds)} is lost` : ""}. The search goes on.` };
  const retry = { label: "Retry", send: post("retry"), does: "It is tried again: the same number and parameters, from its last checkpoint." };
  const marks = [
    trial === winner?.trial && ["winner", href("studies", study, "winner")],
    found.baseline && ["baseline", null],
    found.confirms !== null && [`confirms trial ${found.confirms}`, href("studies", study, "trials", found.confirms)],
    winner?.ties?.includes(trial) && ["ties with the winner", href("studies", study, "winner")],
  ].filter(Boolean);
  return html`
    <div class="title">
      <h1>Trial ${trial}</h1><${State} state=${state} title=${found.reason ?? ""} />
      ${marks.map(([words, to]) => (to ? html`<a class="badge" href=${to}>${words}</a>` : html`<span class="badge">${words}</span>`))}
      <span class="spread"></span>
      <div class="steer" role="group" aria-label="What can be done with it">
        ${may && WAITS.includes(state) && found.started && html`<button type="button" class="danger" onClick=${() => ask(kill)}>Kill</button>`}
        ${may && state === "fail" && html`<button type="button" class="primary" onClick=${() => ask(retry)}>Retry</button>`}
        ${may && Object.keys(found.params).length > 0 && html`<button type="button" onClick=${() => clone(true)}>Try with changes</button>`}
        ${winner?.trial !== null && winner?.trial !== undefined && winner.trial !== trial &&
          html`<a class="button" href=${`#${compared([entryOf(study, trial), entryOf(study, winner.trial)])}`}>Compare with the winner</a>`}
        <${Pick} study=${study} trial=${trial} words="pick" />
      </div>
    </div>
    <dl class="figures">
      <div><dt>${state === "complete" ? metric : WAITS.includes(state) ? `${metric} so far` : `last ${metric}`}</dt><dd class="num">${value === null ? "–" : number(value)}</dd>
        <dd class="soft">${last ? `${counted(found.reports ?? found.curve.length, "reports")}, the last at ${counted(last[0], resource)}` : WAITS.includes(state) ? "no report yet" : "no report"}</dd></div>
      <div><dt>Trained</dt><dd class="num">${found.trained === null ? "–" : counted(found.trained, resource)}</dd>
        <dd class="soft">${found.retries ? `tried ${found.retries + 1} times` : found.bracket === null ? "" : `bracket ${found.bracket}`}</dd></div>
      <div><dt>Time</dt><dd class="num">${duration(found.seconds) || "–"}</dd>
        <dd class="soft">${found.started ? `began ${clock(found.started, now)}` : "has not begun"}</dd></div>
      <div><dt>${found.ended ? "Ended" : "Ends"}</dt><dd class="num">${found.ended ? ago(found.ended, now) : "–"}</dd>
        <dd class="soft">${found.why ?? (found.ended ? "at its end" : state)}</dd></div>
    </dl>
    ${asked && html`<${Asked} ...${asked} report=${of} rows=${[]} onClose=${() => { ask(null); reload(); }} />`}
    ${cloning && html`<${CloneTrial} study=${study} trial=${trial} params=${found.params} onClose=${() => clone(false)} onMade=${(made) => go(`/studies/${encodeURIComponent(study)}/trials/${made}`)} />`}
  `;
}

function Curve({ found, best }) {
  const { study, number: trial, metric, resource } = found;
  const wanted = best === null || best === trial ? null : best;
  const its = useAnswer(wanted === null ? null : `${ofStudy(study, "curves")}?trials=${wanted}`, { kinds: ["best"], study });
  const others = useOthers(study, found, wanted);
  const lines = useMemo(() => {
    const own = { name: `trial ${trial}`, look: look(0), live: found.state === "running", x: found.curve.map(([step]) => step), y: found.curve.map(([, value]) => finite(value)) };
    const at = its.value?.trial.indexOf(wanted) ?? -1;
    if (at < 0) return [own];
    const winner = { name: `winner, trial ${wanted}`, look: look(1), href: href("studies", study, "trials", wanted), x: its.value.step[at], y: its.value.value[at].map(finite) };
    return [own, winner];
  }, [found, its.value, wanted]);
  return html`<section class="card" aria-labelledby="curve"><h2 id="curve">Curve</h2>
    ${lines.every((each) => each.x.length === 0)
      ? html`<p class="soft none">${WAITS.includes(found.state) ? "It has reported nothing yet." : "It has reported nothing."}</p>`
      : html`<${Lines} lines=${lines} others=${others} marks=${found.bracket_rungs} xLabel=${resource} yLabel=${metric} />`}
    ${found.reports > found.curve.length && html`<p class="soft">${THINNED}</p>`}
  </section>`;
}

/** The curves of others that it is compared with at rungs; of a study without rungs, of any others. */
function useOthers(study, found, best) {
  const ladder = useAnswer(found.bracket === null ? null : ofStudy(study, "ladder"));
  const numbers = useMemo(() => {
    const bracket = ladder.value?.brackets.find((each) => each.number === found.bracket);
    const all = (bracket?.trials ?? []).map((each) => each.trial).filter((each) => each !== found.number && each !== best);
    const every = Math.ceil(all.length / OTHERS);
    return all.filter((_, index) => index % every === 0).join();
  }, [ladder.value, found.number, best]);
  const asked = found.bracket === null ? `limit=${OTHERS}` : numbers && `trials=${numbers}`;
  const curves = useAnswer(asked ? `${ofStudy(study, "curves")}?points=60&${asked}` : null, { kinds: ["study"], study });
  return useMemo(() => {
    if (!curves.value) return [];
    return curves.value.trial
      .map((each, index) => ({ trial: each, x: curves.value.step[index], y: curves.value.value[index].map(finite) }))
      .filter((each) => each.trial !== found.number && each.trial !== best);
  }, [curves.value, found.number, best]);
}

function Story({ study, trial, found }) {
  const source = useSource();
  const story = useAnswer(ofStudy(study, "trials", trial, "story"), { kinds: ["trial", "study"], study, trial });
  if (source.frozen && story.problem) {
    return found.reason ? html`<section class="card" aria-labelledby="story"><h2 id="story">Story</h2><p>${found.reason}</p></section>` : null;
  }
  return html`<section class="card" aria-labelledby="story"><h2 id="story">Story</h2>
    <${Answered} of=${story}>${(told) => html`
      <ol class="story">
        <${Event} mark="proposed" words=${told.suggested} />
        ${told.events.map((each) => html`<${Event} mark=${each.split(" ")[0]} words=${each} />`)}
        ${told.attempts.map((each) => html`<${Event} mark="tried" words=${each} />`)}
        ${told.waits.map((each) => html`<${Event} mark="waits" words=${each} />`)}
        ${told.end && html`<${Event} mark=${told.state} words=${told.end} />`}
        ${!told.end && told.state === "running" && html`<${Event} mark="running" words="it trains now" />`}
      </ol>
    `}<//>
    ${found.error && !String(story.value?.end).includes(found.error) && html`<p class="bad">${found.error}</p>`}
    ${found.traceback && html`<details class="trace" open=${found.state === "fail"}><summary>Traceback</summary><pre tabindex="0" aria-label="Traceback">${found.traceback}</pre></details>`}
    ${found.advice.length > 0 && html`<h3>What may help</h3><ul class="facts">${found.advice.map((each) => html`<li>${each}</li>`)}</ul>`}
    <${Attributes} of=${{ ...found.metrics, ...found.attributes }} />
  </section>`;
}

const Event = ({ mark, words }) => html`<li class=${`event ${mark}`}><span class="dot" aria-hidden="true"></span><bdi>${words[0].toUpperCase() + words.slice(1)}</bdi>.</li>`;

/** What its objective has said beside the metric. */
function Attributes({ of }) {
  const all = Object.entries(of);
  if (!all.length) return null;
  return html`<h3>What it has said beside that</h3><dl class="facts-list">${all.map(
    ([name, value]) => html`<div><dt>${name}</dt><dd class="num">${typeof value === "number" ? number(value) : typeof value === "string" ? value : JSON.stringify(value)}</dd></div>`,
  )}</dl>`;
}

function Parameters({ found, best, baseline, params }) {
  const { study, number: trial } = found;
  const beside = best === trial ? null : best;
  const old = baseline === trial || baseline === best ? null : baseline;
  const first = useTrial(study, old);
  const columns = [
    { name: `trial ${trial}`, values: found.params },
    beside !== null && { name: `winner, ${beside}`, href: href("studies", study, "trials", beside), values: params ?? {} },
    old !== null && first.value && { name: `baseline, ${old}`, href: href("studies", study, "trials", old), values: first.value.params },
  ].filter(Boolean);
  return html`<section class="card" aria-labelledby="parameters"><h2 id="parameters">Parameters</h2>
    ${Object.keys(found.params).length === 0
      ? html`<p class="soft none">It gets its parameters when its turn comes.</p>`
      : html`<${Differences} columns=${columns} kinds=${found.kinds} />`}
  </section>`;
}

function Rungs({ found }) {
  const { bracket_rungs: steps, rungs, metric, resource } = found;
  const by = new Map(rungs.map((each) => [each.step, each]));
  return html`<section class="card" aria-labelledby="rungs"><h2 id="rungs">Rungs</h2>
    <table class="plain wide"><thead><tr><th scope="col">${resource}</th><th scope="col" class="right">${metric}</th><th scope="col">rank among those that got there</th></tr></thead>
      <tbody>${steps.map((step) => {
        const at = by.get(step);
        if (!at) return html`<tr class="soft"><td class="num">${whole(step)}</td><td class="right">–</td><td>not reached</td></tr>`;
        return html`<tr><td class="num">${whole(step)}</td><td class="right num">${number(at.value)}</td>
          <td><span class="rank"><span class="bar-track" aria-hidden="true"><span class="rank-at" style=${{ left: `${at.reached > 1 ? (100 * (at.rank - 1)) / (at.reached - 1) : 0}%` }}></span></span>
            <span class="num">${at.rank} of ${at.reached}</span></span></td></tr>`;
      })}</tbody></table>
  </section>`;
}

function Printed({ study, trial, live }) {
  const source = useSource();
  if (source.frozen) return null;
  return html`<section class="card" aria-labelledby="log"><h2 id="log">Log</h2>
    <${Log} path=${ofStudy(study, "trials", trial, "log")} live=${live} label=${`Log of trial ${trial}`} none=${live ? "It has printed nothing yet" : "It has printed nothing"} />
  </section>`;
}

function Files({ study, trial, found }) {
  const source = useSource();
  const files = useAnswer(source.frozen ? null : ofStudy(study, "trials", trial, "files"), { kinds: ["trial"], study, trial });
  if (source.frozen) return null;
  const path = (file) => `${ofStudy(study, "trials", trial, "files")}/${file.split("/").map(encodeURIComponent).join("/")}`;
  return html`<section class="card" aria-labelledby="files"><h2 id="files">Files</h2>
    <${Answered} of=${files}>${({ files: all }) => all.length === 0
      ? html`<p class="soft none">It has left no files.</p>`
      : html`<div class="scroll-x" tabindex="0" role="group" aria-labelledby="files"><table class="plain wide files"><thead><tr><th scope="col">file</th><th scope="col" class="right">size</th><th><span class="hidden">download</span></th></tr></thead>
        <tbody>${all.map((each) => html`<tr key=${each.path}><td>${each.path}</td><td class="right num">${bytes(each.bytes)}</td>
          <td class="right"><${Download} path=${path(each.path)} label=${`Download ${each.path}`}>Download<//></td></tr>`)}</tbody></table></div>`}<//>
    ${found.folder && html`<p class="soft small">On the server: <code>${found.folder}</code></p>`}
  </section>`;
}
