/** A table of any length: only the rows that are seen are drawn. */

import { html, useEffect, useMemo, useRef, useState } from "hpsearch/html.js";
import { whole } from "hpsearch/format.js";
import { filterOf, sorted } from "hpsearch/parts/filter.js";
import { useKeys } from "hpsearch/parts/keys.js";

const ROW = 30; // pixels
const BEYOND = 12; // rows above and below what is seen

/**
 * @param {{
 *   rows: any[], id: (row: any) => any, things: string, label: string, height?: number,
 *   columns: {key: string, label: string, of: (row: any) => any, show?: (row: any) => any, right?: boolean, hidden?: boolean}[],
 *   first?: {key: string, down: boolean}, picked?: any, onPick?: (id: any) => void, onOpen?: (id: any) => void,
 * }} props `of` gives what is sorted and filtered by, `show` what is drawn in its place
 */
export function Table({ rows, id, things, label, columns, height = 460, first = { key: columns[0].key, down: false }, picked = null, onPick, onOpen }) {
  const [order, setOrder] = useState(first);
  const [text, setText] = useState("");
  const [hidden, setHidden] = useState(() => new Set(columns.filter((each) => each.hidden).map((each) => each.key)));
  const [top, setTop] = useState(0);
  const frame = useRef(/** @type {any} */ (null));
  const search = useRef(/** @type {any} */ (null));
  const shown = columns.filter((each) => !hidden.has(each.key));
  const list = useMemo(() => {
    const by = columns.find((each) => each.key === order.key) ?? columns[0];
    return sorted(rows.filter(filterOf(text, columns)), by.of, order.down);
  }, [rows, columns, text, order]);

  const step = (by) => {
    const at = list.findIndex((row) => id(row) === picked);
    const next = list[Math.min(list.length - 1, Math.max(0, at + by))];
    if (next === undefined) return;
    onPick?.(id(next));
    const y = Math.min(list.length - 1, Math.max(0, at + by)) * ROW;
    const { scrollTop, clientHeight } = frame.current;
    if (y < scrollTop) frame.current.scrollTop = y;
    else if (y + 3 * ROW > scrollTop + clientHeight) frame.current.scrollTop = y - clientHeight + 3 * ROW;
  };
  const now = useRef({});
  now.current = { step, open: () => picked !== null && onOpen?.(picked) };
  const keys = useMemo(
    () => [
      ["j", `Next of the ${things}`, () => now.current.step(1)],
      ["k", `The one before`, () => now.current.step(-1)],
      ["Enter", "Open it", () => now.current.open()],
      ["/", "Filter", () => search.current.focus()],
    ],
    [things],
  );
  useKeys(keys);

  const from = Math.max(0, Math.floor(top / ROW) - BEYOND);
  const to = Math.min(list.length, Math.ceil((top + height) / ROW) + BEYOND);
  useEffect(() => {
    if (frame.current.scrollTop > list.length * ROW) frame.current.scrollTop = 0;
  }, [list.length]);
  const turn = (key) => setOrder((old) => ({ key, down: old.key === key ? !old.down : false }));
  const choose = (key) =>
    setHidden((old) => {
      const next = new Set(old);
      if (!next.delete(key)) next.add(key);
      return next;
    });

  return html`
    <div class="controls">
      <input ref=${search} type="search" class="filter" placeholder="Filter: state:pruned lr<0.01" aria-label=${`Filter ${things}`}
        value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => event.key === "Escape" && event.target.blur()} />
      <span class="soft num" role="status">${list.length === rows.length ? `${whole(rows.length)} ${things}` : `${whole(list.length)} of ${whole(rows.length)} ${things}`}</span>
      <details class="choose"><summary>Columns</summary><div>
        ${columns.map((each) => html`<label key=${each.key}><input type="checkbox" checked=${!hidden.has(each.key)} onChange=${() => choose(each.key)} /> ${each.label}</label>`)}
      </div></details>
    </div>
    <div class="table" ref=${frame} tabindex="0" role="region" aria-label=${label} style=${{ maxHeight: `${height}px` }} onScroll=${(event) => setTop(event.target.scrollTop)}>
      <table aria-rowcount=${list.length + 1}>
        <thead><tr aria-rowindex="1">${shown.map(
          (each) => html`<th key=${each.key} scope="col" class=${each.right ? "right" : ""} aria-sort=${order.key !== each.key ? null : order.down ? "descending" : "ascending"}>
            <button type="button" class="quiet" onClick=${() => turn(each.key)}>${each.label}<span class="arrow" aria-hidden="true">${order.key === each.key ? (order.down ? "↓" : "↑") : ""}</span></button></th>`,
        )}</tr></thead>
        <tbody>
          ${from > 0 && html`<tr aria-hidden="true" key="above" style=${{ height: `${from * ROW}px` }}><td colspan=${shown.length}></td></tr>`}
          ${list.slice(from, to).map(
            (row, index) => html`<tr key=${id(row)} aria-rowindex=${from + index + 2} aria-selected=${id(row) === picked ? "true" : null}
              onClick=${() => onPick?.(id(row))} onDblClick=${() => onOpen?.(id(row))}>
              ${shown.map((each) => html`<td key=${each.key} class=${each.right ? "right num" : ""}>${(each.show ?? each.of)(row)}</td>`)}</tr>`,
          )}
          ${to < list.length && html`<tr aria-hidden="true" key="below" style=${{ height: `${(list.length - to) * ROW}px` }}><td colspan=${shown.length}></td></tr>`}
        </tbody>
      </table>
      ${list.length === 0 && html`<p class="soft none">${rows.length ? "Nothing fits the filter." : `No ${things} yet.`}</p>`}
    </div>
  `;
}
