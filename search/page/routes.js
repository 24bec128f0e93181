/** Addresses within the page: what follows the # of the document's own. */

/** Lead to an address: `/studies/lora?tab=trials`. */
export function go(address) {
  location.hash = address;
}

/** The address of a screen about a study, from its parts. */
export const href = (...parts) => `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;

/** The path of a route about a study, after v1/. */
export const ofStudy = (study, ...parts) => ["studies", study, ...parts].map((part) => encodeURIComponent(part)).join("/");

/** The screen of an address, with its parameters and query. */
export function found(screens, /** @type {string} */ address) {
  const [path, asked = ""] = address.replace(/^\//, "").split("?");
  const parts = path === "" ? [] : path.split("/");
  const query = Object.fromEntries(new URLSearchParams(asked));
  for (const screen of screens) {
    const params = matched(screen.path === "" ? [] : screen.path.split("/"), parts);
    if (params) return { screen, params, query };
  }
  return { screen: null, params: {}, query };
}

function matched(form, parts) {
  if (form.length !== parts.length) return null;
  const params = {};
  for (const [index, part] of parts.entries()) {
    let text;
    try {
      text = decodeURIComponent(part);
    } catch {
      return null;
    }
    if (form[index].startsWith(":")) params[form[index].slice(1)] = text;
    else if (form[index] !== text) return null;
  }
  return params;
}
