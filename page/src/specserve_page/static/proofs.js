/**
 * What the conformance kit has proven of two plugins, by proofs.json, which `make pages` writes. It holds for the version
 * that was tested, so for plugins of another one nothing is proven.
 */

/** @typedef {{plugins: [string, string], test: string, saw: string}} Proof */
/** @typedef {{version: string, proofs: Proof[]}} Told */

export class Proofs {
  /** @param {Told} told */
  constructor({ version, proofs }) {
    this.version = version;
    this.found = new Map(proofs.map((proof) => [keyOf(...proof.plugins), proof]));
  }

  /**
   * @param {{name: string, version: string}} left
   * @param {{name: string, version: string}} right
   * @returns {Proof | null}
   */
  of(left, right) {
    const areTested = [left, right].every((plugin) => plugin.version === this.version);
    return (areTested ? this.found.get(keyOf(left.name, right.name)) : null) ?? null;
  }

  /** @param {Proof} proof */
  sentence(proof) {
    return `Proven by the conformance kit with version ${this.version}, test “${proof.test}”: ${proof.saw}.`;
  }
}

/** @param {string} left @param {string} right */
const keyOf = (left, right) => [left, right].sort().join(" ");
