/** Who wants to be told. */

export class Listeners {
  #all = new Set();

  add(/** @type {Function} */ hear) {
    this.#all.add(hear);
    return () => this.#all.delete(hear);
  }

  tell(/** @type {any} */ ...what) {
    for (const hear of [...this.#all]) hear(...what);
  }
}
