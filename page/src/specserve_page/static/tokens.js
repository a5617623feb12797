/**
 * The tokens of an answer, each in the colour of its drafter. The arrow keys go from token to token; what is known of
 * the one that is pointed at or reached is told to `inspect`.
 */

import { colourOf } from "./colours.js";
import { element } from "./dom.js";
import { Growing } from "./growing.js";
import { Pieces } from "./pieces.js";
import { quoted, visible } from "./visible.js";

/** @typedef {import("./answer.js").Answer} Answer */
/** @typedef {{answer: Answer, step: number, place: number, element: Element}} Place of a token */

const KEYS = "arrow keys go from token to token";

export class TokenView {
  /**
   * @param {string} label
   * @param {(place: Place | null, isKeyboard: boolean) => void} inspect null: none any more
   */
  constructor(label, inspect) {
    this.label = label;
    this.inspect = inspect;
    /** @type {Place[]} */
    this.places = [];
    this.current = -1;
    /** @type {Map<number, string>} sentences by the index of a token, which may not be shown yet */
    this.marks = new Map();
    this.pieces = new Pieces();
    this.root = element("div", {
      class: "tokens",
      tabindex: "0",
      role: "group",
      "aria-label": `${label}; ${KEYS}`,
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.onKey(event),
      onpointerover: (/** @type {PointerEvent} */ event) => this.onPointer(event),
      onclick: (/** @type {PointerEvent} */ event) => this.onPointer(event),
      onpointerleave: () => this.leave(),
      onblur: () => this.leave(),
    });
    /** @type {Answer | null} */
    this.answer = null;
    this.steps = new Growing(this.root, (step) => this.stepOf(/** @type {Answer} */ (this.answer), step), () => this.count());
  }

  /**
   * Shows what is new in it. Without steps, which a server tells only where it is asked, its text.
   * @param {Answer} answer
   */
  update(answer) {
    if (answer.steps.length === 0) {
      this.root.textContent = visible(answer.reasoning + answer.content);
      return;
    }
    if (this.answer === null) this.root.replaceChildren();
    this.answer = answer;
    this.steps.growTo(answer.steps.length);
  }

  count() {
    this.root.setAttribute("aria-label", `${this.label}, ${this.places.length} tokens; ${KEYS}`);
  }

  /** @param {Answer} answer @param {number} step */
  stepOf(answer, step) {
    const shown = answer.steps[step].tokens.map((token, place) => {
      const text = visible(this.pieces.next(token.text));
      const made = element("span", { class: `token ${colourOf(token.drafter)}` }, text === "" ? "·" : text);
      made.dataset.index = String(this.places.length);
      this.places.push({ answer, step, place, element: made });
      this.showMark(this.places.length - 1);
      return made;
    });
    return element("span", { class: "step" }, ...shown);
  }

  /** @param {number} index of a token @param {string} sentence */
  mark(index, sentence) {
    this.marks.set(index, sentence);
    this.showMark(index);
  }

  /** @param {number} index */
  showMark(index) {
    const [place, sentence] = [this.places[index], this.marks.get(index)];
    if (place === undefined || sentence === undefined) return;
    place.element.classList.add("different");
    place.element.setAttribute("title", sentence);
  }

  /** @param {number} step */
  showStep(step) {
    const last = this.places.findLastIndex((place) => place.step === step);
    if (last >= 0) this.select(last, false);
  }

  /** @param {number} index @param {boolean} isKeyboard */
  select(index, isKeyboard) {
    this.places[this.current]?.element.classList.remove("current");
    this.current = index;
    const place = this.places[index];
    place.element.classList.add("current");
    if (isKeyboard) place.element.scrollIntoView({ block: "nearest" });
    this.inspect(place, isKeyboard);
  }

  leave() {
    this.places[this.current]?.element.classList.remove("current");
    this.inspect(null, false);
  }

  /** @param {Event} event */
  onPointer(event) {
    const found = /** @type {Element} */ (event.target).closest("[data-index]");
    if (found instanceof HTMLElement) this.select(Number(found.dataset.index), false);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const last = this.places.length - 1;
    const targets = { ArrowRight: this.current + 1, ArrowLeft: this.current - 1, Home: 0, End: last };
    const target = targets[/** @type {keyof typeof targets} */ (event.key)];
    if (event.key === "Escape") this.leave();
    if (target === undefined || last < 0) return;
    event.preventDefault();
    this.select(Math.min(Math.max(target, 0), last), true);
  }
}

/**
 * In one sentence, for those who do not see the colours.
 * @param {Place} place
 */
export function sentenceOf({ answer, step, place }) {
  const { text, drafter } = answer.steps[step].tokens[place];
  const rejected = answer.steps[step].draft.filter((node) => !node.accepted).length;
  const by = drafter === null ? "the model’s own" : `guessed by ${drafter}`;
  return `${quoted(text)}, ${by}; step ${step + 1}, ${rejected} draft tokens rejected`;
}
