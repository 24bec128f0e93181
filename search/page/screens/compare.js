/** Trials and studies side by side: what differs first, and their curves together. */

import { html, useCallback, useEffect, useMemo, useState } from "hpsearch/html.js";
import { useAnswer } from "hpsearch/data.js";
import { counted, duration, number, whole } from "hpsearch/format.js";
import { MOST, compared, entriesOf, partsOf, usePicked } from "hpsearch/picked.js";
import { href, ofStudy } from "hpsearch/routes.js";
import { finite } from "hpsearch/trials.js";
import { useTrial } from "hpsearch/trial.js";
import { Empty, Loading, State } from "hpsearch/parts/basics.js";
import { Differences } from "hpsearch/parts/differences.js";
import { Estimate } from "hpsearch/parts/intervals.js";
import { Lines, look } from "hpsearch/parts/lines.js";
import { told } from "hpsearch/screens/study.js";

export const path = "compare";
export const title = () => "Compare";
export const nav = { label: "Compare", key: "c" };

export function Screen({ query, go }) {
  const asked = query.of ?? "";
  const picked = usePicked();
  const entries = useMemo(() => entriesOf(asked), [asked]);
  const [found, set] = useState({});
  const read = useCallback((entry, answer) => set((old) => ({ ...old, [entry]: answer })), []);
  const to = (of) => go(compared(of));
  const all = entries.map((entry) => ({ entry, ...partsOf(entry), ...(found[entry] ?? { value: undefined, problem: null }) }));
  return html`
    <div class="title"><h1>Compare</h1></div>
    <${Entry} entries=${entries} to=${to} picked=${picked.entries} />
    ${entries.map((entry) => html`<${Reader} key=${entry} entry=${entry} onRead=${read} />`)}
    ${entries.length === 0
      ? html`<${Empty} title="Nothing is compared yet">
          <p>Pick trials in a study's table or on their own screens, or write them above: <code>lora:3, 7, 12</code> for trials of a study, <code>lora, gpt</code> for whole studies.</p><//>`
      : html`<${Together} all=${all} onDrop=${(entry) => to(entries.filter((each) => each !== entry))} />`}
  `;
}

/** What somebody has typed; a number alone is a trial of the study before it. */
export function typed(/** @type {string} */ text) {
  let study = "";
  const entries = text.split(",").map((each) => {
    const word = each.trim();
    if (/^\d+$/.test(word) && study) return `${study}:${word}`;
    study = /^(.*):\d+$/.exec(word)?.[1] ?? "";
    return word;
  });
  return entriesOf(entries.filter(Boolean).join(","));
}

function Entry({ entries, to, picked }) {
  const shown = entries.map((entry) => { const { study, trial } = partsOf(entry); return trial === null ? study : `${study}:${trial}`; }).join(", ");
  const [text, set] = useState(shown);
  useEffect(() => set(shown), [shown]);
  const studies = useAnswer("studies", { pages: true });
  const more = picked.filter((entry) => !entries.includes(entry));
  const given = (event) => {
    event.preventDefault();
    to(typed(text));
  };
  const add = (event) => {
    const chosen = event.target.value;
    event.target.value = "";
    if (chosen) to([...entries, encodeURIComponent(chosen)]);
  };
  return html`<form class="row entry" onSubmit=${given}>
    <input value=${text} aria-label="Trials and studies" placeholder="lora:3, 7, gpt" spellcheck="false" autocomplete="off" onInput=${(event) => set(event.target.value)} />
    <button type="submit" class="primary">Compare</button>
    <select aria-label="Add a study" onChange=${add}><option value="">Add a study</option>${(studies.value ?? []).map((each) => html`<option value=${each.name}>${each.name}</option>`)}</select>
    ${more.length > 0 && html`<button type="button" disabled=${entries.length >= MOST} onClick=${() => to([...entries, ...more])}>Add ${more.length} picked</button>`}
  </form>`;
}

/** Reads one entry, and tells what was read. */
function Reader({ entry, onRead }) {
  const { study, trial } = partsOf(entry);
  return trial === null ? html`<${StudyReader} entry=${entry} study=${study} onRead=${onRead} />` : html`<${TrialReader} entry=${entry} study=${study} trial=${trial} onRead=${onRead} />`;
}

function TrialReader({ entry, study, trial, onRead }) {
  const own = useTrial(study, trial);
  useEffect(() => onRead(entry, { value: own.value, problem: own.value ? null : own.problem }), [own.value, own.problem]);
  return null;
}

function StudyReader({ entry, study, onRead }) {
  const report = useAnswer(ofStudy(study), { kinds: ["study", "best"], study });
  const winner = useAnswer(ofStudy(study, "winner"), { kinds: ["study", "best"], study });
  const curve = useAnswer(ofStudy(study, "improvements"), { kinds: ["best"], study });
  useEffect(() => {
    const value = report.value && { report: report.value, winner: winner.value, curve: curve.value };
    onRead(entry, { value, problem: value ? null : report.problem });
  }, [report.value, winner.value, curve.value, report.problem]);
  return null;
}

function Together({ all, onDrop }) {
  const wrong = all.filter((each) => each.problem);
  const there = all.filter((each) => each.value);
  const several = new Set(all.filter((each) => each.trial !== null).map((each) => each.study)).size > 1;
  const named = there.map((each, index) => ({
    ...each,
    look: look(index),
    name: each.trial === null ? each.study : several ? `${each.study} ${each.trial}` : `trial ${each.trial}`,
    href: each.trial === null ? href("studies", each.study) : href("studies", each.study, "trials", each.trial),
  }));
  const trials = named.filter((each) => each.trial !== null);
  const studies = named.filter((each) => each.trial === null);
  return html`
    ${wrong.map((each) => html`<div class="card bad-card row" role="alert"><p class="bad grow">${each.trial === null ? each.study : `${each.study}:${each.trial}`}: ${each.problem.message}</p><button type="button" onClick=${() => onDrop(each.entry)}>Leave it out</button></div>`)}
    ${there.length < all.length - wrong.length && html`<section><${Loading} /></section>`}
    ${trials.length > 0 && html`<${Trials} trials=${trials} onDrop=${onDrop} />`}
    ${studies.length > 0 && html`<${Studies} studies=${studies} onDrop=${onDrop} />`}
  `;
}

const one = (values) => (new Set(values).size === 1 ? values[0] : null);

/** A column's head: which curve is its own, where it leads, and what leaves it out. */
const Head = ({ each, onDrop }) => html`<span class="column-head"><svg width="16" height="8" aria-hidden="true"><line x1="0" x2="16" y1="4" y2="4" stroke-width="3" style=${{ stroke: `var(--${each.look.name})` }}
  stroke-dasharray=${each.look.dash.join(" ")} /></svg><a href=${each.href}>${each.name}</a>
  <button type="button" class="quiet drop" aria-label=${`Leave ${each.name} out`} onClick=${() => onDrop(each.entry)}>×</button></span>`;

function Rows({ label, columns, rows, onDrop }) {
  return html`<div class="scroll-x" tabindex="0" role="group" aria-label=${label}><table class="plain wide differences aligned" style=${{ "--columns": columns.length }}><thead><tr><th scope="col"><span class="hidden">what</span></th>
    ${columns.map((each) => html`<th scope="col" key=${each.entry}><${Head} each=${each} onDrop=${onDrop} /></th>`)}</tr></thead>
    <tbody>${rows.map(([name, of]) => html`<tr key=${name}><th scope="row">${name}</th>${columns.map((each) => html`<td class="num" key=${each.entry}>${of(each.value)}</td>`)}</tr>`)}</tbody></table></div>`;
}

const AXES = [["step", "step"], ["seconds", "seconds"]];

function Trials({ trials, onDrop }) {
  const [by, setBy] = useState("step");
  const metric = one(trials.map(({ value }) => value.metric));
  const resource = one(trials.map(({ value }) => value.resource)) ?? "steps of each";
  const lines = useMemo(
    () =>
      trials.map(({ name, look: its, href: to, value }) => {
        const pace = by === "seconds" && value.trained ? (value.seconds ?? 0) / value.trained : 1;
        const [x, y] = [value.curve.map(([step]) => step * pace), value.curve.map(([, each]) => finite(each))];
        return { name, look: its, href: to, live: value.state === "running", x, y };
      }),
    [trials, by],
  );
  const best = (value) => {
    if (value.state === "complete") return number(value.value);
    return value.curve.length ? html`${number(value.curve.at(-1)[1])} <span class="soft">${value.ended ? "when it ended" : "so far"}</span>` : "–";
  };
  const rows = [
    ["state", (value) => html`<${State} state=${value.state} title=${value.reason ?? ""} />`],
    [metric ?? "value", best],
    ["trained", (value) => (value.trained === null ? "–" : counted(value.trained, value.resource))],
    ["time", (value) => duration(value.seconds) || "–"],
    ["why it ended", (value) => value.why ?? (value.state === "complete" ? "at its end" : "")],
    ...[...new Set(trials.flatMap(({ value }) => value.rungs.map((each) => each.step)))].sort((a, b) => a - b).map((step) => [
      `rung at ${whole(step)}`,
      (value) => { const at = value.rungs.find((each) => each.step === step); return at ? html`${number(at.value)} <span class="soft">${at.rank} of ${at.reached}</span>` : "–"; },
    ]),
    ...[...new Set(trials.flatMap(({ value }) => Object.keys(value.metrics ?? {})))].sort().map((name) => [name, (value) => number(value.metrics?.[name])]),
  ];
  const columns = trials.map((each) => ({ name: html`<${Head} each=${each} onDrop=${onDrop} />`, values: each.value.params }));
  const kinds = Object.assign({}, ...trials.map(({ value }) => value.kinds));
  return html`
    <section class="card" aria-labelledby="together"><div class="head"><h2 id="together">Curves</h2>
      <div class="segments" role="group" aria-label="Along">${AXES.map(([key, words]) => html`<button type="button" key=${key} aria-pressed=${by === key} onClick=${() => setBy(key)}>${words}</button>`)}</div></div>
      ${lines.some((each) => each.x.length)
        ? html`<${Lines} lines=${lines} xLabel=${by === "step" ? resource : "seconds, at the mean pace of each"} yLabel=${metric ?? "each one's own metric"} height=${340} />`
        : html`<p class="soft none">None has reported anything.</p>`}
      ${metric === null && html`<p class="soft">Their metrics differ, so that heights do not compare.</p>`}
    </section>
    <section class="card" aria-labelledby="values"><h2 id="values">Values</h2><${Rows} label="Values" columns=${trials} rows=${rows} onDrop=${onDrop} /></section>
    <section class="card" aria-labelledby="parameters"><h2 id="parameters">Parameters</h2><${Differences} wide columns=${columns} kinds=${kinds} /></section>
  `;
}

function Studies({ studies, onDrop }) {
  const [by, setBy] = useState("trials");
  const metric = one(studies.map(({ value }) => value.report.metric));
  const lines = useMemo(() => studies.filter(({ value }) => value.curve?.found.length).map(({ name, look: its, href: to, value }) => stairs(name, its, to, value.curve, by)), [studies, by]);
  const words = (lists) => (lists.length ? lists.map((each) => html`<div>${each}</div>`) : "–");
  const rows = [
    ["winner", ({ winner }) => (winner ? html`${winner.verdict.toLowerCase()}${winner.trial === null ? "" : html`, <a href=${href("studies", winner.study, "winner")}>trial ${winner.trial}</a>`}` : "–")],
    [`expected ${metric ?? "value"}`, ({ winner }) => (winner?.value ? html`<${Estimate} of=${winner.value} />` : "–")],
    ["what the search saw of it", ({ winner, report }) => number(winner?.searched ?? report.best?.value) || "–"],
    ["gain over its baseline", ({ winner }) => (winner?.gain ? html`<${Estimate} of=${winner.gain} digits=${4} />` : (winner?.comparison ?? "–"))],
    ["trials", ({ report }) => `${whole(report.trials.used)}${report.trials.total ? ` of ${whole(report.trials.total)}` : ""}`],
    ["time", ({ report }) => duration(report.seconds.used) || "–"],
    ["trained", ({ report }) => counted(report.consumed.used, report.resource)],
    ["states", ({ report }) => told(report) || "–"],
    ["cost", ({ report }) => words(report.cost?.in_words ?? [])],
    ["early stopping may have lost", ({ winner }) => words(winner?.audit ?? [])],
  ];
  const about = studies.map((each) => {
    const { report } = each.value;
    const searched = Object.fromEntries(report.parameters.map(({ name, values }) => [name, values]));
    return { name: html`<${Head} each=${each} onDrop=${onDrop} />`, values: { objective: report.objective, metric: `${report.goal} ${report.metric}`, sampler: report.sampler, "early stopping": report.early_stopping, ...searched } };
  });
  const best = studies.map((each) => ({ name: html`<${Head} each=${each} onDrop=${onDrop} />`, values: each.value.winner?.params ?? each.value.report.best?.params ?? {} }));
  return html`
    <section class="card" aria-labelledby="best"><div class="head"><h2 id="best">The best so far</h2>
      <div class="segments" role="group" aria-label="Along">${["trials", "hours"].map((key) => html`<button type="button" key=${key} aria-pressed=${by === key} onClick=${() => setBy(key)}>${key}</button>`)}</div></div>
      ${lines.length ? html`<${Lines} stairs lines=${lines} xLabel=${by === "trials" ? "trials that ran to their end" : "hours since the first of these ended"} yLabel=${metric ?? "each one's own metric"} height=${300} />` : html`<p class="soft none">No trial is complete yet.</p>`}
      ${metric === null && html`<p class="soft">Their metrics differ, so that heights do not compare.</p>`}
    </section>
    <section class="card" aria-labelledby="found"><h2 id="found">What they found</h2><${Rows} label="What they found" columns=${studies} rows=${rows} onDrop=${onDrop} /></section>
    <section class="card" aria-labelledby="winners"><h2 id="winners">Their best configurations</h2><${Differences} wide columns=${best} label="Their best configurations" /></section>
    <section class="card" aria-labelledby="spaces"><h2 id="spaces">What they search</h2><${Differences} wide columns=${about} label="What they search" /></section>
  `;
}

/** How the best value of a study came about, as a line. */
function stairs(name, its, to, { found, complete }, by) {
  const began = Date.parse(found[0].ended);
  const x = found.map((each) => (by === "trials" ? each.complete : (Date.parse(each.ended) - began) / 3_600_000));
  const y = found.map((each) => each.value);
  if (by === "trials" && complete > x.at(-1)) {
    x.push(complete);
    y.push(y.at(-1));
  }
  return { name, look: its, href: to, x, y };
}
