/**
 * A request and its answer on the page: tokens or text, tool calls, how it ended, its snippets, its error.
 */

import { copyButtons } from "./copying.js";
import { element } from "./dom.js";
import { inspect } from "./inspector.js";
import { measure, number, percent } from "./measure.js";
import { announce, errorBox, pointAtField } from "./notices.js";
import { run } from "./run.js";
import { TokenView } from "./tokens.js";
import { visible } from "./visible.js";

/** @typedef {import("./answer.js").Answer} Answer */
/** @typedef {import("./run.js").Running} Running */

const ENDS = new Map([
  ["stop", "ended by itself"],
  ["length", "ended at max_tokens"],
  ["tool_calls", "calls tools"],
]);

export class Turn {
  /**
   * @param {"chat" | "completion"} kind
   * @param {object} body
   * @param {(answer: Answer) => void} onGrowth
   */
  constructor(kind, body, onGrowth) {
    this.kind = kind;
    this.body = body;
    this.onGrowth = onGrowth;
    this.tokens = new TokenView("Answer", inspect);
    this.calls = element("div", { class: "calls" });
    this.text = element("div", { class: "text", hidden: true });
    this.foot = element("div", { class: "foot" });
    this.root = element("div", { class: "turn", "aria-busy": "true" }, this.tokens.root, this.text, this.calls, this.foot);
    /** @type {Running | null} */
    this.running = null;
  }

  /** @returns {Promise<Answer>} when it has ended, also by an error, which it shows */
  async run() {
    this.running = run(this.kind, this.body, (answer) => this.show(answer));
    const error = await this.running.ended;
    this.root.removeAttribute("aria-busy");
    this.finish(this.running.answer, error);
    return this.running.answer;
  }

  stop() {
    this.running?.stop();
  }

  /** @param {Answer} answer */
  show(answer) {
    this.tokens.update(answer);
    this.text.textContent = visible(answer.content);
    this.calls.replaceChildren(
      ...answer.calls.map((call) => element("code", {}, visible(`${call.name}(${call.arguments})`))),
    );
    this.onGrowth(answer);
  }

  /** @param {Answer} answer @param {unknown} error */
  finish(answer, error) {
    if (error !== null) {
      this.root.append(errorBox(error));
      pointAtField(error);
    }
    const line = summary(answer);
    this.foot.append(element("span", { class: "faint" }, line), this.textSwitch(answer), ...copyButtons(this));
    if (error === null) announce(`The answer has ended. ${line}`);
  }

  /** Tokens show what the engine did, the text what clients get: without reasoning, tags and stop strings. @param {Answer} answer */
  textSwitch(answer) {
    const button = element("button", { type: "button", class: "small", "aria-pressed": "false" }, "As text");
    button.hidden = answer.steps.length === 0;
    button.addEventListener("click", () => {
      this.text.hidden = !this.text.hidden;
      this.tokens.root.hidden = !this.text.hidden;
      button.setAttribute("aria-pressed", String(!this.text.hidden));
    });
    return button;
  }
}

/** @param {Answer} answer */
function summary(answer) {
  const { numTokens, tokensPerSecond, acceptance } = measure(answer);
  const end = answer.finishReason === null ? "stopped" : (ENDS.get(answer.finishReason) ?? answer.finishReason);
  const speed = tokensPerSecond === null ? "" : `, ${number(tokensPerSecond)} tokens/s`;
  const drafts = acceptance === null ? "" : `, ${percent(acceptance)} of drafts accepted`;
  return `${numTokens} tokens${speed}${drafts}; ${end}`;
}
