/** Tries a trial's configuration again with some values changed. */

import { html, useEffect, useMemo, useRef, useState } from "hpsearch/html.js";
import { useAnswer, useSource } from "hpsearch/data.js";
import { setting } from "hpsearch/format.js";
import { ofStudy } from "hpsearch/routes.js";
import { Answered } from "hpsearch/parts/basics.js";
import { parsedValue } from "hpsearch/parts/steer.js";

/** What may be tried: the parameters of a space that are searched. */
const searched = (space) => Object.entries(space.parameters).filter(([, each]) => Array.isArray(each) || each.choices || "min" in each);
const choices = (each) => (Array.isArray(each) ? each : each.choices);

/** A key by which the same request again is the same trial. */
const fresh = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {{study: string, trial: number, params: Object<string, any>, onClose: () => void, onMade: (trial: number) => void}} props */
export function CloneTrial({ study, trial, params, onClose, onMade }) {
  const source = useSource();
  const space = useAnswer(`${ofStudy(study, "space")}?format=json`);
  const dialog = useRef(/** @type {any} */ (null));
  const [changed, set] = useState({});
  const key = useMemo(fresh, [JSON.stringify(changed)]);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => dialog.current.showModal(), []);
  const change = (name, value) => {
    const { [name]: _, ...others } = changed;
    set(value === undefined ? others : { ...others, [name]: value });
  };
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      const made = await source.send("POST", ofStudy(study, "trials"), { from: trial, params: changed }, { "Idempotency-Key": key });
      dialog.current.close();
      onMade(made.trial);
    } catch (error) {
      setProblem(/** @type {any} */ (error).message);
    }
    setBusy(false);
  };
  const count = Object.keys(changed).length;
  return html`<dialog ref=${dialog} class="asked" aria-label="Try with changes" onClose=${onClose}>
    <form onSubmit=${send}>
      <h2>Try trial ${trial} with changes</h2>
      <${Answered} of=${space}>${(found) => html`<div class="fields many">${searched(found).map(([name, each]) => html`<${Field} key=${name} name=${name} parameter=${each} before=${params[name]} onChange=${(value) => change(name, value)} />`)}</div>`}<//>
      <p class="does">${count ? `It differs in ${Object.keys(changed).join(", ")}` : "Nothing is changed yet: it would train again as it is"}. It trains before what the sampler proposes, under a new number.</p>
      <p class="bad" role="alert">${problem}</p>
      <div class="row end"><button type="button" onClick=${() => dialog.current.close()}>Cancel</button><button type="submit" class="primary" disabled=${busy}>Try</button></div>
    </form>
  </dialog>`;
}

/** One value; `onChange` is given undefined where it is the one before. */
function Field({ name, parameter, before, onChange }) {
  const all = choices(parameter);
  if (all) {
    const at = all.findIndex((each) => JSON.stringify(each) === JSON.stringify(before));
    const picked = (event) => onChange(Number(event.target.value) === at ? undefined : all[Number(event.target.value)]);
    return html`<label>${name} <select onChange=${picked}>
      ${at < 0 && html`<option value="-1" selected>not set</option>`}
      ${all.map((each, index) => html`<option value=${index} selected=${index === at}>${setting(each)}</option>`)}</select></label>`;
  }
  const was = before === undefined ? "" : setting(before);
  const given = (event) => onChange(event.target.value.trim() === was || !event.target.value.trim() ? undefined : parsedValue(event.target.value));
  return html`<label>${name} <input inputmode="decimal" defaultValue=${was} placeholder="not set" onInput=${given} />
    <small class="soft">${setting(parameter.min)} to ${setting(parameter.max)}${parameter.log ? ", log" : ""}</small></label>`;
}
