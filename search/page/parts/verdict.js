/** What is said of a text that should be a space: its mistakes, whose file it is instead, or how it is understood. */

import { html, useEffect, useRef, useState } from "hpsearch/html.js";
import { useSource } from "hpsearch/data.js";
import { counted, number, setting, whole } from "hpsearch/format.js";
import { href } from "hpsearch/routes.js";

const PAUSE = 350; // ms without a key before a text is looked at

/**
 * What the server says of a text as it is typed.
 *
 * @param {string} text
 * @param {string | null} code the study whose code it runs with
 * @returns {{of: string, space: any, problem: any, busy: boolean}} `of`: the text that was looked at; of it
 *   either `space` or `problem` is there; `busy`: the text is another by now
 */
export function useVerdict(text, code) {
  const source = useSource();
  const [said, set] = useState(/** @type {any} */ ({ of: "", code: null, space: null, problem: null }));
  const asking = useRef(false);
  const busy = text !== said.of || code !== said.code;
  useEffect(() => {
    if (!busy) return undefined;
    if (!text.trim()) {
      set({ of: text, code, space: null, problem: null });
      return undefined;
    }
    const ask = async () => {
      if (asking.current) return; // its answer comes first, and then this effect again
      asking.current = true;
      let found;
      try {
        found = { space: await source.send("POST", "spaces/validate", { text, code_of: code }), problem: null };
      } catch (problem) {
        found = { space: null, problem };
      }
      asking.current = false;
      set({ of: text, code, ...found });
    };
    const timer = setTimeout(ask, PAUSE);
    return () => clearTimeout(timer);
  }, [text, code, said]);
  return { ...said, busy };
}

/** @param {{verdict: any, code: string | null, id: string, converted: any, spaces: any[], onPick: (space: string) => void, onShow: (issue: any) => void, onConvert: () => void}} props */
export function Verdict({ verdict, code, id, converted, spaces, onPick, onShow, onConvert }) {
  const { space, problem, busy } = verdict;
  return html`
    <section class=${`card verdict ${busy ? "old" : ""}`} aria-labelledby="verdict">
      ${converted && html`<${Converted} converted=${converted} />`}
      <div id=${id} role="status">${problem ? html`<${Wrong} problem=${problem} onShow=${onShow} onConvert=${onConvert} />` : space ? html`<h2 id="verdict" class="good">Understood${space.warnings.length > 0 ? `, with ${counted(space.warnings.length, "remarks")}` : ""}</h2>` : html`<h2 id="verdict">No space yet</h2>`}</div>
      ${!space && !problem && html`<p class="soft">Paste a space or drop its file. Files of W&B, NNI, Katib, Determined, Hydra, Axolotl and Ray Tune are converted. Or start from one that ships:</p>
        <ul class="starts">${spaces.filter((each) => each.file === null).map((each) => html`<li><button type="button" onClick=${() => onPick(each.name)}><b>${each.name}</b><span class="soft">objective ${each.objective}</span></button></li>`)}</ul>`}
      ${space && html`<${Understood} space=${space} code=${code} onShow=${onShow} />`}
    </section>
  `;
}

function Wrong({ problem, onShow, onConvert }) {
  const issues = problem.issues;
  if (problem.tool) {
    return html`<h2 id="verdict" class="warn">A file of ${problem.tool}</h2>
      <p>It can be converted; comments in the space then say what differs.</p>
      <p><button type="button" class="primary" onClick=${onConvert}>Convert it</button></p>
      <details><summary>${counted(issues.length, "lines")} that a space has no use for</summary><${Issues} issues=${issues} onShow=${onShow} /></details>`;
  }
  if (issues.length === 0) return html`<h2 id="verdict" class="bad">${problem.title || "It could not be looked at"}</h2><p>${problem.message}</p>`;
  return html`<h2 id="verdict" class="bad">${problem.needs ? problem.title : counted(issues.length, "issues")}</h2>
    ${problem.needs && html`<p>${problem.message}.</p>`}
    <${Issues} issues=${issues} onShow=${onShow} />
    ${(problem.needs === "code" || problem.type === "path-not-allowed") && html`<p class="soft small">Code and files of your own come along where <code>hpsearch --server ${new URL(".", location.href).href} submit FILE</code> is run in their folder.</p>`}`;
}

function Issues({ issues, onShow }) {
  return html`<ul class="issues">${issues.map((issue) => html`<li><${Issue} issue=${issue} onShow=${onShow} /></li>`)}</ul>`;
}

/** An issue, which leads to its line. */
function Issue({ issue, onShow }) {
  const words = html`${issue.path && html`<b>${issue.path}</b> `}${issue.message}`;
  if (!issue.line) return html`<p>${words}</p>`;
  return html`<button type="button" class="issue" onClick=${() => onShow(issue)}><span class="num soft">line ${issue.line}</span><span>${words}</span></button>`;
}

function Converted({ converted }) {
  return html`<p class="good">Converted from ${converted.tool}.</p>
    ${converted.to_fill.length > 0 && html`<p>Fill in: ${converted.to_fill.join("; ")}</p>`}`;
}

function Understood({ space, code, onShow }) {
  const { spec, plan } = space;
  const parameters = Object.entries(space.parameters);
  const searched = parameters.filter(([, each]) => each.kind.startsWith("searched")).length;
  const words = typeof spec.objective === "string" ? spec.objective : spec.objective.command.join(" ");
  const objective = code && !/^\w+$/.test(words) ? html`${words}, the code of <a href=${href("studies", code)}>${code}</a>` : words;
  const budget = Object.entries(spec.budget).filter(([, value]) => value !== null).map(([name, value]) => (name === "time" ? value : `${setting(value)} ${name}`));
  return html`
    ${space.warnings.length > 0 && html`<${Issues} issues=${space.warnings} onShow=${onShow} />`}
    <dl class="facts-list">${[
      ["Objective", objective],
      ["Goal", `${spec.goal} ${spec.metric}`],
      ["Sampler", spec.search.sampler],
      ["Early stopping", spec.early_stopping.method],
      ["Budget", budget.join(", ") || "no limit"],
      ["Searches", `${counted(searched, "parameters")}${space.feasible_share < 1 ? `, ${number(100 * space.feasible_share, 2)} % of it allowed` : ""}`],
    ].map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${plan.saving > 0 && html`<p class="soft small">Of ${whole(plan.trials)} trials about ${number(plan.complete, 2)} run to their end; stopping early spares ${number(100 * plan.saving, 2)} % of the ${plan.resource}.</p>`}
    <details open><summary>Parameters</summary><div class="scroll-x"><table class="plain"><tbody>${parameters.map(
      ([name, each]) => html`<tr><th scope="row">${name}</th><td>${each.values}</td><td class="soft">${each.kind}</td></tr>`,
    )}</tbody></table></div></details>
    <${Samples} samples=${space.samples} baseline=${space.baseline} parameters=${space.parameters} />
  `;
}

/** A few random configurations, beside the baseline: of what is searched, for the rest is the same in all. */
function Samples({ samples, baseline, parameters }) {
  const names = Object.keys(parameters).filter((name) => parameters[name].kind !== "fixed");
  const columns = [...(baseline ? [["baseline", baseline]] : []), ...samples.map((each, index) => [`${index + 1}`, each])];
  return html`<details><summary>${counted(samples.length, "random samples")}${baseline ? " and the baseline" : ""}</summary><div class="scroll-x"><table class="plain">
    <thead><tr><th></th>${columns.map(([name]) => html`<th class="right" scope="col">${name}</th>`)}</tr></thead>
    <tbody>${names.map((name) => html`<tr><th scope="row">${name}</th>${columns.map(([, each]) => html`<td class="right num">${name in each ? setting(short(each[name])) : ""}</td>`)}</tr>`)}</tbody></table></div></details>`;
}

const short = (value) => (typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value);
