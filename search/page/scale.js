/** Numbers on an axis, however large: the difference of two may be more than a number can be. */

const FAR = Number.MAX_VALUE / 4;

/** A number that a drawing can place: what lies farther out is at the end. */
export const placed = (/** @type {number} */ value) => Math.max(-FAR, Math.min(FAR, value));

/** Where a value is between two others, as a share of the way. */
export const share = (/** @type {number} */ value, /** @type {number} */ low, /** @type {number} */ high) => (value / 2 - low / 2) / (high / 2 - low / 2 || 1);
