/**
 * Numbers of one answer. Everything here is a pure function of the answer.
 */

/** @typedef {import("./answer.js").Answer} Answer */

/** @typedef {{drafted: number, accepted: number}} Share of a drafter */

/**
 * @typedef {object} Measures null where it is not known yet
 * @property {number} numTokens
 * @property {number} numSteps
 * @property {number | null} tokensPerSecond after the first tokens: without the prompt
 * @property {number | null} acceptance accepted of the verified draft tokens, 0 to 1
 * @property {number | null} tokensPerStep
 * @property {number | null} firstMilliseconds until the first token came
 * @property {Map<string, Share>} drafters
 */

/**
 * @param {Answer} answer
 * @returns {Measures}
 */
export function measure(answer) {
  const drafters = shares(answer);
  const total = sumOf([...drafters.values()]);
  const seconds = answer.firstAt === null ? 0 : (answer.lastAt - answer.firstAt) / 1000;
  const numLater = answer.numTokens - answer.numFirst;
  const numSteps = answer.steps.length;
  return {
    numTokens: answer.numTokens,
    numSteps,
    tokensPerSecond: seconds > 0 && numLater > 0 ? numLater / seconds : null,
    acceptance: total.drafted > 0 ? total.accepted / total.drafted : null,
    tokensPerStep: numSteps > 0 ? answer.numTokens / numSteps : null,
    firstMilliseconds: answer.firstAt === null ? null : answer.firstAt - answer.startedAt,
    drafters,
  };
}

/**
 * @param {Answer} answer
 * @returns {Map<string, Share>}
 */
function shares(answer) {
  const found = new Map();
  for (const node of answer.steps.flatMap((step) => step.draft)) {
    const name = node.drafter ?? "unknown";
    const share = found.get(name) ?? { drafted: 0, accepted: 0 };
    found.set(name, { drafted: share.drafted + 1, accepted: share.accepted + (node.accepted ? 1 : 0) });
  }
  return found;
}

/** @param {Share[]} all */
const sumOf = (all) => ({
  drafted: all.reduce((sum, share) => sum + share.drafted, 0),
  accepted: all.reduce((sum, share) => sum + share.accepted, 0),
});

/** @param {number | null} value @param {number} [digits] */
export const number = (value, digits = 0) => (value === null ? "–" : value.toFixed(digits));

/** @param {number | null} share 0 to 1 */
export const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);
