/** What runs, what waits, and what was found. */

import { html, useMemo } from "hpsearch/html.js";
import { useAnswer, useNow } from "hpsearch/data.js";
import { about, bytes, clock, counted, spans, whole } from "hpsearch/format.js";
import { href, ofStudy } from "hpsearch/routes.js";
import { stateOf } from "hpsearch/state.js";
import { Answered, Empty, State, States, Trouble, Value } from "hpsearch/parts/basics.js";
import { Gantt } from "hpsearch/parts/gantt.js";
import { Sparkline } from "hpsearch/parts/sparkline.js";

export const path = "";
export const title = () => "hpsearch";
export const nav = { label: "Now", key: "n" };

const FIRST = ["running", "starting", "pausing", "stopping", "preempted", "queued", "paused", "failed"];
const SPARKS = 40; // studies whose curve is drawn

export function Screen() {
  const studies = useAnswer("studies", { pages: true, kinds: ["study"] });
  const queue = useAnswer("queue", { kinds: ["queue", "study"], every: 5000 });
  return html`
    <h1 class="hidden">Now</h1>
    ${queue.problem && !queue.value && html`<${Trouble} problem=${queue.problem} retry=${queue.reload} />`}
    ${queue.value && html`<${Machine} queue=${queue.value} />`}
    <section aria-labelledby="studies">
      <h2 id="studies">Studies</h2>
      <${Answered} of=${studies} lines=${6}>${(all) =>
        all.length === 0 ? html`<${Nothing} />` : html`<${Studies} studies=${all} queue=${queue.value} />`}<//>
    </section>
  `;
}

const Nothing = () => html`
  <${Empty} title="No study yet">
    <p>A search makes one, here or from another machine:</p>
    <p><code>hpsearch --server local run lora_quick</code></p>
  <//>
`;

/** Who has what of the machine, and what waits for it. */
function Machine({ queue }) {
  const now = useNow(1000);
  const { machine } = queue;
  const shown = queue.studies.filter((each) => each.has || each.place !== null);
  const rows = shown.map((each) => ({
    name: each.study,
    href: href("studies", each.study),
    state: each.place === null ? "running" : "queued",
    begins: each.begins,
    ends: each.ends,
    note: each.state.reason,
  }));
  const busy = machine.cores.length - machine.free.cpus.length;
  const ours = Object.values(machine.has).reduce((sum, each) => sum + each.cpus.length, 0);
  const others = busy > ours; // which the token may not see
  const parts = [
    `${whole(busy)} of ${counted(machine.cores.length, "cores")}`,
    machine.gpus.length ? `${whole(machine.gpus.length - machine.free.gpus.length)} of ${counted(machine.gpus.length, "GPUs")}` : "no GPU",
    `${bytes(machine.memory - machine.free.memory)} of ${bytes(machine.memory)}`,
  ];
  return html`
    <section class="card" aria-labelledby="machine">
      <div class="head"><h2 id="machine">Machine and queue</h2>
        <p class="soft num">${parts.join(" · ")} given out${machine.lanes > 1 ? ` · ${machine.lanes} lanes` : ""}${machine.draining ? html` · <b class="bad">drained: nothing is started</b>` : ""}</p></div>
      ${rows.length === 0
        ? html`<p class="soft none">${others ? "None of the studies that this token shows runs or waits." : "Nothing runs, and nothing waits."}</p>`
        : html`<${Gantt} rows=${rows} now=${now} />
          <ul class="waits">${shown.map((each) => html`<li key=${each.study}><b>${each.study}</b> <span class="soft">${each.has ? has(each.has) : `place ${each.place}, priority ${each.priority}: ${each.state.reason}`}${
            each.preemptions ? `; made room ${counted(each.preemptions, "times")}, which cost ${about(each.lost_seconds)}` : ""}${each.would_stop.length ? `; would stop ${each.would_stop.join(", ")}` : ""}</span></li>`)}</ul>`}
      ${others && html`<p class="soft small">${counted(busy - ours, "cores")} of those given out are with others, which this token does not show.</p>`}
    </section>
  `;
}

function has({ cpus, gpus, memory, ray }) {
  const parts = [cpus.length && `${cpus.length === 1 ? "core" : "cores"} ${spans(cpus)}`, gpus.length && `GPU ${gpus.join(", ")}`, memory && bytes(memory), ray && "a place on a Ray cluster"];
  return `has ${parts.filter(Boolean).join(", ") || "nothing of this machine"}`;
}

function Studies({ studies, queue }) {
  const now = useNow(5000);
  const queued = new Map((queue?.studies ?? []).map((each) => [each.study, each]));
  const rows = useMemo(() => {
    const rank = (state) => (FIRST.includes(state) ? FIRST.indexOf(state) : FIRST.length);
    return studies
      .map((study, index) => ({ study, index, queued: queued.get(study.name) ?? null, state: stateOf(study, queued.get(study.name) ?? null) }))
      .sort((a, b) => rank(a.state.state) - rank(b.state.state) || (a.queued?.place ?? 0) - (b.queued?.place ?? 0) || b.index - a.index);
  }, [studies, queue]);
  return html`<ul class="studies">
    ${rows.map((row, index) => html`<${Study} key=${row.study.name} ...${row} spark=${index < SPARKS} now=${now} />`)}
  </ul>`;
}

function Study({ study, queued, state, spark, now }) {
  const drawn = spark && study.best !== null && !study.unreadable;
  const improvements = useAnswer(drawn ? ofStudy(study.name, "improvements") : null, { kinds: ["best"], study: study.name });
  const trials = study.budget ? `${whole(study.ended)} of ${counted(study.budget, "trials")}` : counted(study.ended, "trials");
  const failed = study.states.fail ? `, ${whole(study.states.fail)} failed` : "";
  return html`
    <li class="card study">
      <div class="who"><a class="name" href=${href("studies", study.name)}>${study.name}</a><${State} state=${state.state} /></div>
      <span class="reason soft">${state.reason}</span>
      <${Sparkline} improvements=${improvements.value} />
      <span class="best"><span class="soft">${study.metric}</span> <${Value} value=${study.best} /></span>
      <div class="counts"><span class="num">${trials}<span class=${failed ? "bad" : ""}>${failed}</span></span><${States} states=${study.states} total=${study.budget && study.budget + study.confirming} label=${`Trials of ${study.name}`} /></div>
      <span class="end soft num">${queued?.ends ? `ends ${clock(queued.ends.expected, now)}` : ""}</span>
    </li>
  `;
}
