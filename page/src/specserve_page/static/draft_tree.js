/**
 * The order and the depths of a draft's nodes. A draft is a list in which a parent comes before its children.
 */

/** @typedef {import("./answer.js").Node} Node */

/** @param {Node[]} draft @returns {number[]} 0 for the first token of a draft */
export function depthsOf(draft) {
  /** @type {number[]} */
  const depths = [];
  for (const { parent } of draft) depths.push(parent === null ? 0 : (depths[parent] ?? 0) + 1);
  return depths;
}

/** Each node's children follow it. @param {Node[]} draft @returns {number[]} */
export function inTreeOrder(draft) {
  /** @type {Map<number | null, number[]>} */
  const children = new Map();
  draft.forEach(({ parent }, index) => children.set(parent, [...(children.get(parent) ?? []), index]));
  const order = [];
  const waiting = [...(children.get(null) ?? [])].reverse();
  while (waiting.length > 0) {
    const index = /** @type {number} */ (waiting.pop());
    order.push(index);
    waiting.push(...[...(children.get(index) ?? [])].reverse());
  }
  return order;
}
