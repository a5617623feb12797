/**
 * One request from its body to its end: streamed into an answer, shown as it grows, stopped by `stop`.
 */

import { Answer } from "./answer.js";
import { isAbort, streamed } from "./api.js";
import { streamedBody } from "./body.js";
import { oncePerFrame } from "./dom.js";

/**
 * @typedef {object} Running
 * @property {Answer} answer
 * @property {() => void} stop
 * @property {Promise<unknown>} ended the error that ended it, or null; it is never rejected
 */

export const PATHS = { chat: "v1/chat/completions", completion: "v1/completions" };

/**
 * @param {keyof typeof PATHS} kind
 * @param {object} body
 * @param {(answer: Answer) => void} show called at most once for each frame, and once at the end
 * @returns {Running}
 */
export function run(kind, body, show) {
  const answer = new Answer(performance.now());
  const aborting = new AbortController();
  const showSoon = oncePerFrame(() => show(answer));

  async function read() {
    try {
      for await (const chunk of streamed(PATHS[kind], streamedBody(body), aborting.signal)) {
        answer.add(chunk, performance.now());
        showSoon();
      }
      return null;
    } catch (error) {
      return isAbort(error) ? null : error;
    } finally {
      show(answer);
    }
  }

  return { answer, stop: () => aborting.abort(), ended: read() };
}
