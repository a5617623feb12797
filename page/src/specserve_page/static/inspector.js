/**
 * The card beside a token: who guessed it, what was drafted in its step, how likely each draft token was thought to
 * survive, what was rejected, why no more was accepted.
 */

import { colourOf } from "./colours.js";
import { byId, element } from "./dom.js";
import { depthsOf, inTreeOrder } from "./draft_tree.js";
import { percent } from "./measure.js";
import { sentenceOf } from "./tokens.js";
import { quoted } from "./visible.js";

/** @typedef {import("./tokens.js").Place} Place */
/** @typedef {import("./answer.js").Node} Node */
/** @typedef {import("./answer.js").Step} Step */

const MAX_NODES = 40;
const GAP = 8;
const STOPPED = new Map([
  ["rejected", "the next draft token was rejected"],
  ["draft_ended", "the whole draft was accepted"],
  ["no_draft", "there was no draft"],
  ["finished", "the answer ended"],
]);

/**
 * @param {Place | null} place
 * @param {boolean} isKeyboard then it is read out, too
 */
export function inspect(place, isKeyboard) {
  const card = byId("inspector");
  card.hidden = place === null;
  if (place === null) return;
  card.replaceChildren(...contents(place));
  moveBeside(card, place.element.getBoundingClientRect());
  if (isKeyboard) byId("announcer").textContent = sentenceOf(place);
}

/** @param {Place} place */
function contents({ answer, step, place }) {
  const told = answer.steps[step];
  const token = told.tokens[place];
  const by = token.drafter === null ? "the model’s own" : `guessed by ${token.drafter}`;
  return [
    element(
      "p",
      { class: "token-head" },
      element("span", { class: `swatch ${colourOf(token.drafter)}` }),
      element("code", {}, quoted(token.text)),
      element("span", { class: "faint" }, `id ${token.id}`),
    ),
    element("p", {}, by),
    element("p", { class: "faint" }, stepLine(told, step)),
    told.draft.length > 0 ? draftTree(told.draft) : null,
    told.reason === null ? null : element("p", { class: "reason" }, told.reason),
  ].filter((part) => part !== null);
}

/** @param {Step} told @param {number} step */
function stepLine(told, step) {
  const time = told.milliseconds === null ? "" : ` in ${told.milliseconds.toFixed(1)} ms`;
  const tokens = `${told.tokens.length} token${told.tokens.length === 1 ? "" : "s"}${time}`;
  return `step ${step + 1}: ${tokens}; ${STOPPED.get(told.stopped) ?? told.stopped.replaceAll("_", " ")}`;
}

/** @param {Node[]} draft */
function draftTree(draft) {
  const depths = depthsOf(draft);
  const lines = inTreeOrder(draft).slice(0, MAX_NODES).map((index) => {
    const node = draft[index];
    const line = element(
      "li",
      { class: node.accepted ? "accepted" : "rejected" },
      element("span", { class: "mark", "aria-label": node.accepted ? "accepted" : "rejected" }, node.accepted ? "✓" : "✗"),
      element("span", { class: `token ${colourOf(node.drafter)}` }, quoted(node.text)),
      element("span", { class: "faint" }, node.survival === null ? "" : percent(node.survival)),
    );
    line.style.paddingInlineStart = `${Math.min(depths[index], 12) * 12}px`;
    return line;
  });
  const rest = draft.length - lines.length;
  if (rest > 0) lines.push(element("li", { class: "faint" }, `and ${rest} more`));
  const head = element("p", { class: "faint" }, "verified draft, with its chance to survive:");
  return element("div", {}, head, element("ul", { class: "draft" }, ...lines));
}

/**
 * Below the token, or above it where there is no room; a narrow screen has it at its lower edge (style.css).
 * @param {HTMLElement} card
 * @param {DOMRect} token
 */
function moveBeside(card, token) {
  const { width, height } = card.getBoundingClientRect();
  const below = token.bottom + GAP;
  const top = below + height > innerHeight ? Math.max(GAP, token.top - GAP - height) : below;
  card.style.top = `${top}px`;
  card.style.left = `${Math.max(GAP, Math.min(token.left, innerWidth - width - GAP))}px`;
}
