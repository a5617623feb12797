/**
 * A colour for each drafter, the same everywhere on the page: the numbers of the classes d0 to d5 in style.css, each of
 * which has an underline of its own, too. A drafter keeps the number that it got first.
 */

const NUM_COLOURS = 6;
/** @type {Map<string, number>} */
const numbers = new Map();

/**
 * @param {string | null} drafter null: the model's own token
 * @returns {string} a class
 */
export function colourOf(drafter) {
  if (drafter === null) return "own";
  if (!numbers.has(drafter)) numbers.set(drafter, numbers.size % NUM_COLOURS);
  return `d${numbers.get(drafter)}`;
}

/** @param {string[]} drafters in the order in which the server names them */
export function reserveColours(drafters) {
  drafters.forEach(colourOf);
}

/** @returns {string[]} */
export const knownDrafters = () => [...numbers.keys()];
