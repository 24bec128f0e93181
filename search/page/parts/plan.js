/** What a search would do, foreseen by measuring a little: asked for, waited for, and told. */

import { html, useEffect, useRef, useState } from "hpsearch/html.js";
import { useAnswer, useNow, useSource } from "hpsearch/data.js";
import { bytes, counted, duration, whole } from "hpsearch/format.js";
import { Progress } from "hpsearch/parts/basics.js";

const LENGTHS = [15, 60, 300]; // seconds to measure

/** @param {{text: string, code: string | null, ready: boolean, may: boolean}} props `ready`: whether the text is a space as it is now */
export function Plan({ text, code, ready, may }) {
  const source = useSource();
  const [seconds, setSeconds] = useState(60);
  const [plan, set] = useState(/** @type {any} */ (null)); // {id, of}: and the text that it is of
  const [problem, setProblem] = useState("");
  const answer = useAnswer(plan && `plans/${plan.id}`, { kinds: ["plan.done"], every: 5000 });
  const found = answer.value ?? plan?.first;
  const measuring = found?.state === "measuring";
  const running = useRef(/** @type {string | null} */ (null));
  running.current = measuring ? plan.id : null;
  const end = () => running.current && source.send("DELETE", `plans/${running.current}`).catch(() => {}); // it ends by itself
  useEffect(() => {
    window.addEventListener("pagehide", end);
    return () => {
      window.removeEventListener("pagehide", end);
      end();
    };
  }, []);
  const ask = async () => {
    setProblem("");
    try {
      const first = await source.send("POST", "plans", { space: text, code_of: code, seconds });
      set({ id: first.id, of: text, first });
    } catch (error) {
      setProblem(/** @type {any} */ (error).message);
    }
  };
  const lost = answer.problem?.status === 404 ? "the server has forgotten the plan; measure again" : "";
  return html`
    <section class="card" aria-labelledby="plan"><h2 id="plan">How it would go</h2>
      ${measuring
        ? html`<${Measuring} plan=${found} onEnd=${() => end()?.then(answer.reload)} />`
        : html`<p class="row wrap">
            <button type="button" disabled=${!ready || !may} onClick=${ask}>${found ? "Measure again" : "Measure"}</button>
            <label class="row">for up to <select value=${seconds} onChange=${(event) => setSeconds(Number(event.target.value))}>${LENGTHS.map(
              (each) => html`<option value=${each}>${duration(each)}</option>`)}</select></label>
          </p>`}
      ${!found && !problem && html`<p class="soft small">It trains a few configurations for a moment on a free part of this machine, keeps nothing of them, and foresees the rest: how long, how many trials, how much memory. It ends when you leave this screen.</p>`}
      <p class="bad" role="alert">${problem || lost || (found?.state === "failed" ? `It could not be measured: ${found.failure}` : "")}</p>
      ${found?.state === "done" && html`<${Foreseen} forecast=${found.forecast} old=${plan.of !== text} />`}
    </section>
  `;
}

function Measuring({ plan, onEnd }) {
  const now = useNow(500);
  const spent = Math.max(0, (now - Date.parse(plan.since)) / 1000);
  const left = plan.seconds - spent;
  return html`<div class="measuring" role="status">
    <p>Measuring <b>${plan.study}</b>: ${left > 0 ? `about ${duration(Math.ceil(left))} left` : "its last training ends"}.</p>
    <${Progress} used=${Math.min(spent, plan.seconds)} total=${plan.seconds} label="Measuring" />
    <button type="button" onClick=${onEnd}>End it</button>
  </div>`;
}

/** What a plan says, in the words of the command line's. */
function Foreseen({ forecast, old }) {
  const { measured, memory, audit, confirmation, rungs } = forecast;
  const [earliest, latest] = forecast.ends;
  const facts = [
    ["A training", duration(measured.training)],
    ["At a time", counted(forecast.workers * forecast.pack, "trials")],
    measured.memory && ["Memory", `${bytes(measured.memory)} for a trial`],
    memory && ["Expected", `${bytes(memory.least)} to ${bytes(memory.largest)}`],
    audit.trials > 0 && ["Audit", counted(audit.trials, "trials")],
    ["Confirmation", confirmation.trainings ? `${counted(confirmation.trainings, "trainings")}, ${duration(confirmation.seconds)}` : "none"],
  ].filter(Boolean);
  return html`
    ${old && html`<p class="warn">Of the space before your last change.</p>`}
    <p class="ends">Ends after <b>${duration(forecast.end)}</b>${latest > 1.1 * earliest ? html` <span class="soft">by luck ${duration(earliest)} to ${duration(latest)}</span>` : ""}</p>
    <p>${counted(forecast.trials, "trials")}, ${whole(forecast.complete)} of them to their end${forecast.ends_by === "trials" ? "" : `; the budget of ${forecast.ends_by} ends it`}.</p>
    <dl class="facts-list">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${rungs.length > 0 && html`<div class="scroll-x"><table class="plain"><thead><tr><th class="right">${forecast.resource}</th><th class="right">trials</th><th class="right">first after</th><th class="right">all after</th></tr></thead>
      <tbody>${rungs.map((each) => html`<tr><td class="right num">${whole(each.step)}</td><td class="right num">${whole(each.trials)}</td><td class="right num">${duration(each.first)}</td><td class="right num">${duration(each.last)}</td></tr>`)}</tbody></table></div>
      <p class="soft small">If ${forecast.assumed}.</p>`}
    ${forecast.remarks.length > 0 ? html`<ul class="remarks">${forecast.remarks.map((each) => html`<li>${each}</li>`)}</ul>` : html`<p class="good">The budget is sensible.</p>`}
  `;
}
