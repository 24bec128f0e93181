/** A space on its way into the queue: written, pasted or taken from a study, looked at, foreseen, submitted. */

import { html, useEffect, useId, useMemo, useRef, useState } from "hpsearch/html.js";
import { useAnswer, useSource } from "hpsearch/data.js";
import { bytes, counted } from "hpsearch/format.js";
import { href, ofStudy } from "hpsearch/routes.js";
import { Editor, textOf } from "hpsearch/parts/editor.js";
import { Plan } from "hpsearch/parts/plan.js";
import { useVerdict, Verdict } from "hpsearch/parts/verdict.js";

export const path = "submit";
export const title = () => "Submit";
export const nav = { label: "Submit", key: "s" };
export const live = true;

let draft = { text: "", code: /** @type {string | null} */ (null) }; // it stays while other screens are looked at

export function Screen({ query, go }) {
  const source = useSource();
  const server = useAnswer("");
  const spaces = useAnswer("spaces");
  const studies = useAnswer("studies", { pages: true });
  const [{ text, code }, set] = useState(draft); // `code`: the study whose code it runs with
  const [said, setSaid] = useState("");
  const [converted, setConverted] = useState(/** @type {any} */ (null));
  const verdict = useVerdict(text, code);
  const editor = useRef(/** @type {any} */ (null));
  const form = useRef(/** @type {any} */ (null));
  const id = useId();
  const marked = verdict.busy || verdict.problem?.tool ? [] : verdict.problem?.issues ?? verdict.space?.warnings ?? [];
  const names = useMemo(() => new Set((studies.value ?? []).map((each) => each.name)), [studies.value]);
  const may = Boolean(server.value?.scopes.includes("write"));

  const keep = (other) => {
    draft = { ...draft, ...other };
    set(draft);
  };
  const put = (other, code = null) => {
    setSaid("");
    setConverted(null);
    keep({ code });
    editor.current.put(other);
  };
  const load = async (path, code = null) => {
    try {
      put(await source.text(path), code);
    } catch (error) {
      setSaid(/** @type {any} */ (error).message);
    }
  };
  const begin = (space) => {
    if (query.from) go("/submit");
    load(`spaces/text?space=${encodeURIComponent(space)}`);
  };
  const ready = studies.value !== undefined;
  useEffect(() => {
    if (!query.from || !ready) return;
    const asked = new URLSearchParams({ defaults: "false", wider: String(query.ranges === "yes"), name: free(query.from, names) });
    load(`${ofStudy(query.from, "space")}?${asked}`, query.from);
  }, [query.from, query.ranges, ready]);
  const convert = async () => {
    try {
      const made = await source.send("POST", "spaces/convert", { text });
      put(made.text);
      setConverted(made);
    } catch (error) {
      setSaid(/** @type {any} */ (error).message);
    }
  };
  const opened = async (event) => {
    const [file] = event.target.files;
    if (file) put(await textOf(file));
    event.target.value = "";
  };
  return html`
    <div class="title"><h1>Submit a search</h1>
      <p class="soft reason">${query.from ? html`The space of <a href=${href("studies", query.from)}>${query.from}</a>${query.ranges === "yes" ? ", with the wider ranges that its trials ask for" : ""}, to be changed.` : "A space says what is searched, and how. It becomes a study in the queue."}</p></div>
    <div class="submit">
      <section class="card writing" aria-labelledby="space">
        <div class="head"><h2 id="space">Space</h2>
          <div class="row wrap">
            <${Start} spaces=${spaces.value ?? []} studies=${studies.value ?? []} onPick=${begin} onClone=${(study) => go(`/submit?from=${encodeURIComponent(study)}`)} />
            <label class="button file">Open a file<input type="file" accept=".yaml,.yml,.json,.txt" onChange=${opened} /></label>
          </div></div>
        <p class="bad" role="alert">${said}</p>
        <${Editor} text=${text} onChange=${(text) => keep({ text })} issues=${marked} label="The text of the space"
          described=${id} onFile=${(_, content) => put(content)} onDone=${() => form.current?.requestSubmit()} handle=${editor} />
        <p class="soft small hint"><kbd>Ctrl</kbd> <kbd>Enter</kbd> submits · drop a file into the text · <kbd>Tab</kbd> leaves it</p>
      </section>
      <div class="side">
        <${Verdict} verdict=${verdict} code=${code} id=${id} converted=${converted} spaces=${spaces.value ?? []} onPick=${begin} onShow=${(issue) => editor.current.show(issue)} onConvert=${convert} />
        ${(verdict.space || text.trim()) && server.value && (may
          ? html`<${Plan} text=${text} code=${code} ready=${!verdict.busy && Boolean(verdict.space)} may=${may} />
            <${Queue} form=${form} text=${text} code=${code} space=${verdict.busy ? null : verdict.space} names=${names} onDone=${(study) => {
              draft = { text: "", code: null };
              go(`/studies/${encodeURIComponent(study)}`);
            }} />`
          : html`<section class="card" aria-labelledby="queue"><h2 id="queue">To submit it</h2><p>This token reads (${server.value.scopes.join(", ")}). To measure and to submit needs one with the scope <code>write</code>:</p><pre>hpsearch token create NAME --scope write</pre></section>`)}
      </div>
    </div>
  `;
}

/** The first name after a study's that no study has: lora_2. */
function free(study, names) {
  const base = study.replace(/_\d+$/, "");
  let count = 2;
  while (names.has(`${base}_${count}`)) count += 1;
  return `${base}_${count}`;
}

/** Where a space may begin: those that ship, those of the server's folders, and those of studies. */
function Start({ spaces, studies, onPick, onClone }) {
  const ships = spaces.filter((each) => each.file === null);
  const files = spaces.filter((each) => each.file !== null);
  const picked = (event) => {
    const [kind, name] = event.target.value.split(/:(.*)/s);
    event.target.value = "";
    if (kind === "study") onClone(name);
    else if (kind === "space") onPick(name);
  };
  return html`<label class="hidden" for="start">Start from</label><select id="start" onChange=${picked}>
    <option value="">Start from …</option>
    ${ships.length > 0 && html`<optgroup label="Spaces that ship">${ships.map((each) => html`<option value=${`space:${each.name}`}>${each.name}</option>`)}</optgroup>`}
    ${files.length > 0 && html`<optgroup label="Files of the server">${files.map((each) => html`<option value=${`space:${each.file}`}>${each.name}: ${each.file}</option>`)}</optgroup>`}
    ${studies.length > 0 && html`<optgroup label="Studies">${studies.map((each) => html`<option value=${`study:${each.name}`}>${each.name}</option>`)}</optgroup>`}
  </select>`;
}

/** How it is queued. `space` is null while the text is none. */
function Queue({ form, text, code, space, names, onDone }) {
  const source = useSource();
  const queue = useAnswer("queue", { kinds: ["queue"] });
  const [given, setGiven] = useState({ name: "", backend: "optuna", priority: "normal", cpus: "", gpus: "", memory: "", hold: false });
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const remote = space?.spec.objective === "remote";
  const name = given.name.trim() || space?.spec.name || "";
  const backend = remote ? "remote" : given.backend === "remote" && space ? "remote" : given.backend;
  useEffect(() => setProblem(null), [text, given]);
  const field = (key) => ({ value: given[key], onInput: (event) => setGiven({ ...given, [key]: event.target.value }) });
  const send = async (event) => {
    event.preventDefault();
    if (!space || busy) return;
    setBusy(true);
    setProblem(null);
    const slots = Object.fromEntries(["cpus", "gpus"].filter((key) => given[key] !== "").map((key) => [key, Number(given[key])]));
    if (given.memory !== "") slots.memory = Math.round(Number(given.memory) * 2 ** 30);
    const body = { space: text, code_of: code, backend, priority: given.priority, hold: given.hold, ...(Object.keys(slots).length > 0 && { slots }) };
    try {
      onDone((await source.send("PUT", ofStudy(name), body)).study);
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  const machine = queue.value?.machine;
  return html`<section class="card" aria-labelledby="queue"><h2 id="queue">Into the queue</h2>
    <form ref=${form} onSubmit=${send}>
      <div class="grid-fields">
        <label class="wide">Name <input ...${field("name")} placeholder=${space?.spec.name ?? ""} spellcheck="false" autocomplete="off" maxlength="200" /></label>
        <label>Priority <select ...${field("priority")}>${["high", "normal", "low"].map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
        <label>Trials run <select ...${{ ...field("backend"), value: backend }} disabled=${remote}>
          <option value="optuna">on this machine</option><option value="ray">on Ray</option>${remote && html`<option value="remote">where their workers are</option>`}</select></label>
      </div>
      <details><summary>A certain part of the machine</summary>
        <div class="grid-fields three">
          <label>Cores <input type="number" min="1" max=${machine?.cores.length} ...${field("cpus")} placeholder="a lane" /></label>
          <label>GPUs <input type="number" min="0" max=${machine?.gpus.length} ...${field("gpus")} placeholder="a lane" /></label>
          <label>Memory, GiB <input type="number" min="0.1" step="0.1" ...${field("memory")} placeholder="a lane" /></label>
        </div>
        ${machine && html`<p class="soft small">This machine has ${counted(machine.cores.length, "cores")}, ${machine.gpus.length ? counted(machine.gpus.length, "GPUs") : "no GPU"} and ${bytes(machine.memory)}, in ${counted(machine.lanes, "lanes")}. What is left out is a lane's.</p>`}
      </details>
      <label class="hold"><input type="checkbox" checked=${given.hold} onChange=${(event) => setGiven({ ...given, hold: event.target.checked })} /> Let it wait until it is resumed</label>
      ${problem && html`<${Refused} problem=${problem} name=${name} names=${names} onName=${(other) => setGiven({ ...given, name: other })} />`}
      <div class="row end"><p class="soft small grow">${space ? whereItStands(queue.value, given) : ""}</p><button type="submit" class="primary" disabled=${!space || busy}>${busy ? "Submitting" : "Submit"}${name && space ? html` <b>${name}</b>` : ""}</button></div>
    </form>
  </section>`;
}

/** What a study that is submitted now waits for. */
function whereItStands(queue, { priority, hold }) {
  if (!queue) return "";
  if (hold) return "It is kept in the queue, and not begun.";
  if (queue.machine.draining) return "The server is drained: it waits until that is over.";
  const rank = ["high", "normal", "low"];
  const before = queue.studies.filter((each) => each.place !== null && rank.indexOf(each.priority ?? "normal") <= rank.indexOf(priority)).length;
  const runs = queue.studies.filter((each) => each.has).length;
  if (before > 0) return `It waits behind ${counted(before, "studies").replace(/ studie$/, " study")}.`;
  return runs > 0 ? "It is the next in the queue." : "It begins at once.";
}

function Refused({ problem, name, names, onName }) {
  if (problem.type === "space-differs") {
    const other = free(name, names);
    return html`<div class="failures" role="alert"><p>There is a study <a href=${href("studies", name)}>${name}</a> with another space:</p>
      <pre>${problem.difference.join("\n")}</pre>
      <p><button type="button" onClick=${() => onName(other)}>Call it ${other}</button></p></div>`;
  }
  const needs = problem.needs ? ` hpsearch token create NAME --scope ${problem.needs} makes such a token.` : "";
  return html`<p class="bad" role="alert">${problem.message}.${needs}</p>`;
}
