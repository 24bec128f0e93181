/** What can be asked of a study, each with what it will do or cost. */

import { html, useEffect, useRef, useState } from "hpsearch/html.js";
import { useAnswer, useSource } from "hpsearch/data.js";
import { about, clock, counted, duration, setting, whole } from "hpsearch/format.js";
import { searchedOf } from "hpsearch/parameters.js";
import { href, ofStudy } from "hpsearch/routes.js";

const WAITS = ["queued", "preempted"];
const RUNS = ["running", "starting", "elsewhere"];
const PAUSES = [...RUNS, ...WAITS];
const STOPS = [...PAUSES, "pausing", "paused"];
const GOES_ON = ["paused", "stopped", "failed", "finished", "pausing", "stopping"];

/** Whether the token of this page may do what needs a scope; false while that is not known. */
export function useMay(scope) {
  const source = useSource();
  const server = useAnswer(source.frozen ? null : "");
  return Boolean(server.value?.scopes.includes(scope));
}

/** The buttons of a study; nothing for who may not change it. */
export function Steer({ report, state, rows, curves }) {
  const may = useMay("write");
  const [asked, ask] = useState(/** @type {any} */ (null));
  if (!may) return null;
  const study = report.name;
  const name = state.state;
  const failed = report.states.fail ?? 0;
  const running = rows.filter((row) => row.state === "running");
  const soon = nextReports(running, curves);
  const many = running.length > 1;
  const put = running.length
    ? `The ${many ? `${whole(running.length)} running trials are` : "running trial is"} put back with ${many ? "their checkpoints" : "its checkpoint"} at the next report${soon}. `
    : "";
  const waits = WAITS.includes(name);
  const leaves = waits ? "It leaves the queue. " : put;
  const wants = (desired) => ["PATCH", ofStudy(study), { desired }];
  const over = report.phase === "over" && name === "finished";
  const choices = [
    PAUSES.includes(name) && { label: "Pause", does: waits ? "It keeps out of the queue until it is resumed, and nothing is lost." : `${put}The machine is free then, and nothing is lost.`, send: wants("pause") },
    STOPS.includes(name) && { label: "Stop", does: `${leaves}The search ends, nothing is lost, and it goes on when it is resumed.`, send: wants("stop") },
    GOES_ON.includes(name) && !over && { label: "Resume", primary: true, does: `${report.searching ? "It goes on" : "It is queued again at its place, and goes on"} with the same trials and numbers.`, send: report.searching ? ["POST", ofStudy(study, "resume")] : wants("run") },
    failed > 0 && { label: `Retry ${counted(failed, "failed")}`, does: `${counted(failed, "failed trials")} train again under the same numbers, from their last checkpoints.`, send: ["POST", ofStudy(study, "retry")] },
    { label: "Budget", verb: "Change it", form: Budget },
    { label: "Priority", verb: "Change it", form: Priority },
    { label: "Try values", verb: "Try them", form: TryValues },
  ].filter(Boolean);
  return html`
    <div class="steer" role="group" aria-label="Steer the search">
      ${choices.map((each) => html`<button type="button" key=${each.label} class=${each.primary ? "primary" : ""} onClick=${() => ask(each)}>${each.label}</button>`)}
      <a class="button" href=${`${href("submit")}?from=${encodeURIComponent(study)}`}>Clone</a>
    </div>
    ${asked && html`<${Asked} ...${asked} report=${report} rows=${rows} onClose=${() => ask(null)} />`}
  `;
}

/** When the running trials report next, by how long they take from one report to the next. */
function nextReports(running, curves) {
  const paces = running.filter((row) => row.seconds && curves.get(row.number)?.step.length).map((row) => row.seconds / curves.get(row.number).step.length);
  return paces.length ? `, within about ${about(Math.max(1, ...paces))}` : "";
}

/** A dialog that says what will happen, does it, and says what came of it. */
export function Asked({ label, verb = label, does = "", send = null, form = null, danger = false, report, rows, onClose }) {
  const source = useSource();
  const dialog = useRef(/** @type {any} */ (null));
  const [wish, setWish] = useState({ send, does, wrong: "" });
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => dialog.current.showModal(), []);
  const act = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      await source.send(...wish.send);
      dialog.current.close();
    } catch (error) {
      setProblem(error.issues?.length ? error.issues.map((each) => each.message).join("; ") : error.message);
    }
    setBusy(false);
  };
  return html`
    <dialog ref=${dialog} class="asked" onClose=${onClose} aria-label=${label}>
      <form onSubmit=${act}>
        <h2>${label}: ${report.name}</h2>
        ${form && html`<${form} report=${report} rows=${rows} onWish=${setWish} />`}
        <p class="does">${wish.does}</p>
        <p class="bad" role="alert">${problem || wish.wrong}</p>
        <div class="row end">
          <button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
          <button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy || !wish.send}>${verb}</button>
        </div>
      </form>
    </dialog>
  `;
}

function Budget({ report, onWish }) {
  const [trials, setTrials] = useState(report.trials.total ?? "");
  const [time, setTime] = useState("");
  const changed = { ...(Number(trials) !== report.trials.total && trials !== "" && { trials }), ...(time.trim() && { time: time.trim() }) };
  const query = new URLSearchParams(changed).toString();
  const foreseen = useAnswer(query && hasPace(report) ? `${ofStudy(report.name, "forecast")}?${query}` : null);
  useEffect(() => {
    const budget = { ...changed, ...(changed.trials !== undefined && { trials: Number(changed.trials) }) };
    const now = foreseen.value;
    const words = now
      ? `By its pace so far it then starts ${counted(now.trials, "trials")}, of which ${whole(now.complete)} run to their end, and ${now.over ? "is over at once" : `takes ${duration(now.left)} more (${duration(now.left_low)} to ${duration(now.left_high)})`}.`
      : query ? "What that changes is not foreseen yet." : "The totals of the whole search; what is spent counts.";
    onWish({ send: query ? ["PATCH", ofStudy(report.name), { budget }] : null, does: foreseen.problem?.status === 422 ? "" : words, wrong: foreseen.problem?.status === 422 ? foreseen.problem.message : "" });
  }, [query, foreseen.value, foreseen.problem]);
  return html`<div class="fields">
    <label>Trials in all <input type="number" min="1" value=${trials} onInput=${(event) => setTrials(event.target.value)} /></label>
    <label>Time in all <input placeholder=${report.seconds.total ? duration(report.seconds.total) : "no limit; 2h"} value=${time} onInput=${(event) => setTime(event.target.value)} /></label>
  </div>`;
}

function Priority({ report, onWish }) {
  const [priority, set] = useState(report.queue?.priority ?? "normal");
  const queue = useAnswer("queue");
  useEffect(() => {
    const others = (queue.value?.studies ?? []).filter((each) => each.place !== null && each.study !== report.name);
    const rank = ["high", "normal", "low"];
    const before = others.filter((each) => rank.indexOf(each.priority ?? "normal") < rank.indexOf(priority)).length;
    const does = `Of ${counted(others.length, "others")} that wait, ${whole(before)} ${before === 1 ? "has" : "have"} a higher priority. Within a priority the older one is first; a higher one may stop a lower one that runs.`;
    const same = priority === report.queue?.priority;
    onWish({ send: same ? null : ["PATCH", ofStudy(report.name), { priority }], does, wrong: "" });
  }, [priority, queue.value]);
  return html`<fieldset class="fields"><legend class="hidden">Priority</legend>${["high", "normal", "low"].map(
    (each) => html`<label key=${each}><input type="radio" name="priority" checked=${each === priority} onChange=${() => set(each)} /> ${each}</label>`,
  )}</fieldset>`;
}

/** Values for one trial: those of the best one at first; an empty one is for the sampler. */
function TryValues({ report, rows, onWish }) {
  const names = searchedOf(report);
  const searched = report.parameters.filter((each) => names.includes(each.name));
  const start = report.best ?? rows.at(-1);
  const [values, set] = useState(() => Object.fromEntries(searched.map(({ name }) => [name, start?.params[name] === undefined ? "" : setting(start.params[name])])));
  useEffect(() => {
    const params = Object.fromEntries(Object.entries(values).filter(([, text]) => text.trim()).map(([name, text]) => [name, parsedValue(text)]));
    const left = searched.length - Object.keys(params).length;
    const does = `It trains before what the sampler proposes${left ? `, which chooses the other ${left === 1 ? "value" : `${left} values`}` : ""}. It counts as one of the trials${report.early_stopping === "none" ? "" : ", and is compared at rungs like the others"}.`;
    onWish({ send: ["POST", ofStudy(report.name, "trials"), { params }], does, wrong: "" });
  }, [values]);
  return html`<div class="fields many">${searched.map(
    ({ name, values: words }) => html`<label key=${name}>${name} <input value=${values[name]} title=${words} placeholder="the sampler's" onInput=${(event) => set({ ...values, [name]: event.target.value })} />
      <small class="soft">${words}</small></label>`,
  )}</div>`;
}

/** A value as it is typed: a number, true or false, or a text. */
export function parsedValue(/** @type {string} */ text) {
  try {
    const value = JSON.parse(text);
    return ["number", "boolean"].includes(typeof value) || Array.isArray(value) ? value : text.trim();
  } catch {
    return text.trim();
  }
}

/** Ends one trial, where it runs and the token may. */
export function Kill({ report, row }) {
  const may = useMay("write");
  const [open, set] = useState(false);
  if (!may || row.state !== "running") return null;
  const does = `Trial ${row.number} ends at once, as failed; what it trained in ${duration(row.seconds ?? 0)} is lost, and the search goes on.`;
  return html`<button type="button" class="danger" onClick=${() => set(true)}>Kill</button>
    ${open && html`<${Asked} label="Kill" danger does=${does} send=${["POST", ofStudy(report.name, "trials", row.number, "kill")]} report=${report} rows=${[]} onClose=${() => set(false)} />`}`;
}

/** Whether enough of its trials have ended, or paused, for the rest to be foreseen by them. */
export const hasPace = ({ states }) => ["complete", "pruned", "paused"].reduce((sum, state) => sum + (states[state] ?? 0), 0) >= 2;

/** When a study ends, as far as that is foreseen. */
export function endOf(queued, forecast, now) {
  if (queued?.ends) {
    const [at, first, last] = [queued.ends.expected, queued.ends.earliest, queued.ends.latest].map((each) => clock(each, now));
    return first === last ? at : `${at} (${first} to ${last})`;
  }
  return forecast?.ends && forecast.searching ? clock(forecast.ends, now) : "";
}
