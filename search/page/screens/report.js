/** A study on one page, to read from top to bottom, to print, or to send. */

import { html, useMemo, useState } from "hpsearch/html.js";
import { useAnswer, useNow, useSource } from "hpsearch/data.js";
import { clock, counted, number, setting } from "hpsearch/format.js";
import { logsOf, searchedOf } from "hpsearch/parameters.js";
import { href, ofStudy } from "hpsearch/routes.js";
import { useTrials } from "hpsearch/trials.js";
import { Answered, Trouble } from "hpsearch/parts/basics.js";
import { Curves, THINNED } from "hpsearch/parts/curves.js";
import { Download } from "hpsearch/parts/download.js";
import { Ladder } from "hpsearch/parts/ladder.js";
import { Replay } from "hpsearch/parts/replay.js";
import { Slices } from "hpsearch/parts/slices.js";
import { TimeSpent } from "hpsearch/parts/time-spent.js";
import { Endings, Facts, Figures, Importance } from "hpsearch/screens/study.js";

export const path = "studies/:study/report";
export const title = ({ study }) => `Report on ${study}`;

export function Screen({ params: { study } }) {
  const report = useAnswer(ofStudy(study), { kinds: ["study", "best"], study });
  const winner = useAnswer(ofStudy(study, "winner"), { kinds: ["study", "best"], study });
  const trials = useTrials(study);
  return html`<${Answered} of=${report} lines=${8}>${(found) =>
    html`<${Answered} of=${winner}>${(best) => html`<${Found} report=${found} winner=${best} trials=${trials} />`}<//>`}<//>`;
}

function Found({ report, winner, trials }) {
  const study = report.name;
  const now = useNow(60_000);
  const [picked, setPicked] = useState(/** @type {number | null} */ (null));
  const ladder = useAnswer(ofStudy(study, "ladder"), { kinds: ["trial"], study });
  const held = useAnswer(useSource().frozen ? ofStudy(study, "curves") : null);
  const isThinned = held.value?.step.some((steps, index) => steps.length < held.value.reports[index]);
  const searched = useMemo(() => searchedOf(report), [report]);
  const logs = useMemo(() => logsOf(report), [report]);
  const rungs = [...new Set((ladder.value?.brackets ?? []).flatMap((each) => each.rungs))];
  return html`
    <div class="title"><h1>${study}</h1><p class="soft reason">${report.objective}, ${report.goal} ${report.metric}; as of ${clock(now, 0)}</p>
      <${Download} path=${`report?study=${encodeURIComponent(study)}&form=html`}>Download<//>
      <${Download} path=${`report?study=${encodeURIComponent(study)}&form=md`}>Markdown<//></div>
    ${trials.problem && html`<${Trouble} problem=${trials.problem} />`}
    <${WinnerCard} report=${report} winner=${winner} trials=${trials} />
    <${Figures} report=${report} forecast=${null} />
    <section class="card" aria-labelledby="curves"><h2 id="curves">How it was found</h2>
      <${Replay} rows=${trials.rows} curves=${trials.curves} goal=${report.goal} metric=${report.metric} now=${now}>${(then) => html`
        <${Curves} rows=${then.rows} curves=${then.curves} metric=${report.metric} resource=${report.resource} searched=${searched} logs=${logs} rungs=${rungs} best=${then.best} picked=${picked} onPick=${setPicked} />`}<//>
      ${isThinned && html`<p class="soft">${THINNED}</p>`}
    </section>
    <div class="two">
      <section class="card" aria-labelledby="rungs"><h2 id="rungs">Rungs</h2>
        <${Answered} of=${ladder}>${(value) => html`<${Ladder} ladder=${value} picked=${picked} onPick=${setPicked} />`}<//>
      </section>
      <${Importance} report=${report} />
    </div>
    <section class="card" aria-labelledby="slices"><h2 id="slices">Each parameter against ${report.metric}</h2>
      <${Slices} rows=${trials.rows} searched=${searched} logs=${logs} metric=${report.metric} best=${report.best?.number ?? null} picked=${picked} onPick=${setPicked} />
    </section>
    <section class="card" aria-labelledby="facts"><h2 id="facts">What it rests on</h2><${Facts} report=${report} /></section>
    ${report.endings.length > 0 && html`<${Endings} report=${report} />`}
    <section class="card" aria-labelledby="spent"><h2 id="spent">Where the time of trials went</h2><${TimeSpent} rows=${trials.rows} /></section>
    <${Again} study=${study} winner=${winner} report=${report} />
  `;
}

const interval = (found) => `${number(found.value)} (${number(found.low)} to ${number(found.high)}, 95 %)`;

/** What was found, how sure that is first. */
function WinnerCard({ report, winner, trials }) {
  const baseline = trials.rows.find((row) => row.number === winner.baseline);
  const rows = Object.entries(winner.params);
  return html`<section class="card" aria-labelledby="winner">
    <h2 id="winner">${winner.trial === null ? "No winner" : html`The winner: <a href=${href("studies", winner.study, "trials", winner.trial)}>trial ${winner.trial}</a>`}</h2>
    <p><b>${winner.verdict}.</b> ${winner.why}</p>
    ${winner.trial !== null && html`
      <dl class="facts-list">
        ${winner.value && html`<div><dt>${winner.metric} to expect</dt><dd class="num">${interval(winner.value)}</dd></div>`}
        <div><dt>${winner.metric} in the search</dt><dd class="num">${number(winner.searched)}</dd></div>
        ${winner.gain && html`<div><dt>gain over the baseline</dt><dd class="num">${interval(winner.gain)}</dd></div>`}
        ${winner.seeds > 0 && html`<div><dt>trained again with</dt><dd>${counted(winner.seeds, "seeds")}</dd></div>`}
        ${winner.ties.length > 0 && html`<div><dt>may be as good</dt><dd>${winner.ties.map((each) => `trial ${each}`).join(", ")}</dd></div>`}
      </dl>
      <div class="scroll-x"><table class="plain"><thead><tr><th>parameter</th><th>winner</th>${baseline && html`<th>baseline</th>`}<th>searched</th></tr></thead>
        <tbody>${rows.map(([name, value]) => html`<tr><td>${name}</td><td class="num">${setting(value)}</td>
          ${baseline && html`<td class="num">${name in baseline.params ? setting(baseline.params[name]) : ""}</td>`}
          <td class="soft">${report.parameters.find((each) => each.name === name)?.values ?? ""}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

/** What it takes to do the same again. */
function Again({ study, winner, report }) {
  const source = useSource();
  const space = useAnswer(ofStudy(study, "space"), { text: true });
  const config = useAnswer(winner.trial === null ? null : `${ofStudy(study, "winner", "recipe")}?format=yaml`);
  const provenance = useAnswer(source.frozen ? ofStudy(study, "provenance") : null);
  return html`<section class="card" aria-labelledby="again"><h2 id="again">How to do it again</h2>
    <p>Write the space into <code>space.yaml</code>: <code>hpsearch run space.yaml --backend ${report.backend}</code></p>
    ${config.value && html`<p>Train the winner: write it into <code>best.yaml</code>: <code>hpsearch train best.yaml</code></p>
      <details><summary>best.yaml</summary><pre>${config.value.text}</pre></details>`}
    ${space.value && html`<details><summary>space.yaml</summary><pre>${space.value}</pre></details>`}
    ${provenance.value && html`<details open><summary>Where it comes from</summary><dl class="facts-list">
      ${Object.entries(provenance.value).map(([name, value]) => html`<div><dt>${name}</dt><dd class="num">${String(value)}</dd></div>`)}</dl></details>`}
  </section>`;
}
