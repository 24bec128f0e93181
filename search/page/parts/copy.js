/** A button that copies a text, and a line of a shell that has one. */

import { html, useEffect, useRef, useState } from "hpsearch/html.js";

const SHOWN = 2000; // ms that it says it has been copied

export function Copy({ text, words = "Copy" }) {
  const [said, set] = useState("");
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    clearTimeout(timer.current);
    set((await copied(text)) ? "Copied" : "Select it and copy it by hand");
    timer.current = setTimeout(() => set(""), SHOWN);
  };
  return html`<button type="button" class="quiet copy" onClick=${copy}><span role="status">${said || words}</span></button>`;
}

/** A command line to copy. */
export const Command = ({ line }) => html`<div class="command"><code tabindex="0">${line}</code><${Copy} text=${line} /></div>`;

/** Whether a text was copied: pages that came by plain HTTP from another machine have only the old way. */
async function copied(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false; // the browser's user does not allow it
    }
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
