/**
 * A text and how the model goes on.
 */

import { completionBody } from "./body.js";
import { Composer } from "./composer.js";
import { byId } from "./dom.js";
import { typedSettings } from "./settings.js";
import { Turn } from "./turn.js";

/** @typedef {import("./answer.js").Answer} Answer */

/** @param {(turn: Turn) => (answer: Answer) => void} watched has the instruments show a turn */
export function startCompletion(watched) {
  const place = byId("completion-answer");
  new Composer(byId("completion-form"), place, (prompt) => {
    const turn = new Turn("completion", completionBody(typedSettings(), prompt), (answer) => show(answer));
    const show = watched(turn);
    place.replaceChildren(turn.root);
    return turn;
  });
}
