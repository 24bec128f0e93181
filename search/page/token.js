/** The token: it comes in the fragment of the address, which no server sees, and leaves the address at once.
 *
 * It is kept in the tab's session storage, which ends with the tab and which no other port of this host reads. A tab
 * that is opened from a link of this one starts without it, and is given it.
 */

const FORM = /hps_[0-9a-f]{8}_[A-Za-z0-9_-]{43}/;
const KEY = `hpsearch token ${location.pathname}`;

/** The token of the address, of what was pasted (a link or the token itself), or of this tab; null for none. */
export function taken(/** @type {string | null} */ pasted = null) {
  const given = /(?:^#|&)token=([^&]*)/.exec(location.hash);
  if (given) history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  const found = FORM.exec(pasted ?? given?.[1] ?? "");
  if (found) sessionStorage.setItem(KEY, found[0]);
  return found ? found[0] : sessionStorage.getItem(KEY);
}

const PATIENCE = 10_000; // ms until a tab that was opened has asked
const ASKS = `${KEY} for a new tab`;

/** Give the token to the tabs that are opened from links of this one; returns what ends that. */
export function share(/** @type {string} */ token) {
  if (!window.BroadcastChannel) return () => {};
  const channel = new BroadcastChannel(ASKS);
  let expected = []; // until when, of each tab that was opened
  const opens = (/** @type {any} */ event) => {
    const menu = event.type === "contextmenu";
    const elsewhere = menu || event.button === 1 || event.ctrlKey || event.metaKey || event.shiftKey;
    if (elsewhere && event.target.closest?.('a[href^="#"]')) expected.push(Date.now() + PATIENCE);
  };
  channel.onmessage = ({ data: { ask } }) => {
    expected = expected.filter((until) => until > Date.now());
    if (ask && expected.pop()) channel.postMessage({ to: ask, token });
  };
  const kinds = ["click", "auxclick", "contextmenu"];
  for (const kind of kinds) document.addEventListener(kind, opens, true);
  return () => {
    channel.close();
    for (const kind of kinds) document.removeEventListener(kind, opens, true);
  };
}

/** Ask the tab that has opened this one for its token; returns what ends the waiting. */
export function ask(/** @type {(token: string) => void} */ given) {
  if (!window.BroadcastChannel) return () => {};
  const channel = new BroadcastChannel(ASKS);
  const name = `${Date.now()} ${Math.random()}`;
  channel.onmessage = ({ data }) => {
    if (data.to !== name) return;
    sessionStorage.setItem(KEY, data.token);
    given(data.token);
  };
  channel.postMessage({ ask: name });
  return () => channel.close();
}

export const forget = () => sessionStorage.removeItem(KEY);

/** Whether a text has a token in it. */
export const hasToken = (/** @type {string} */ text) => FORM.test(text);
