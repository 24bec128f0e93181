/** The events of a server: one stream for all tabs of a browser that have the same token.
 *
 * The tab that holds the lock reads the stream and passes each event on; when it closes, or sleeps, another
 * takes over where it was. A tab that is hidden for a minute lets go, and reads all anew when it is shown.
 */

const HIDDEN = 60_000; // ms after which a hidden tab sleeps
const SILENT = 40_000; // ms without a sign of life, which comes each 15 s
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15_000;

export class Stream {
  #id = null; // of the last event
  #sleeping = null; // what ends this waking
  #timer = 0;
  #heard = 0; // when another tab last passed something on
  #leads = false;
  #wasLive = false; // else there is nothing to be stale

  /**
   * @param {{
   *   open: (options: {headers: Object<string, string>, signal: AbortSignal}) => Promise<Response>,
   *   name: string,
   *   tell: (event: {kind: string, data: any}) => void,
   *   show: (status: {state: string, since: number, why: string}) => void,
   * }} options
   */
  constructor({ open, name, tell, show }) {
    Object.assign(this, { open, name, tell, show });
    this.onVisibility = () => this.#seen();
  }

  start() {
    document.addEventListener("visibilitychange", this.onVisibility);
    this.#wake();
    this.#seen();
  }

  stop() {
    document.removeEventListener("visibilitychange", this.onVisibility);
    clearTimeout(this.#timer);
    this.#sleeping?.abort();
    this.#sleeping = null;
  }

  #seen() {
    clearTimeout(this.#timer);
    if (document.hidden) {
      this.#timer = setTimeout(() => {
        this.#sleeping?.abort();
        this.#sleeping = null;
        this.#id = null;
        this.#now("asleep");
      }, HIDDEN);
    } else if (this.#sleeping === null) {
      this.#wake();
      this.tell({ kind: "reset", data: {} });
    }
  }

  #wake() {
    const sleeping = (this.#sleeping = new AbortController());
    const { signal } = sleeping;
    this.#now("connecting");
    if (!navigator.locks || !window.BroadcastChannel) {
      this.#lead(signal, () => {});
      return;
    }
    const channel = new BroadcastChannel(this.name);
    channel.onmessage = ({ data }) => this.#follow(data);
    const watchdog = setInterval(() => {
      const silent = !this.#leads && this.#heard && Date.now() - this.#heard > SILENT;
      if (silent) this.#now("stale", "nothing is heard of the server", this.#heard);
    }, 5000);
    signal.addEventListener("abort", () => {
      clearInterval(watchdog);
      channel.close();
    });
    const pass = (message) => signal.aborted || channel.postMessage(message);
    navigator.locks
      .request(this.name, { signal }, () => this.#lead(signal, pass))
      .catch((error) => {
        if (error.name !== "AbortError") throw error;
      });
    channel.postMessage({ ask: true });
  }

  /** What the tab that reads the stream passes on. */
  #follow({ ask, event, status }) {
    if (ask) {
      this.onAsk?.();
      return;
    }
    this.#heard = Date.now();
    if (event) {
      this.#id = event.id ?? this.#id;
      this.tell(event);
    }
    if (!status) return;
    this.#wasLive ||= status.state === "live";
    this.show(status);
  }

  async #lead(signal, pass) {
    this.#leads = true;
    let status = { state: "connecting", since: Date.now(), why: "" };
    const now = (state, why = "") => {
      if (signal.aborted) return;
      this.#wasLive ||= state === "live";
      if (state !== status.state || why !== status.why) status = { state, since: Date.now(), why };
      this.show(status);
      pass({ status });
    };
    this.onAsk = () => pass({ status });
    for (let wait = FIRST_WAIT; !signal.aborted; ) {
      const why = await this.#read(signal, pass, now, () => (wait = FIRST_WAIT));
      if (why === null) break;
      now(this.#wasLive ? "stale" : "connecting", why);
      await pause(wait * (0.8 + 0.4 * Math.random()), signal);
      wait = Math.min(2 * wait, LONGEST_WAIT);
    }
    this.#leads = false;
    this.onAsk = null;
  }

  /** Read the stream to its end; says why it ended, null where it is not to be read again. */
  async #read(signal, pass, now, begun) {
    const ending = new AbortController();
    const end = () => ending.abort();
    signal.addEventListener("abort", end);
    let silence = setTimeout(end, SILENT);
    try {
      const headers = this.#id === null ? {} : { "Last-Event-ID": this.#id };
      const answer = await this.open({ headers, signal: ending.signal });
      if (answer.status === 401 || answer.status === 403) {
        now("denied", answer.status === 401 ? "the token is not valid" : (await answer.json()).detail);
        return null;
      }
      if (!answer.ok) return `the server answered with status ${answer.status}`;
      begun();
      now("live");
      for await (const event of events(answer.body)) {
        clearTimeout(silence);
        silence = setTimeout(end, SILENT);
        if (event === null) {
          pass({ beat: true });
          continue;
        }
        this.#id = event.id ?? this.#id;
        if (event.kind === "bye") return "the server has ended";
        this.tell(event);
        pass({ event });
      }
      return "the server has ended the stream";
    } catch (error) {
      if (signal.aborted) return null;
      return ending.signal.aborted ? "nothing is heard of the server" : error.message;
    } finally {
      clearTimeout(silence);
      signal.removeEventListener("abort", end);
      ending.abort();
    }
  }

  #now(state, why = "", since = Date.now()) {
    this.show({ state, since, why });
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve(undefined);
    };
    const timer = setTimeout(done, ms);
    window.addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}

/** The events of a stream; null for what only says that the server lives. */
async function* events(/** @type {ReadableStream} */ body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) yield parsed(block);
  }
}

/** One block of a stream. */
export function parsed(/** @type {string} */ block) {
  const event = { kind: "", id: null, data: null };
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const value = line.slice(at + 1).replace(/^ /, "");
    if (line.startsWith("event:")) event.kind = value;
    else if (line.startsWith("id:")) event.id = value;
    else if (line.startsWith("data:")) event.data = JSON.parse(value);
  }
  return event.kind ? event : null;
}
