/**
 * What is measured of one answer while it grows: readouts, a legend of its drafters, its steps.
 */

import { colourOf, knownDrafters } from "./colours.js";
import { element } from "./dom.js";
import { measure, number, percent } from "./measure.js";
import { Timeline } from "./timeline.js";

/** @typedef {import("./answer.js").Answer} Answer */
/** @typedef {import("./measure.js").Measures} Measures */

/** @type {[string, string, (measures: Measures) => string][]} name, unit, value */
const READOUTS = [
  ["Speed", "tokens/s", (m) => number(m.tokensPerSecond, m.tokensPerSecond !== null && m.tokensPerSecond < 100 ? 1 : 0)],
  ["Drafts accepted", "", (m) => percent(m.acceptance)],
  ["Tokens per step", "", (m) => number(m.tokensPerStep, 2)],
  ["First token", "ms", (m) => number(m.firstMilliseconds)],
  ["Tokens", "", (m) => String(m.numTokens)],
  ["Steps", "", (m) => String(m.numSteps)],
];

export class Instruments {
  /** @param {(step: number) => void} onStep a step was pointed at */
  constructor(onStep) {
    this.timeline = new Timeline(onStep);
    this.values = READOUTS.map(() => element("b", {}, "–"));
    const readouts = READOUTS.map(([name, unit], i) =>
      element(
        "div",
        { class: "readout" },
        element("dt", {}, name),
        element("dd", {}, this.values[i], unit ? element("span", { class: "unit" }, unit) : null),
      ),
    );
    this.legend = element("ul", { class: "legend", "aria-label": "Colours of the drafters" });
    this.root = element(
      "div",
      { class: "instruments" },
      element("dl", { class: "readouts" }, ...readouts),
      this.timeline.root,
      this.legend,
    );
    this.showLegend(new Map());
  }

  /** @param {Answer} answer @param {number} [span] see Timeline */
  update(answer, span) {
    const measures = measure(answer);
    READOUTS.forEach(([, , valueOf], i) => (this.values[i].textContent = valueOf(measures)));
    this.timeline.update(answer, span);
    this.showLegend(measures.drafters);
  }

  /** @param {Measures["drafters"]} drafters */
  showLegend(drafters) {
    const names = [...new Set([...knownDrafters(), ...drafters.keys()])];
    const lines = names.map((name) => {
      const share = drafters.get(name);
      const counts = share ? `${share.accepted} of ${share.drafted}` : "";
      return legendLine(colourOf(name), name, counts);
    });
    this.legend.replaceChildren(
      ...lines,
      legendLine("own", "the model itself", ""),
      legendLine("hollow", "rejected", ""),
    );
  }
}

/** @param {string} colour @param {string} name @param {string} counts */
const legendLine = (colour, name, counts) =>
  element(
    "li",
    {},
    element("span", { class: `swatch ${colour}` }),
    name,
    counts ? element("span", { class: "faint" }, counts) : null,
  );
