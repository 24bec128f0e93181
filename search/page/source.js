/** Where screens get what they show: from a server that lives, or from a document that holds all of it.
 *
 * Both have the same face, so that no screen knows which it has:
 *
 *   get(path)      what the route v1/PATH answers, as data (that of v1 for ""); rejects with a `Problem`
 *   pages(path)    the same of a route that answers page by page, as they come; `list(path)`: all of them as one array
 *   part(path, begin)  the bytes of a text from a place on, from its end where that is negative, as {bytes, begin, size}
 *   send(method, path, body)   a change; a frozen source has none (`frozen` is true)
 *   ticket(path)   a link for a download, which works once
 *   visit(study)   the address of a study in optuna-dashboard, which this browser may then open
 *   listen(hear)   calls `hear({kind, data, study})` for each event; returns what ends that
 *   status         {state, since, why}; `watch(see)` calls `see()` when it changes, returns what ends that
 *
 * States: "connecting", "live", "stale" (since when), "asleep" (hidden for a minute), "denied", "frozen".
 */

import { Listeners } from "hpsearch/listeners.js";
import { Stream } from "hpsearch/stream.js";

const KEPT = 300; // answers that need not be sent again where they have not changed

/** What a server answers in place of what was asked for. */
export class Problem extends Error {
  /** @param {number} status @param {any} body a problem document, as far as there is one */
  constructor(status, body) {
    super(body?.detail || body?.title || `the server answered with status ${status}`);
    this.status = status;
    this.code = body?.code ?? null;
    this.type = String(body?.type ?? "").replace(/^.*\/problems\//, "");
    this.title = body?.title ?? "";
    this.issues = body?.issues ?? [];
    this.needs = body?.needs ?? null;
    this.tool = body?.tool ?? null; // whose file a text is instead of a space
    this.difference = body?.difference ?? [];
    this.nextSteps = body?.next_steps ?? [];
  }
}

/** A server, asked with a token. */
export class LiveSource {
  frozen = false;
  status = { state: "connecting", since: Date.now(), why: "" };
  #answers = new Map(); // by path: {tag, value}, the newest last
  #events = new Listeners();
  #watchers = new Listeners();

  /** @param {string} token @param {string} base where v1/ is, relative to the document */
  constructor(token, base = "./") {
    this.token = token;
    this.base = base;
    this.stream = new Stream({
      open: (options) => this.#fetch("events", options),
      name: `hpsearch ${location.pathname} ${token.slice(0, 12)}`,
      tell: (event) => this.#hear(event),
      show: (status) => this.#show(status),
    });
  }

  start() {
    this.stream.start();
    return this;
  }

  stop() {
    this.stream.stop();
  }

  async get(path) {
    return (await this.#page(path)).value;
  }

  async list(path) {
    const all = [];
    for await (const page of this.pages(path)) all.push(...page);
    return all;
  }

  async *pages(path) {
    for (let next = path; next; ) {
      const page = await this.#page(next);
      yield page.value;
      next = page.next === null ? null : path.split("?")[0] + page.next;
    }
  }

  /** The text of a route that answers with none of our data: a space, a log. */
  async text(path) {
    return (await this.#checked(path, {})).text();
  }

  async part(path, begin) {
    const known = begin > 0 ? 1 : 0; // a byte that is there already: to ask for nothing would be an error in the console
    const range = begin < 0 ? `bytes=${begin}` : `bytes=${begin - known}-`;
    const answer = await this.#fetch(path, { headers: { Range: range } });
    const [, at, size] = /bytes (\*|\d+).*\/(\d+)/.exec(answer.headers.get("Content-Range") ?? "") ?? [];
    if (answer.status === 416) return { bytes: new Uint8Array(), begin: Number(size), size: Number(size) };
    const bytes = new Uint8Array(await (await this.#passed(answer)).arrayBuffer());
    return { bytes: bytes.subarray(known), begin: Number(at ?? -known) + known, size: Number(size ?? bytes.length) };
  }

  async send(method, path, body, headers = {}) {
    const options = { method, headers: { ...headers }, keepalive: body === undefined }; // such a one is sent while a page is left
    if (body !== undefined) {
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    const answer = await this.#checked(path, options);
    return answer.status === 204 ? null : answer.json();
  }

  async ticket(path) {
    const { link } = await this.send("POST", "tickets", { path: `/v1/${path}` });
    return this.base + link.replace(/^\//, "");
  }

  async visit(study) {
    const headers = { "Content-Type": "application/json" };
    const options = { method: "POST", headers, body: JSON.stringify({ study }), credentials: "same-origin" }; // takes the cookie
    return (await (await this.#checked("visits", options)).json()).link;
  }

  listen(hear) {
    return this.#events.add(hear);
  }

  watch(see) {
    return this.#watchers.add(see);
  }

  async #page(path) {
    const known = this.#answers.get(path);
    const answer = await this.#checked(path, { headers: known ? { "If-None-Match": known.tag } : {} });
    if (answer.status === 304) return known;
    const link = /<(\?[^>]*)>; rel="next"/.exec(answer.headers.get("Link") ?? "");
    const found = { tag: answer.headers.get("ETag"), value: await answer.json(), next: link && link[1] };
    this.#answers.delete(path);
    if (found.tag) this.#answers.set(path, found);
    if (this.#answers.size > KEPT) this.#answers.delete(this.#answers.keys().next().value);
    return found;
  }

  async #checked(path, options) {
    return this.#passed(await this.#fetch(path, options));
  }

  async #passed(/** @type {Response} */ answer) {
    if (answer.ok || answer.status === 304) return answer;
    const problem = new Problem(answer.status, await answer.json().catch(() => null));
    if (answer.status === 401) this.#show({ state: "denied", since: Date.now(), why: problem.message });
    throw problem;
  }

  async #fetch(path, { headers = {}, ...options }) {
    try {
      return await fetch(`${this.base}v1${path && `/${path}`}`, {
        cache: "no-store",
        credentials: "omit",
        ...options,
        headers: { Authorization: `Bearer ${this.token}`, ...headers },
      });
    } catch (error) {
      if (/** @type {any} */ (error).name === "AbortError") throw error;
      throw new Problem(0, { title: "the server cannot be reached" });
    }
  }

  #hear(event) {
    this.#events.tell({ ...event, study: event.data?.study ?? (event.kind === "study" ? event.data?.name : null) });
  }

  #show(status) {
    const same = status.state === this.status.state && status.why === this.status.why;
    if (same || (this.status.state === "denied" && status.state !== "live")) return;
    this.status = status;
    if (status.state === "denied") this.stop();
    this.#watchers.tell();
  }
}

/** The answers of routes, by path, in the document itself. */
export class FrozenSource {
  frozen = true;
  token = null;

  /** @param {{answers: Object<string, any>, at: string, first: string}} document what was answered, when, and the address of its first screen */
  constructor({ answers, at, first }) {
    this.answers = answers;
    this.first = first;
    this.status = { state: "frozen", since: Date.parse(at), why: "" };
  }

  /** Where the document leads: {label, address}. */
  get places() {
    const named = this.answers.studies.map(({ name }) => [name, `studies/${encodeURIComponent(name)}`]);
    if (named.length === 1) return [["Report", this.first], ["Study", named[0][1]], ["Winner", `${named[0][1]}/winner`]];
    return [["Comparison", this.first], ...named.map(([name, address]) => [name, `${address}/report`])];
  }

  start() {
    return this;
  }

  stop() {}

  async get(path) {
    const [, study, trial] = /^(studies\/[^/]+)\/trials\/(\d+)$/.exec(path) ?? [];
    const row = this.answers[`${study}/trials`]?.find((each) => each.number === Number(trial));
    if (row) return this.#trial(study, row);
    if (path in this.answers) return this.answers[path];
    const [place, asked = ""] = path.split("?");
    if (place.endsWith("/trials") || place.endsWith("/curves")) return chosen(this.answers[place], new URLSearchParams(asked));
    throw new Problem(404, { title: "this report does not hold that" });
  }

  /** A trial: its row, its curve, and what else is told of those that matter. */
  #trial(study, row) {
    const { name, metric, resource } = this.answers[study];
    const { trial, step, value, reports } = this.answers[`${study}/curves`];
    const at = trial.indexOf(row.number);
    const curve = at < 0 ? [] : step[at].map((each, index) => [each, value[at][index]]);
    const about = { study: name, metric, resource, kinds: {}, bracket: null, bracket_rungs: [], rungs: [], advice: [], attributes: {}, files: [] };
    return { ...about, ...row, ...this.answers[`${study}/trials/${row.number}`], curve, reports: reports[at] };
  }

  list(path) {
    return this.get(path);
  }

  async *pages(path) {
    yield await this.get(path);
  }

  text(path) {
    return this.get(path);
  }

  async part(path, begin) {
    const bytes = new TextEncoder().encode(await this.get(path));
    const from = begin < 0 ? Math.max(0, bytes.length + begin) : Math.min(begin, bytes.length);
    return { bytes: bytes.subarray(from), begin: from, size: bytes.length };
  }

  async send() {
    throw new Problem(405, { title: "a report changes nothing" });
  }

  async ticket() {
    return this.send();
  }

  async visit() {
    return this.send();
  }

  listen() {
    return () => {};
  }

  watch() {
    return () => {};
  }
}

/** Of all trials or curves, those that a query asks for. */
function chosen(all, query) {
  if (Array.isArray(all)) {
    const rows = query.get("sort") === "newest" ? all.toReversed() : all;
    return rows.slice(0, Number(query.get("limit") ?? rows.length) === 1 ? 1 : rows.length);
  }
  if (!query.has("trials")) return all;
  const wanted = new Set(query.get("trials")?.split(",").map(Number));
  const at = [...all.trial.keys()].filter((index) => wanted.has(all.trial[index]));
  const of = (column) => at.map((index) => column[index]);
  return { ...all, trial: of(all.trial), step: of(all.step), value: of(all.value) };
}
