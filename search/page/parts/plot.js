/** uPlot's axes and zoom, around a drawing of ours: thousands of curves or points at once. */

import { html, useEffect, useRef } from "hpsearch/html.js";
import uPlot from "uplot";
import { ink, useDark } from "hpsearch/colours.js";
import { number } from "hpsearch/format.js";
import { placed } from "hpsearch/scale.js";

const COUNTS = Array.from({ length: 30 }, (_, index) => [1, 2, 5][index % 3] * 10 ** Math.floor(index / 3)); // between marks
const APART = 48; // pixels between the numbers along x
const VAST = 1e15; // an axis that is longer has marks farther apart than uPlot knows
const STEPS = Array.from({ length: 3 * 294 }, (_, index) => [1, 2, 5][index % 3] * 10 ** (14 + Math.floor(index / 3)));

/**
 * @param {{
 *   x: [number, number], y: [number, number], xLog?: boolean, yLog?: boolean, xLabel: string, yLabel: string, height?: number,
 *   stamp: any[], draw: (context: CanvasRenderingContext2D, at: {x: (v: number) => number, y: (v: number) => number, ratio: number}) => void,
 *   over?: (context: CanvasRenderingContext2D, at: any) => void, near?: (x: number, y: number, at: any) => any, onNear?: (found: any) => void, onPick?: (found: any) => void,
 *   label: string, ticks?: string[], whole?: boolean,
 * }} props
 *   `draw` paints with the functions from values to pixels, anew where something of `stamp` is; `over` paints what stands out,
 *   which is cheap; `near` finds what lies at a place, in pixels, and `onNear` is told;
 *   `ticks` are the words of a categorical x; `whole`: x is counted, and has no parts
 */
export function Plot(props) {
  const { xLog = false, yLog = false, xLabel, yLabel, height = 320, label, ticks = null, whole = false, stamp } = props;
  const [x, y] = [props.x.map(placed), props.y.map(placed)];
  const [vastX, vastY] = [x, y].map(([low, high]) => high - low > VAST);
  const box = useRef(/** @type {any} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const now = useRef(props);
  now.current = props;
  const isDark = useDark();
  const zoomed = useRef(false);
  const next = useRef(0); // not before
  const marks = useRef(/** @type {any} */ (null));

  useEffect(() => {
    const made = new uPlot(options(box.current.clientWidth, height), [[x[0], x[1]], [null, null]], box.current);
    plot.current = made;
    const sizes = new ResizeObserver(() => {
      const width = box.current?.clientWidth;
      if (width && width !== made.width) made.setSize({ width, height });
    });
    sizes.observe(box.current);
    return () => {
      sizes.disconnect();
      made.destroy();
    };
  }, [xLog, yLog, height, isDark, xLabel, yLabel, whole, vastX, vastY, ticks?.join()]);

  useEffect(() => {
    const made = plot.current;
    const paint = () => {
      const began = performance.now();
      made.batch(() => {
        made.setData([[x[0], x[1]], [null, null]], false);
        if (!zoomed.current) {
          made.setScale("x", { min: x[0], max: x[1] });
          made.setScale("y", { min: y[0], max: y[1] });
        }
      });
      made.redraw(false);
      requestAnimationFrame(() => (next.current = performance.now() + 4 * (performance.now() - began)));
    };
    const wait = next.current - performance.now(); // what takes long to paint is painted less often
    if (wait <= 0) {
      paint();
      return undefined;
    }
    const timer = setTimeout(paint, wait);
    return () => clearTimeout(timer);
  }, [...stamp, x[0], x[1], y[0], y[1], xLog, yLog, isDark]);

  useEffect(() => mark(plot.current)); // only this follows the pointer

  /** Paint what stands out, on a canvas of its own. */
  function mark(u) {
    const canvas = marks.current;
    const { width: wide, height: tall } = u.bbox;
    if (canvas.width !== wide || canvas.height !== tall) Object.assign(canvas, { width: wide, height: tall });
    const ctx = canvas.getContext("2d");
    ctx.clearRect(0, 0, wide, tall);
    ctx.save();
    ctx.translate(-u.bbox.left, -u.bbox.top);
    now.current.over?.(ctx, pixels(u, true));
    ctx.restore();
  }

  function nearest(u) {
    const { left, top } = u.cursor;
    return left < 0 || !now.current.near ? null : now.current.near(left, top, pixels(u, false));
  }

  function options(width, tall) {
    const axis = { stroke: ink("soft"), font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif", labelSize: 16 };
    const grid = { stroke: ink("line"), width: 1 };
    const tick = { stroke: ink("line"), size: 4, width: 1 };
    const words = ticks && {
      splits: () => ticks.map((_, index) => index),
      values: () => ticks.map((word) => (word.length > 14 ? `${word.slice(0, 13)}…` : word)),
    };
    // Of an axis by logarithms that goes over decades, only these have lines.
    const decades = (_, index, low, high) => {
      const first = Math.ceil(Math.log10(low) - 1e-9);
      return Array.from({ length: Math.floor(Math.log10(high) + 1e-9) - first + 1 }, (_, k) => 10 ** (first + k));
    };
    // One that goes over less has round numbers: uPlot looks for powers of ten, and fails where there is none.
    const far = (ends, log) => (log ? { splits: ends[1] / ends[0] > 50 ? decades : ends[1] / ends[0] > 4 ? halves : rounds, filter: (_, splits) => splits } : {});
    const numbers = (_, splits) => splits.map((each) => (each === null ? "" : number(each, 4)));
    return {
      width: Math.max(120, width),
      height: tall,
      legend: { show: false },
      scales: { x: { time: false, distr: xLog ? 3 : 1, range: (_, a, b) => [a, b] }, y: { distr: yLog ? 3 : 1, range: (_, a, b) => [a, b] } },
      axes: [
        { ...axis, grid, ticks: tick, label: xLabel, size: 30, space: APART, ...(words || { values: numbers, ...far(x, xLog), ...(xLog && { filter: apart }), ...(vastX ? { incrs: STEPS } : whole && { incrs: COUNTS }) }) },
        { ...axis, grid, ticks: tick, label: yLabel, size: 52, values: numbers, ...far(y, yLog), ...(vastY && { incrs: STEPS }) },
      ],
      series: [{}, { show: true, points: { show: false } }],
      cursor: { points: { show: false }, x: false, y: false, drag: { x: true, y: true, uni: 20 } },
      hooks: {
        init: [
          (u) => {
            marks.current = document.createElement("canvas");
            marks.current.className = "marks";
            u.over.append(marks.current);
            u.over.addEventListener("click", () => now.current.onPick?.(nearest(u)));
            u.over.addEventListener("dblclick", () => {
              zoomed.current = false;
              u.batch(() => {
                for (const axis of ["x", "y"]) {
                  const [min, max] = now.current[axis].map(placed);
                  u.setScale(axis, { min, max });
                }
              });
            });
          },
        ],
        setSelect: [(u) => (zoomed.current = zoomed.current || u.select.width > 0)],
        setCursor: [(u) => now.current.onNear?.(nearest(u))],
        draw: [
          (u) => {
            const { ctx, bbox } = u;
            ctx.save();
            ctx.beginPath();
            ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
            ctx.clip();
            now.current.draw(ctx, pixels(u, true));
            ctx.restore();
            mark(u);
          },
        ],
      },
    };
  }

  return html`<div class="plot" ref=${box} role="img" aria-label=${label} style=${{ minHeight: `${height}px` }}></div>`;
}

/** Of the marks along x, those whose numbers have room. */
function apart(u, splits) {
  let last = -Infinity;
  return splits.map((each) => {
    const at = u.valToPos(each, "x");
    if (at - last < APART) return null;
    last = at;
    return each;
  });
}

/** The numbers that begin with 1, 2 and 5. */
function halves(_, index, low, high) {
  const first = Math.floor(Math.log10(low));
  const powers = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, k) => 10 ** (first + k));
  return powers.flatMap((power) => [power, 2 * power, 5 * power]).filter((each) => each >= low && each <= high);
}

/** Four to nine round numbers of a range. */
function rounds(_, index, low, high) {
  const power = 10 ** Math.floor(Math.log10(high - low));
  const step = [1, 0.5, 0.2].map((part) => part * power).find((each) => (high - low) / each >= 4) ?? 0.1 * power;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, k) => (first + k) * step);
}

/** The functions from values to pixels, of the canvas or of the page: by two points, as there are many values. */
function pixels(u, canvas) {
  const along = (key) => {
    const { min, max, distr } = u.scales[key];
    const scale = distr === 3 ? Math.log : (value) => value;
    const from = u.valToPos(min, key, canvas);
    const slope = (u.valToPos(max, key, canvas) - from) / (scale(max) - scale(min) || 1);
    const start = scale(min);
    return (value) => from + (scale(placed(value)) - start) * slope;
  };
  return { x: along("x"), y: along("y"), ratio: canvas ? uPlot.pxRatio : 1 };
}
