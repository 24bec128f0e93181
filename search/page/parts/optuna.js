/** optuna-dashboard in a tab of its own, which neither knows this one nor has its token: a cookie opens it. */

import { html, useState } from "hpsearch/html.js";
import { useSource } from "hpsearch/data.js";

/** @param {{study: string}} props what it shows first */
export function OptunaDashboard({ study }) {
  const source = useSource();
  const [problem, set] = useState("");
  if (source.frozen) return null;
  const open = async () => {
    set("");
    try {
      window.open(await source.visit(study), "_blank", "noopener");
    } catch (error) {
      set(/** @type {any} */ (error).message);
    }
  };
  return html`<button type="button" class="quiet" title="The study in optuna-dashboard, in a new tab" onClick=${open}>optuna-dashboard</button>
    <span class="bad" role="alert">${problem}</span>`;
}
