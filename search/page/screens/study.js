/** One study: its curves as they grow, its rungs, its trials, what its parameters do, and where its time went. */

import { html, useMemo, useState } from "hpsearch/html.js";
import { useAnswer, useNow } from "hpsearch/data.js";
import { counted, duration, number, sentence, setting, whole } from "hpsearch/format.js";
import { logsOf, searchedOf } from "hpsearch/parameters.js";
import { href, ofStudy } from "hpsearch/routes.js";
import { stateOf } from "hpsearch/state.js";
import { useTrials } from "hpsearch/trials.js";
import { Answered, Progress, State, Trouble, Value } from "hpsearch/parts/basics.js";
import { Bars } from "hpsearch/parts/bars.js";
import { Course } from "hpsearch/parts/course.js";
import { Curves } from "hpsearch/parts/curves.js";
import { Ladder } from "hpsearch/parts/ladder.js";
import { OptunaDashboard } from "hpsearch/parts/optuna.js";
import { Parallel } from "hpsearch/parts/parallel.js";
import { Pick } from "hpsearch/parts/picked.js";
import { Slices } from "hpsearch/parts/slices.js";
import { endOf, hasPace, Kill, Steer, useMay } from "hpsearch/parts/steer.js";
import { Table } from "hpsearch/parts/table.js";
import { TimeSpent } from "hpsearch/parts/time-spent.js";

export const path = "studies/:study";
export const title = ({ study }) => study;

const TABS = [["", "Overview"], ["trials", "Trials"], ["parameters", "Parameters"], ["time", "Time and ends"]];

export function Screen({ params: { study }, query, go }) {
  const report = useAnswer(ofStudy(study), { kinds: ["study", "queue", "best"], study });
  const trials = useTrials(study);
  const tab = query.tab ?? "";
  const early = report.value === undefined && !report.problem;
  return html`${report.value === undefined && html`<h1>${study}</h1>`}
    <${Answered} of=${report} lines=${8}>${(found) => html`<${Found} report=${found} trials=${trials} tab=${tab} go=${go} />`}<//>
    ${early && tab === "" && trials.curves.size > 0 && html`<div class="two"><section class="card" aria-label="Curves"><h2>Curves</h2>
      <${Curves} rows=${trials.rows} curves=${trials.curves} metric="value" resource="step" searched=${[]} logs=${new Set()} /></section></div>`}`;
}

function Found({ report, trials, tab, go }) {
  const study = report.name;
  const [picked, setPicked] = useState(/** @type {number | null} */ (null));
  const state = stateOf(report, report.queue);
  const runs = Boolean(report.searching);
  const forecast = useAnswer(runs && hasPace(report) ? ofStudy(study, "forecast") : null, { kinds: ["study"], study, every: 10_000 });
  const searched = useMemo(() => searchedOf(report), [report]);
  const logs = useMemo(() => logsOf(report), [report]);
  const best = report.best?.number ?? null;
  const shared = { report, trials, searched, logs, picked, best, onPick: setPicked, open: (trial) => go(`/studies/${encodeURIComponent(study)}/trials/${trial}`) };
  return html`
    <div class="title">
      <h1>${study}</h1><${State} state=${state.state} title=${state.reason} />
      <p class="soft reason">${state.reason}</p>
      <${Steer} report=${report} state=${state} rows=${trials.rows} curves=${trials.curves} />
    </div>
    <${Figures} report=${report} forecast=${forecast.value} />
    <nav class="tabs" aria-label="Parts of the study">${TABS.map(
      ([key, label]) => html`<a key=${key} href=${`${href("studies", study)}${key && `?tab=${key}`}`} aria-current=${key === tab ? "page" : null}>${label}</a>`,
    )}
      <a href=${href("studies", study, "winner")}>Winner</a><a href=${href("studies", study, "report")}>Report</a><${OptunaDashboard} study=${study} /></nav>
    ${trials.problem && html`<${Trouble} problem=${trials.problem} />`}
    ${tab === "trials" ? html`<${Trials} ...${shared} />` : tab === "parameters" ? html`<${Parameters} ...${shared} />` : tab === "time" ? html`<${Time} ...${shared} />` : html`<${Overview} ...${shared} />`}
  `;
}

/** The numbers that matter most. */
export function Figures({ report, forecast }) {
  const now = useNow(5000);
  const { best, trials, seconds, metric } = report;
  const end = endOf(report.queue, forecast, now);
  return html`
    <dl class="figures">
      <div><dt>Best ${metric}</dt><dd><${Value} value=${best?.value} />${best && html` <a class="small" href=${href("studies", report.name, "trials", best.number)}>trial ${best.number}</a>`}</dd>
        <dd class="soft">${report.comparison ?? "no trial is complete"}</dd></div>
      <div><dt>Trials</dt><dd class="num">${whole(trials.used)}${trials.total ? ` of ${whole(trials.total)}` : ""}</dd>
        <dd>${trials.total ? html`<${Progress} used=${trials.used} total=${trials.total} label="Trials" />` : html`<span class="soft">${told(report)}</span>`}</dd></div>
      <div><dt>Time</dt><dd class="num">${duration(seconds.used) || "0 s"}${seconds.total ? ` of ${duration(seconds.total)}` : ""}</dd>
        <dd>${seconds.total ? html`<${Progress} used=${seconds.used} total=${seconds.total} label="Time" />` : html`<span class="soft">${report.without_stopping && report.consumed.used ? `${number(Math.max(0, 100 * (1 - report.consumed.used / report.without_stopping)), 2)} % spared by stopping early` : "no limit"}</span>`}</dd></div>
      <div><dt>Ends</dt><dd class="num">${end || (report.searching ? "unknown yet" : report.phase === "over" ? "over" : "–")}</dd>
        <dd class="soft">${forecast ? `${counted(forecast.trials, "trials")} foreseen, ${whole(forecast.complete)} to their end` : report.searching ? report.phase : report.phase === "over" ? "nothing is left to do" : "no search runs"}</dd></div>
    </dl>
  `;
}

/** How many trials are in each state, those that confirm the best among them. */
export function told({ states, confirming }) {
  const counts = Object.entries(states).map(([state, count]) => `${whole(count)} ${state}`).join(", ");
  return confirming ? `${counts}; ${whole(confirming)} of these confirm the best` : counts;
}

function Overview({ report, trials, searched, logs, picked, best, onPick, open }) {
  const study = report.name;
  const ladder = useAnswer(ofStudy(study, "ladder"), { kinds: ["trial", "study"], study });
  const improvements = useAnswer(ofStudy(study, "improvements"), { kinds: ["best"], study });
  const now = useNow(5000);
  const rungs = [...new Set((ladder.value?.brackets ?? []).flatMap((each) => each.rungs))];
  return html`
    <${Failures} report=${report} />
    <div class="two">
      <div class="side">
      <section class="card" aria-labelledby="curves"><h2 id="curves">Curves</h2>
        ${!trials.loading && trials.curves.size === 0
          ? html`<p class="soft none">${trials.rows.length ? "No trial has reported a value." : "No trial has begun yet."}</p>`
          : html`<${Curves} rows=${trials.rows} curves=${trials.curves} metric=${report.metric} resource=${report.resource} searched=${searched} logs=${logs} rungs=${rungs} best=${best} picked=${picked} onPick=${onPick} />`}
        <${Picked} report=${report} trials=${trials} picked=${picked} open=${open} />
      </section>
      <section class="card" aria-labelledby="facts"><h2 id="facts">What it says</h2><${Facts} report=${report} /></section>
      </div>
      <div class="side">
        <section class="card" aria-labelledby="course"><h2 id="course">Best so far</h2>
          <${Answered} of=${improvements}>${(value) => html`<${Course} improvements=${value} now=${now} href=${(trial) => href("studies", study, "trials", trial)} />`}<//>
        </section>
        ${(ladder.value?.brackets.length ?? 1) > 0 && html`<section class="card" aria-labelledby="rungs"><h2 id="rungs">Rungs</h2>
          <${Answered} of=${ladder}>${(value) => html`<${Ladder} ladder=${value} picked=${picked} onPick=${onPick} />`}<//>
        </section>`}
      </div>
    </div>
  `;
}

/** What went wrong, before anything else. */
export function Failures({ report }) {
  const failed = report.endings.filter((each) => each.state === "fail");
  return failed.length === 0 ? null : html`<div class="failures" role="note" aria-label="Failures">${failed.map(
    ({ trials, example }) => html`<p><b class="bad">${counted(trials.length, "trials")} failed</b>: <bdi>${example}</bdi> <a href=${href("studies", report.name, "trials", trials.at(-1))}>trial ${trials.at(-1)}</a></p>`,
  )}</div>`;
}

/** What can be done with the trial that was picked; its line is always there. */
function Picked({ report, trials, picked, open }) {
  const row = picked === null ? null : trials.rows.find((each) => each.number === picked);
  return html`<div class="picked row">${row
    ? html`<b>trial ${row.number}</b> <${State} state=${row.state} title=${row.reason ?? ""} /><span class="soft grow">${row.why ?? ""}</span>
        <${Pick} study=${report.name} trial=${row.number} words="compare" />
        <button type="button" onClick=${() => open(row.number)}>Open</button><${Kill} report=${report} row=${row} />`
    : ""}</div>`;
}

export function Facts({ report }) {
  const lines = [...report.confirmation, ...report.audit, ...(report.cost?.in_words ?? []).map((line, index) => (index ? line : `It has cost ${line}`)), report.made_room && `It has made room for others ${counted(report.made_room.times, "times")}, which cost ${duration(report.made_room.lost_seconds)}.`, ...report.untold.map(({ target, kinds }) => `Not notified yet: ${target} (${kinds.join(", ").replaceAll("_", " ")}).`)];
  return html`
    <ul class="facts">${lines.filter(Boolean).map((each) => html`<li>${sentence(each)}</li>`)}</ul>
    <dl class="facts-list">
      ${[["Objective", report.objective], ["Sampler", report.sampler], ["Early stopping", report.early_stopping], ["Backend", report.backend], ["Goal", `${report.goal} ${report.metric}`], ["Trained", counted(report.consumed.used, report.resource)]].map(
        ([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`,
      )}
    </dl>
  `;
}

function columnsOf(report, searched, rows) {
  const metrics = [...new Set(rows.slice(-200).flatMap((row) => Object.keys(row.metrics)))];
  const right = true;
  return [
    { key: "number", label: "trial", right, of: (row) => row.number },
    { key: "state", label: "state", of: (row) => row.state, show: (row) => html`<${State} state=${row.state} title=${row.reason ?? ""} />` },
    { key: "value", label: report.metric, right, of: (row) => row.value, show: (row) => number(row.value) },
    { key: "trained", label: report.resource, right, of: (row) => row.trained, show: (row) => (row.trained === null ? "" : whole(row.trained)) },
    { key: "seconds", label: "seconds", right, of: (row) => row.seconds, show: (row) => number(row.seconds, 4) },
    ...searched.map((name) => ({ key: name, label: name, right: rows.some((row) => typeof row.params[name] === "number"), of: (row) => row.params[name], show: (row) => (name in row.params ? setting(row.params[name]) : "") })),
    { key: "why", label: "why it ended", of: (row) => (row.baseline ? "baseline" : row.confirms !== null ? `confirms ${row.confirms}` : row.why) },
    { key: "started", label: "started", hidden: true, of: (row) => row.started },
    ...metrics.map((name) => ({ key: name, label: name, right, hidden: true, of: (row) => row.metrics[name], show: (row) => number(row.metrics[name]) })),
  ];
}

function Trials({ report, trials, searched, picked, onPick, open }) {
  const columns = useMemo(() => columnsOf(report, searched, trials.rows), [report.metric, searched, trials.rows.length]);
  return html`<div class="card">
    <${Table} rows=${trials.rows} id=${(row) => row.number} things="trials" label="Trials" columns=${columns} first=${{ key: "number", down: true }} height=${560} picked=${picked} onPick=${onPick} onOpen=${open} />
    <${Picked} report=${report} trials=${trials} picked=${picked} open=${open} />
  </div>`;
}

function Parameters({ report, trials, searched, logs, picked, best, onPick, open }) {
  const may = useMay("write");
  const edges = report.parameters.filter((each) => each.edge);
  return html`
    <div class="two">
      <${Importance} report=${report} />
      <section class="card" aria-labelledby="ranges"><h2 id="ranges">Ranges</h2>
        ${edges.length === 0 && html`<p class="soft">No range presses: the best values lie inside.</p>`}
        ${edges.map(({ name, edge }) => html`<div class="edge" key=${name}><p><b>${name}</b>: ${edge.at} of the best ${edge.best} lie at its ${edge.end} end${edge.winner ? ", the winner among them" : ""}. Wider:</p><pre>${edge.line}</pre></div>`)}
        ${may && edges.length > 0 && html`<a class="button" href=${`${href("submit")}?from=${encodeURIComponent(report.name)}&ranges=yes`}>Search the wider ranges</a>`}
      </section>
    </div>
    <section class="card" aria-labelledby="slices"><h2 id="slices">Each parameter against ${report.metric}</h2>
      <${Slices} rows=${trials.rows} searched=${searched} logs=${logs} metric=${report.metric} best=${best} picked=${picked} onPick=${onPick} />
    </section>
    <section class="card" aria-labelledby="parallel"><h2 id="parallel">All of them together</h2>
      <${Parallel} rows=${trials.rows} searched=${searched} logs=${logs} metric=${report.metric} picked=${picked} onPick=${onPick} />
      <${Picked} report=${report} trials=${trials} picked=${picked} open=${open} />
    </section>
  `;
}

function Time({ report, trials }) {
  return html`
    <section class="card" aria-labelledby="spent"><h2 id="spent">Where the time of trials went</h2><${TimeSpent} rows=${trials.rows} /></section>
    <${Endings} report=${report} />
  `;
}

/** What tells good trials from the others, and how far that can be trusted. */
export function Importance({ report }) {
  const shares = report.parameters.filter((each) => each.importance).map(({ name, importance }) => ({ name, ...importance }));
  shares.sort((a, b) => b.share - a.share);
  return html`
    <section class="card" aria-labelledby="importance"><h2 id="importance">Importance</h2>
      ${shares.length > 0 && html`<${Bars} items=${shares} label="Share of what tells good trials from the others" />`}
      <p class="soft">${sentence(report.importance ?? "")}</p>
    </section>
  `;
}

/** Why trials ended early, the failures first. */
export function Endings({ report }) {
  return html`
    <section class="card" aria-labelledby="ends"><h2 id="ends">Why trials ended early</h2>
      ${report.endings.length === 0
        ? html`<p class="soft">None did.</p>`
        : html`<div class="scroll-x" tabindex="0" role="group" aria-label="Reasons"><table class="plain"><thead><tr><th>state</th><th class="right">trials</th><th>why</th><th>the last one</th></tr></thead><tbody>
            ${report.endings.map((each) => html`<tr><td><${State} state=${each.state} /></td><td class="right num">${whole(each.trials.length)}</td><td>${each.why}</td>
              <td><a href=${href("studies", report.name, "trials", each.trials.at(-1))}>trial ${each.trials.at(-1)}</a> <span class="soft">${each.example}</span></td></tr>`)}
          </tbody></table></div>`}
    </section>
  `;
}
