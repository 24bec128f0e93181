/** A text in an editor: its lines have numbers, its words colours, and what is wrong stands at its line.
 *
 * What is typed goes into a text area without ink of its own; the coloured text lies under it. Both have the
 * size of the text, so one box scrolls them together with the numbers.
 */

import { html, useEffect, useImperativeHandle, useMemo, useRef } from "hpsearch/html.js";

const LINE = 20; // px, as the style sheet has it
const MOST_COLOURED = 3000; // lines
const MOST = 1 << 20; // characters, as a route takes them

// a comment, a text in quotes, a key, a number, a word of YAML's own
const WORDS = /((?<=^|\s)#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|([\w./$-]+(?=\s*:(?:\s|$)))|((?<![\w.])[-+]?\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.]))|\b(true|false|null)\b/g;
const KINDS = ["comment", "text", "key", "number", "word"];

/**
 * @param {{
 *   text: string,
 *   onChange: (text: string) => void,
 *   issues: {line: number, column: number, message: string}[],
 *   label: string,
 *   described: string,
 *   onFile: (name: string, text: string) => void,
 *   onDone: () => void,
 *   handle: any,
 * }} props `described`: id of what says whether it is right; `onDone` at Ctrl+Enter; `handle` is given
 *   `{put(text), show(issue)}`: to put another text in its place, which can be undone, and to lead to an issue
 */
export function Editor({ text, onChange, issues, label, described, onFile, onDone, handle }) {
  const box = useRef(/** @type {any} */ (null));
  const area = useRef(/** @type {any} */ (null));
  const lines = useMemo(() => text.split("\n"), [text]);
  const wrong = useMemo(() => byLine(issues), [issues]);
  useEffect(() => {
    if (area.current.value !== text) area.current.value = text;
  }, [text]);
  useImperativeHandle(handle, () => ({
    put(other) {
      area.current.focus({ preventScroll: true });
      area.current.select();
      if (!document.execCommand("insertText", false, other)) area.current.value = other;
      area.current.setSelectionRange(0, 0);
      box.current.scrollTo(0, 0);
      onChange(area.current.value);
    },
    show({ line, column }) {
      const all = area.current.value.split("\n");
      const begin = all.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, Math.max(0, column - 1));
      const word = /^([\w.$-]+|\S?)/.exec((all[line - 1] ?? "").slice(column - 1))?.[0] ?? "";
      area.current.focus({ preventScroll: true });
      area.current.setSelectionRange(begin, begin + word.length);
      box.current.scrollTo({ top: Math.max(0, (line - 1) * LINE - box.current.clientHeight / 2), left: 0 });
      box.current.scrollIntoView({ block: "nearest" });
    },
  }));
  const typed = (event) => onChange(event.target.value);
  const pressed = (event) => {
    if (event.key !== "Enter") return;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      onDone();
      return;
    }
    const before = event.target.value.slice(0, event.target.selectionStart).split("\n").at(-1);
    const deep = /^ */.exec(before)?.[0] + (/:\s*$/.test(before) ? "  " : "");
    if (!deep || event.shiftKey) return;
    event.preventDefault();
    document.execCommand("insertText", false, `\n${deep}`);
  };
  const dropped = async (event) => {
    const [file] = event.dataTransfer.files;
    if (!file) return; // a piece of text, which the browser puts where it is dropped
    event.preventDefault();
    onFile(file.name, await textOf(file));
  };
  return html`
    <div class="editor" ref=${box} onDragOver=${(event) => event.preventDefault()} onDrop=${dropped}>
      <ol class="gutter" aria-hidden="true">${lines.map((_, index) => html`<li key=${index} class=${wrong.has(index + 1) ? "wrong" : ""} title=${wrong.get(index + 1)?.map((each) => each.message).join("\n") ?? ""}></li>`)}</ol>
      <div class="sheet">
        <pre class="ink" aria-hidden="true">${lines.map((line, index) => html`<${Line} key=${index} line=${line} plain=${lines.length > MOST_COLOURED} issue=${wrong.get(index + 1)?.[0] ?? null} />`)}</pre>
        <textarea ref=${area} aria-label=${label} aria-describedby=${described} aria-invalid=${issues.length > 0} spellcheck="false" autocapitalize="off" autocomplete="off" wrap="off"
          maxlength=${MOST} onInput=${typed} onKeyDown=${pressed}></textarea>
      </div>
    </div>
  `;
}

/** The text of a file that was dropped or opened; of a large one what a route would refuse anyway. */
export const textOf = (/** @type {File} */ file) => file.slice(0, MOST + 1).text();

function byLine(issues) {
  const found = new Map();
  for (const issue of issues) {
    if (issue.line > 0) found.set(issue.line, [...(found.get(issue.line) ?? []), issue]);
  }
  return found;
}

/** A line in its colours; what is wrong in it is underlined. */
function Line({ line, plain, issue }) {
  const parts = plain ? [["", line]] : [...coloured(line)];
  const shown = parts.map(([kind, words]) => (kind ? html`<span class=${kind}>${words}</span>` : words));
  if (!issue) return html`<div class="line">${shown}${"\n"}</div>`;
  const from = Math.min(issue.column - 1, line.length);
  const length = /^([\w.$-]+|\S?)/.exec(line.slice(from))?.[0].length || 1;
  return html`<div class="line wrong">${shown}<span class="squiggle" style=${{ left: `${from}ch`, width: `${length}ch` }}></span>${"\n"}</div>`;
}

/** The parts of a line: [kind, words], with no kind for what is plain. */
export function* coloured(/** @type {string} */ line) {
  let at = 0;
  for (const match of line.matchAll(WORDS)) {
    if (match.index > at) yield ["", line.slice(at, match.index)];
    yield [KINDS[match.slice(1).findIndex((each) => each !== undefined)], match[0]];
    at = match.index + match[0].length;
  }
  if (at < line.length) yield ["", line.slice(at)];
}
