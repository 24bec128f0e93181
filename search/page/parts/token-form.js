/** Asks for a token, where none came with the address or the one that did opens nothing. */

import { html, useId, useState } from "hpsearch/html.js";
import { hasToken } from "hpsearch/token.js";

export function TokenForm({ why, onToken }) {
  const [text, set] = useState("");
  const [wrong, setWrong] = useState("");
  const id = useId();
  const given = (event) => {
    event.preventDefault();
    if (hasToken(text)) onToken(text);
    else setWrong("A token has the form hps_… with 43 characters after the second underscore.");
  };
  const said = wrong || (why && `This server says: ${why}.`);
  return html`
    <section class="card gate">
      <h1>A token opens this page</h1>
      <p><code>hpsearch serve</code> prints a link with one; <code>hpsearch token create NAME --scope read</code> makes
        one for others. It stays in this tab.</p>
      <form onSubmit=${given}>
        <label for=${id}>Token, or the whole link</label>
        <div class="row">
          <input id=${id} type="password" autocomplete="off" spellcheck="false" value=${text} aria-invalid=${said ? "true" : null}
            aria-describedby=${`${id}-said`} onInput=${(event) => set(event.target.value)} />
          <button type="submit" class="primary">Open</button>
        </div>
        <p id=${`${id}-said`} role="alert" class="bad">${said}</p>
      </form>
    </section>
  `;
}
