/**
 * Two answers, token by token: how many are equal from the beginning, and where the first difference is.
 */

/** @typedef {import("./answer.js").Token} Token */

/**
 * @param {Token[]} left
 * @param {Token[]} right
 * @returns {number} tokens that both begin with
 */
export function numEqual(left, right) {
  const shorter = Math.min(left.length, right.length);
  for (let i = 0; i < shorter; i++) if (left[i].id !== right[i].id) return i;
  return shorter;
}

/**
 * For servers that tell no tokens.
 * @param {string} left
 * @param {string} right
 */
export const comparedTexts = (left, right) =>
  left === right
    ? { place: 0, isEqual: true, sentence: "The same text." }
    : { place: 0, isEqual: false, sentence: "Different texts." };

/**
 * @param {Token[]} left
 * @param {Token[]} right
 * @param {boolean} areComplete no more tokens come
 * @returns {{place: number, sentence: string, isEqual: boolean} | null} null: no difference so far, and not complete
 */
export function comparison(left, right, areComplete) {
  const place = numEqual(left, right);
  const differ = place < Math.min(left.length, right.length);
  if (!differ && !areComplete) return null;
  if (!differ && left.length === right.length) {
    return { place, isEqual: true, sentence: `The same text: all ${place} tokens are equal.` };
  }
  const where = `the first difference is at token ${place + 1}`;
  return { place, isEqual: false, sentence: `Different texts: ${place} tokens are equal, ${where}.` };
}
