/** Downloads: a link that works once, asked for when it is pressed. */

import { html, useState } from "hpsearch/html.js";
import { useSource } from "hpsearch/data.js";

/** @param {{path: string, children: any, primary?: boolean}} props `path` is that of a route, after v1/ */
export function Download({ path, children, primary = false, label = null }) {
  const source = useSource();
  const [problem, set] = useState("");
  if (source.frozen) return null;
  const load = async () => {
    set("");
    try {
      const link = document.createElement("a");
      link.href = await source.ticket(path);
      link.download = "";
      link.click();
    } catch (error) {
      set(/** @type {any} */ (error).message);
    }
  };
  return html`<button type="button" class=${primary ? "primary" : ""} aria-label=${label} onClick=${load}>${children}</button>
    <span class="bad" role="alert">${problem}</span>`;
}
