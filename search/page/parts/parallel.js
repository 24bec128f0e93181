/** Parallel coordinates: one line a trial, across all that was searched, to its value. */

import { html, useEffect, useMemo, useRef, useState } from "hpsearch/html.js";
import { useSame } from "hpsearch/data.js";
import { colouring, ink, useDark } from "hpsearch/colours.js";
import { number, setting } from "hpsearch/format.js";
import { share } from "hpsearch/scale.js";
import { Legend } from "hpsearch/parts/legend.js";

const MANY = 300; // lines
const [TALL, HEAD, FOOT, SIDE] = [300, 34, 22, 54];

/** @param {{rows: any[], searched: string[], logs: Set<string>, metric: string, picked: number | null, onPick: (trial: number) => void}} props */
export function Parallel({ rows, searched, logs, metric, picked, onPick }) {
  const canvas = useRef(/** @type {any} */ (null));
  const box = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(600);
  const [kept, setKept] = useState(/** @type {Object<string, [number, number]>} */ ({}));
  const isDark = useDark();
  const complete = useSame(rows.filter((row) => row.state === "complete" && row.confirms === null));
  const axes = useMemo(() => [...searched, metric].map((name) => axisOf(name, complete, logs.has(name), name === metric)), [complete, searched.join(), logs, metric]);
  const inks = useMemo(() => colouring("value", complete), [complete, isDark]);
  const gap = axes.length > 1 ? (width - 2 * SIDE) / (axes.length - 1) : 0;
  const inside = (row) => axes.every((axis) => !kept[axis.name] || (axis.at(row) !== null && axis.at(row) >= kept[axis.name][0] && axis.at(row) <= kept[axis.name][1]));

  useEffect(() => {
    const sizes = new ResizeObserver(() => box.current && setWidth(Math.max(box.current.clientWidth, 110 * axes.length)));
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, [axes.length]);
  useEffect(() => {
    const ratio = window.devicePixelRatio || 1;
    const el = canvas.current;
    el.width = width * ratio;
    el.height = TALL * ratio;
    const ctx = el.getContext("2d");
    ctx.scale(ratio, ratio);
    ctx.clearRect(0, 0, width, TALL);
    const some = Object.keys(kept).length > 0;
    const order = [...complete].sort((a, b) => Number(inside(a)) - Number(inside(b)));
    for (const row of order) {
      const one = row.number === picked;
      ctx.globalAlpha = one ? 1 : some && !inside(row) ? 0.07 : complete.length > MANY ? 0.35 : 0.65;
      ctx.lineWidth = one ? 3 : complete.length > MANY ? 1 / ratio : 1.2; // one pixel wide is painted several times as fast
      ctx.strokeStyle = one ? ink("text") : inks.of(row);
      ctx.beginPath();
      axes.forEach((axis, index) => {
        const share = axis.at(row);
        if (share !== null) ctx.lineTo(SIDE + index * gap, yOf(share));
      });
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
  }, [complete, axes, inks, width, kept, picked]);
  if (!complete.length) return html`<p class="soft" ref=${box}>No trial has run to its end yet.</p><canvas ref=${canvas} hidden></canvas>`;

  const drag = (axis) => (event) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    const share = (y) => Math.min(1, Math.max(0, 1 - (y - HEAD) / (TALL - HEAD - FOOT)));
    const place = (moved) => share(moved.clientY - canvas.current.getBoundingClientRect().top);
    const start = place(event);
    const element = event.currentTarget;
    const move = (moved) => setKept((old) => ({ ...old, [axis.name]: [Math.min(start, place(moved)), Math.max(start, place(moved))] }));
    const end = (moved) => {
      element.removeEventListener("pointermove", move);
      element.removeEventListener("pointerup", end);
      if (Math.abs(place(moved) - start) < 0.015) setKept(({ [axis.name]: _, ...others }) => others);
    };
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", end);
  };
  const pick = (event) => {
    const { left, top } = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const index = Math.min(axes.length - 2, Math.max(0, Math.floor((x - SIDE) / gap)));
    const part = (x - SIDE) / gap - index;
    let [least, found] = [12, null];
    for (const row of complete.filter(inside)) {
      const [a, b] = [axes[index]?.at(row), axes[index + 1]?.at(row)];
      if (a === null || b === null || a === undefined || b === undefined) continue;
      const far = Math.abs(yOf(a) + part * (yOf(b) - yOf(a)) - y);
      if (far < least) [least, found] = [far, row.number];
    }
    if (found !== null) onPick(found);
  };
  return html`
    <div class="controls"><${Legend} inks=${inks} by=${metric} /><span class="soft">Drag along an axis to keep a part of it.</span></div>
    <div class="scroll-x" tabindex="0" role="group" aria-label="Parallel coordinates"><div class="parallel" ref=${box}>
      <canvas ref=${canvas} style=${{ width: `${width}px`, height: `${TALL}px` }} onClick=${pick} role="img" aria-label=${`${complete.length} trials across ${axes.length} axes`}></canvas>
      ${axes.map((axis, index) => {
        const range = kept[axis.name];
        return html`<div class="axis-v" key=${axis.name} style=${{ left: `${SIDE + index * gap}px` }} onPointerDown=${drag(axis)}>
          <b title=${axis.name}>${axis.name}</b><span class="num high">${axis.top}</span><span class="num low">${axis.bottom}</span>
          ${axis.marks.map(([share, word]) => html`<span class="mark-v" style=${{ top: `${yOf(share)}px` }}>${word}</span>`)}
          ${range && html`<span class="kept" style=${{ top: `${yOf(range[1])}px`, height: `${yOf(range[0]) - yOf(range[1])}px` }}></span>`}
        </div>`;
      })}
    </div></div>
  `;
}

const yOf = (share) => HEAD + (1 - share) * (TALL - HEAD - FOOT);

/** An axis: where a trial crosses it, as a share of its height, and its words. */
function axisOf(name, rows, isLog, isValue) {
  const value = (row) => (isValue ? row.value : row.params[name]);
  const there = rows.map(value).filter((each) => each !== null && each !== undefined);
  if (there.length && there.every((each) => typeof each === "number")) {
    const scale = isLog ? Math.log : (x) => x;
    const low = there.reduce((a, b) => Math.min(a, b));
    const high = there.reduce((a, b) => Math.max(a, b));
    const at = (row) => (typeof value(row) === "number" ? share(scale(value(row)), scale(low), scale(high)) : null);
    return { name, at, top: number(high, 3), bottom: number(low, 3), marks: [] };
  }
  const words = [...new Set(there.map(setting))].sort();
  const part = (word) => (words.length > 1 ? words.indexOf(word) / (words.length - 1) : 0.5);
  const at = (row) => (value(row) === null || value(row) === undefined ? null : part(setting(value(row))));
  return { name, at, top: "", bottom: "", marks: words.map((word) => [part(word), word]) };
}
