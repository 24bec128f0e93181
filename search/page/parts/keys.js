/** The keyboard: keys of the page and of a screen, and what shows them. */

import { html, useEffect, useRef } from "hpsearch/html.js";

const shown = new Set(); // lists of keys that are there now

/** @param {any[][]} keys each [key, what it does, function]; not while something is typed */
export function useKeys(keys) {
  useEffect(() => {
    shown.add(keys);
    const pressed = (event) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
      if (typing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (document.querySelector("dialog[open]") && event.key !== "?") return;
      const found = keys.find(([key]) => key === event.key);
      if (found) {
        event.preventDefault();
        found[2]();
      }
    };
    window.addEventListener("keydown", pressed);
    return () => {
      shown.delete(keys);
      window.removeEventListener("keydown", pressed);
    };
  }, [keys]);
}

/** All keys that work now. */
export function Help({ onClose }) {
  const dialog = useRef(/** @type {any} */ (null));
  useEffect(() => dialog.current.showModal(), []);
  const keys = [...shown].flat();
  return html`
    <dialog ref=${dialog} onClose=${onClose} aria-label="Keys">
      <h2>Keys</h2>
      <dl class="keys">${keys.map(([key, does]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl>
      <form method="dialog"><button class="primary">Close</button></form>
    </dialog>
  `;
}
