/** What runs, what waits, and what was found. */

import { html } from "hpsearch/html.js";
import { useAnswer, useNow } from "hpsearch/data.js";
import { counted, whole } from "hpsearch/format.js";
import { href } from "hpsearch/routes.js";
import { Answered, Empty, Progress, State, Value } from "hpsearch/parts/basics.js";

export const path = "";
export const title = () => "hpsearch";
export const nav = { label: "Now", key: "n" };

export function Screen() {
  const studies = useAnswer("studies", { pages: true, kinds: ["study"] });
  const queue = useAnswer("queue", { kinds: ["queue", "study"], every: 5000 });
  useNow();
  return html`
    <h1 class="hidden">Now</h1>
    <section aria-labelledby="studies">
      <h2 id="studies">Studies</h2>
      <${Answered} of=${studies}>${(all) =>
        all.length === 0 ? html`<${Nothing} />` : html`<${Studies} studies=${all} queue=${queue.value} />`}<//>
    </section>
  `;
}

const Nothing = () => html`
  <${Empty} title="No study yet">
    <p>A search makes one: <code>hpsearch --server local run lora_quick</code></p>
  <//>
`;

function Studies({ studies, queue }) {
  const queued = new Map((queue?.studies ?? []).map((each) => [each.study, each]));
  return html`<ul class="studies">
    ${[...studies].reverse().map((study) => html`<${Study} key=${study.name} study=${study} queued=${queued.get(study.name)} />`)}
  </ul>`;
}

function Study({ study, queued }) {
  const state = queued?.state.state ?? (study.searching === null ? "stopped" : "running");
  return html`
    <li class="card study">
      <a class="name" href=${href("studies", study.name)}>${study.name}</a>
      <${State} state=${state} title=${queued?.state.reason} />
      <span class="best">${study.metric} <${Value} value=${study.best} /></span>
      <span class="counts">${study.budget ? `${whole(study.ended)} of ${counted(study.budget, "trials")}` : counted(study.ended, "trials")}</span>
      <${Progress} used=${study.ended} total=${study.budget} label="Trials that have ended" />
    </li>
  `;
}
