/**
 * The steps of an answer on a line of time: a column for each, as wide as it took, as high as it was verified. From below:
 * accepted draft tokens in the colours of their drafters, the model's own token, and hollow what was rejected.
 */

import { colourOf } from "./colours.js";
import { element, svg } from "./dom.js";
import { Growing } from "./growing.js";

/** @typedef {import("./answer.js").Answer} Answer */
/** @typedef {import("./answer.js").Step} Step */

const MIN_WIDTH = 5;
const MIN_HEIGHT = 8;
const FILLED = 0.84;

export class Timeline {
  /** @param {(step: number) => void} onStep a column was pointed at */
  constructor(onStep) {
    this.drawing = svg("svg", { preserveAspectRatio: "none", role: "img", "aria-label": "No steps yet" });
    this.root = element("div", { class: "timeline", tabindex: "0", role: "group", "aria-label": "Steps" }, this.drawing);
    this.drawing.addEventListener("pointerover", (event) => {
      const column = /** @type {Element} */ (event.target).closest("g");
      if (column !== null) onStep(Number(column.dataset.step));
    });
    this.time = 0;
    this.span = 0;
    this.tallest = MIN_HEIGHT;
    /** @type {Step[]} */
    this.steps = [];
    this.columns = new Growing(this.drawing, (index) => this.column(this.steps[index], index), () => this.fit());
  }

  /**
   * @param {Answer} answer
   * @param {number} [span] milliseconds that the whole line shows: two lines of one span can be compared. Without, it
   *   grows, so that each column can be pointed at
   */
  update(answer, span = 0) {
    this.steps = answer.steps;
    this.span = span;
    this.columns.growTo(answer.steps.length);
  }

  /** Shows all columns that there are. */
  fit() {
    const isAtEnd = this.root.scrollLeft + this.root.clientWidth >= this.root.scrollWidth - 2;
    const numSteps = this.columns.length;
    const width = Math.max(this.time, this.span, 1);
    this.drawing.setAttribute("viewBox", `0 ${-this.tallest} ${width} ${this.tallest}`);
    this.drawing.style.minWidth = this.span > 0 ? "0" : `${numSteps * MIN_WIDTH}px`;
    this.drawing.setAttribute("aria-label", `${numSteps} steps in ${Math.round(this.time)} milliseconds`);
    if (isAtEnd) this.root.scrollLeft = this.root.scrollWidth;
  }

  /** @param {Step} step @param {number} index */
  column(step, index) {
    const duration = durationOf(step);
    const cells = [
      ...step.tokens.map((token) => colourOf(token.drafter)),
      ...step.draft.filter((node) => !node.accepted).map((node) => `hollow ${colourOf(node.drafter)}`),
    ];
    const column = svg("g", { class: "column" });
    column.dataset.step = String(index);
    column.append(svg("rect", { class: "background", x: this.time, y: -1000, width: duration, height: 1000 }));
    cells.forEach((kind, height) => {
      const place = { x: this.time + duration * 0.08, y: -height - FILLED };
      column.append(svg("rect", { class: kind, ...place, width: duration * FILLED, height: FILLED }));
    });
    this.tallest = Math.max(this.tallest, cells.length);
    this.time += duration;
    return column;
  }
}

/** Milliseconds; 1 where it is not known. @param {Step} step */
export const durationOf = (step) => Math.max(step.milliseconds ?? 1, 0.01);
