/** The page: which screen is shown, and with which token.
 *
 * A screen is a module in `screens/` that exports
 *   path    "studies/:study/trials/:trial": where it is, after #/
 *   title   what the tab of the browser says, from the parameters
 *   Screen  a component, which is given {params, query, go}
 *   nav     optional: {label, key}, an entry of the navigation, and the key that leads there
 *   live    optional: true where it needs a server, so that a report does not have it
 */

import { html, render, useEffect, useMemo, useRef, useState } from "hpsearch/html.js";
import { Source, useStatus } from "hpsearch/data.js";
import { FrozenSource, LiveSource } from "hpsearch/source.js";
import { ask, forget, share, taken } from "hpsearch/token.js";
import { Freshness } from "hpsearch/parts/freshness.js";
import { Help, useKeys } from "hpsearch/parts/keys.js";
import { PickedBar } from "hpsearch/parts/picked.js";
import { TokenForm } from "hpsearch/parts/token-form.js";
import { found, go } from "hpsearch/routes.js";
import { SCREENS } from "hpsearch/screens/all.js";

/** The present address, after the #. */
function useAddress() {
  const [address, set] = useState(location.hash.slice(1));
  useEffect(() => {
    const changed = () => set(location.hash.slice(1));
    window.addEventListener("hashchange", changed);
    changed(); // it may be another one since the first drawing
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return address;
}

/** The entries of the navigation: [label, address, whether it is where we are]. */
function entries(source, address, screen) {
  if (source.frozen) return source.places.map(([label, to]) => [label, to, address.replace(/^\//, "") === to]);
  return SCREENS.filter((each) => each.nav).map((each) => [each.nav.label, each.path, each === screen]);
}

function Page({ source, onToken }) {
  const address = useAddress() || (source.frozen ? `/${source.first}` : "");
  const { screen, params, query } = found(source.frozen ? SCREENS.filter((each) => !each.live) : SCREENS, address);
  const main = useRef(/** @type {any} */ (null));
  const place = screen ? address.split("?")[0] : "";
  const title = screen ? screen.title(params) : "Not found";
  useEffect(() => {
    document.title = title === "hpsearch" ? title : `${title} · hpsearch`;
  }, [title]);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
    window.scrollTo(0, 0);
  }, [place]);
  const [help, setHelp] = useState(false);
  const keys = useMemo(
    () => [
      ...SCREENS.filter((each) => each.nav && !source.frozen).map(({ nav, path }) => [nav.key, nav.label, () => go(`/${path}`)]),
      ["?", "Keys", () => setHelp((shown) => !shown)],
    ],
    [],
  );
  useKeys(keys);
  return html`
    <${Source.Provider} value=${source}>
      <header class="top">
        <button type="button" class="skip" onClick=${() => main.current.focus()}>Skip to the content</button>
        <a class="brand" href="#/"><span class="mark" aria-hidden="true"></span>hpsearch</a>
        <nav aria-label="Screens">
          ${entries(source, address, screen).map(
            ([label, to, here]) => html`<a href=${`#/${to}`} aria-current=${here ? "page" : null}>${label}</a>`,
          )}
        </nav>
        <${Freshness} />
        <button class="quiet" type="button" title="Keys (?)" aria-label="Keys" onClick=${() => setHelp(true)}>?</button>
      </header>
      <main ref=${main} tabindex="-1">
        <${Gate} onToken=${onToken}>
          ${screen
            ? html`<${screen.Screen} key=${place} params=${params} query=${query} go=${go} />`
            : html`<h1>There is nothing here</h1><p><a href="#/">Everything that runs</a></p>`}
        <//>
      </main>
      ${place !== "/compare" && html`<${PickedBar} />`}
      ${help && html`<${Help} keys=${keys} onClose=${() => setHelp(false)} />`}
    <//>
  `;
}

/** The form for a token in place of a screen that would need one. */
function Gate({ onToken, children }) {
  const status = useStatus();
  return status.state === "denied" ? html`<${TokenForm} why=${status.why} onToken=${onToken} />` : children;
}

function App({ frozen }) {
  const [token, setToken] = useState(frozen ? null : taken());
  const source = useMemo(
    () => (frozen ? new FrozenSource(frozen) : token === null ? null : new LiveSource(token)),
    [token],
  );
  useEffect(() => {
    source?.start();
    return () => source?.stop();
  }, [source]);
  useEffect(() => {
    if (frozen) return undefined;
    return token === null ? ask(setToken) : share(token);
  }, [token]);
  useEffect(() => {
    const given = () => {
      const other = taken();
      if (other !== null) setToken(other);
    };
    window.addEventListener("hashchange", given);
    return () => window.removeEventListener("hashchange", given);
  }, []);
  const onToken = (text) => {
    forget();
    setToken(taken(text));
  };
  if (source === null) {
    return html`<header class="top"><span class="brand"><span class="mark" aria-hidden="true"></span>hpsearch</span></header>
      <main><${TokenForm} why="" onToken=${onToken} /></main>`;
  }
  return html`<${Page} key=${token} source=${source} onToken=${onToken} />`;
}

/** What a report holds: JSON, as gzip in base64. */
async function unpacked(/** @type {string} */ text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

const held = document.getElementById("frozen");
const frozen = held && (await unpacked(held.textContent ?? ""));
render(
  html`<${App} frozen=${frozen} />`,
  /** @type {any} */ (document.getElementById("app")),
);
