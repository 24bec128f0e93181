/** What a trial or a driver prints: its end first, more as it comes, and a search in it. */

import { html, useEffect, useMemo, useRef, useState } from "hpsearch/html.js";
import { useSource } from "hpsearch/data.js";
import { bytes as sized, counted } from "hpsearch/format.js";
import { Empty, Loading, Trouble } from "hpsearch/parts/basics.js";
import { Copy } from "hpsearch/parts/copy.js";
import { useKeys } from "hpsearch/parts/keys.js";

const AT_FIRST = 1 << 18; // bytes from the end
const EVERY = 1500; // ms between two looks while more may come
const MOST_MARKS = 1000;
const ESCAPES = /\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*(\x07|$)/g;

const CUT = /[\r\n](?=[^\r\n])/; // the end of a line, or of a state of one, that another follows

/** Text as a terminal would leave it: without its colours, and of a line that was written over the last state. */
export function plain(/** @type {string} */ text) {
  const lines = text.replace(ESCAPES, "").replace(/\r+\n/g, "\n").split("\n");
  return lines.map((line) => (line.includes("\r") ? (line.split("\r").filter(Boolean).at(-1) ?? "") : line)).join("\n");
}

/** The rest of a text from the middle of a line on: without the part of that line, unless there is nothing else. */
const begun = (/** @type {string} */ raw) => raw.slice(raw.search(CUT) + 1).replace(/^\ufffd+/, "");

/**
 * The text of a route with ranges.
 *
 * @returns {{text: string, before: number, problem: any, loading: boolean, all: () => void}} `before`: bytes that are
 *   left out at its begin, until `all` is called
 */
export function useText(path, live) {
  const source = useSource();
  const [state, set] = useState({ text: "", before: 0, problem: null, loading: true });
  const [whole, setWhole] = useState(false);
  const going = useRef(live);
  going.current = live;
  const look = useRef(() => {});
  useEffect(() => {
    let [gone, timer, end, raw, decoder, before] = [false, 0, -1, "", new TextDecoder(), 0];
    let busy = false;
    const read = async () => {
      clearTimeout(timer);
      if (busy) return;
      busy = true;
      try {
        const part = await source.part(path, end >= 0 ? end : whole ? 0 : -AT_FIRST);
        if (part.size < end || end < 0) [raw, decoder, before] = ["", new TextDecoder(), part.begin];
        if (part.size < end) end = -1; // it was cut: read anew
        else {
          end = part.begin + part.bytes.length;
          raw += decoder.decode(part.bytes, { stream: true });
        }
        if (!gone) set({ text: before ? begun(raw) : raw, before, problem: null, loading: false });
      } catch (problem) {
        if (!gone) set((old) => ({ ...old, problem: old.text ? null : problem, loading: false }));
      }
      busy = false;
      if (!gone && going.current && !source.frozen) timer = setTimeout(tick, EVERY);
    };
    const tick = () => (document.hidden ? (timer = setTimeout(tick, EVERY)) : read());
    look.current = read;
    read();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [source, path, whole]);
  useEffect(() => look.current(), [live]);
  return { ...state, all: () => setWhole(true) };
}

/** @param {{path: string, live: boolean, label: string, none: string}} props `none` says that nothing was printed */
export function Log({ path, live, label, none }) {
  const { text, before, problem, loading, all } = useText(path, live);
  const shown = useMemo(() => plain(text), [text]);
  const [asked, setAsked] = useState("");
  const [at, setAt] = useState(0);
  const [follows, setFollows] = useState(true);
  const [box, field] = [useRef(/** @type {any} */ (null)), useRef(/** @type {any} */ (null))];
  const found = useMemo(() => places(shown, asked), [shown, asked]);
  const current = found.length ? ((at % found.length) + found.length) % found.length : -1;
  useKeys(useMemo(() => [["/", "Find in the log", () => field.current?.focus()]], []));
  useEffect(() => {
    if (box.current && follows && !asked) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, follows, asked]);
  useEffect(() => {
    const mark = box.current?.querySelector("mark[aria-current]");
    if (mark) box.current.scrollTop = mark.offsetTop - box.current.clientHeight / 2;
  }, [current, asked]);
  if (loading) return html`<${Loading} />`;
  if (problem) return html`<${Trouble} problem=${problem} />`;
  if (!text) return html`<${Empty} title=${none}>${live && html`<p>It is shown here when it comes.</p>`}<//>`;
  const pressed = (event) => {
    if (event.key === "Enter") setAt(current + (event.shiftKey ? -1 : 1));
    else if (event.key === "Escape") {
      setAsked("");
      box.current.focus();
    } else return;
    event.preventDefault();
  };
  const scrolled = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    setFollows(scrollTop + clientHeight > scrollHeight - 24);
  };
  return html`
    <div class="controls">
      <input ref=${field} type="search" placeholder="Find in the log" aria-label="Find in the log" value=${asked} onKeyDown=${pressed}
        onInput=${(event) => { setAsked(event.target.value); setAt(0); }} />
      <span class="num soft" role="status">${asked && (found.length ? `${current + 1} of ${found.length}${found.length === MOST_MARKS ? " or more" : ""}` : "not found")}</span>
      <span class="spread"></span>
      ${live && html`<label><input type="checkbox" checked=${follows} onChange=${(event) => setFollows(event.target.checked)} /> follow</label>`}
      ${before > 0 && html`<button type="button" onClick=${all}>Show ${sized(before)} before this</button>`}
      <${Copy} text=${shown} />
    </div>
    <pre class="log" ref=${box} tabindex="0" aria-label=${label} onScroll=${scrolled}>${marked(shown, asked.length, found, current)}</pre>
    <p class="soft small">${counted(shown.split("\n").length - (shown.endsWith("\n") ? 1 : 0), "lines")}${live ? ", more may come" : ""}</p>
  `;
}

/** Where a text stands in another, whatever the case of its letters. */
function places(text, asked) {
  const found = [];
  if (!asked) return found;
  const [there, wanted] = [text.toLowerCase(), asked.toLowerCase()];
  if (there.length !== text.length) return found; // letters whose cases differ in length: İ
  for (let at = there.indexOf(wanted); at >= 0 && found.length < MOST_MARKS; at = there.indexOf(wanted, at + wanted.length)) found.push(at);
  return found;
}

function marked(text, length, found, current) {
  const parts = [];
  let from = 0;
  found.forEach((at, index) => {
    parts.push(text.slice(from, at), html`<mark aria-current=${index === current ? "true" : null}>${text.slice(at, at + length)}</mark>`);
    from = at + length;
  });
  parts.push(text.slice(from));
  return parts;
}
