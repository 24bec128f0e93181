/** The token: it comes in the fragment of the address, which no server sees, and leaves the address at once.
 *
 * It is kept in the tab's session storage, which ends with the tab and which no other port of this host reads.
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

export const forget = () => sessionStorage.removeItem(KEY);

/** Whether a text has a token in it. */
export const hasToken = (/** @type {string} */ text) => FORM.test(text);
