/**
 * The same request twice, with drafts and without: both answers side by side, compared token by token.
 *
 * Each has a cache salt of its own, so that neither finds the other's prompt in the cache, nor its text among its drafts.
 */

import { chatBody, completionBody } from "./body.js";
import { comparedTexts, comparison } from "./compare.js";
import { Composer } from "./composer.js";
import { byId, element } from "./dom.js";
import { Instruments } from "./instruments.js";
import { measure } from "./measure.js";
import { announce } from "./notices.js";
import { typedSettings } from "./settings.js";
import { durationOf } from "./timeline.js";
import { Turn } from "./turn.js";

/** @typedef {import("./answer.js").Answer} Answer */

export function startRace() {
  const [lanes, verdict] = [byId("race-lanes"), byId("race-verdict")];
  new Composer(byId("race-form"), byId("race-errors"), (prompt) => {
    const pair = racingBodies(prompt, byId("race-kind").value).map((body) => new Lane(body, () => compare(false)));
    lanes.replaceChildren(...pair.map((lane) => lane.root));
    verdict.textContent = "";
    verdict.className = "verdict";

    /** @param {boolean} areComplete */
    function compare(areComplete) {
      const [left, right] = pair.map((lane) => lane.answer);
      const found = compared(left, right, areComplete);
      const span = Math.max(...pair.map((lane) => lane.milliseconds));
      pair.forEach((lane) => lane.stretch(span));
      if (found === null) return;
      verdict.textContent = areComplete && found.isEqual ? `${found.sentence} ${speedUp([left, right])}` : found.sentence;
      verdict.className = found.isEqual ? "verdict equal" : "verdict differs";
      if (!found.isEqual && left?.steps.length) pair.forEach((lane) => lane.turn.tokens.mark(found.place, "The first difference"));
    }

    async function run() {
      if (byId("race-at-once").checked) await Promise.all(pair.map((lane) => lane.run()));
      else for (const lane of pair) if (!lane.isStopped) await lane.run();
      if (pair.every((lane) => lane.hasEnded)) compare(true);
      if (verdict.textContent === "") verdict.textContent = "The race did not end: there is nothing to compare.";
      announce(verdict.textContent);
    }

    return { run, stop: () => pair.forEach((lane) => lane.stop()) };
  });
}

/** @param {Answer | null} left @param {Answer | null} right @param {boolean} areComplete */
function compared(left, right, areComplete) {
  if (areComplete && left !== null && right !== null && left.steps.length + right.steps.length === 0) {
    return comparedTexts(left.content, right.content);
  }
  return comparison(left?.tokens ?? [], right?.tokens ?? [], areComplete);
}

/** @param {string} prompt @param {string} kind */
function racingBodies(prompt, kind) {
  const typed = typedSettings();
  /** @type {any} */
  const body =
    kind === "chat" ? chatBody(typed, [{ role: "user", content: prompt }]) : completionBody(typed, prompt);
  body.seed ??= crypto.getRandomValues(new Uint32Array(1))[0];
  const { enabled: _, ...speculation } = body.speculation ?? {};
  const salted = (/** @type {object} */ setting) => ({ ...body, cache_salt: `race-${randomHex()}`, speculation: setting });
  return [salted({ ...speculation, enabled: true }), salted({ enabled: false })];
}

const randomHex = () => [...crypto.getRandomValues(new Uint32Array(3))].map((n) => n.toString(16)).join("");

/** @param {(Answer | null)[]} both with drafts, and without */
function speedUp(both) {
  const [fast, slow] = both.map((answer) => (answer === null ? null : measure(answer).tokensPerSecond));
  if (fast === null || slow === null) return "";
  return `With drafts it came ${(fast / slow).toFixed(2)} times as fast.`;
}

class Lane {
  /** @param {any} body @param {() => void} onGrowth */
  constructor(body, onGrowth) {
    const withDrafts = body.speculation.enabled;
    this.instruments = new Instruments((step) => this.turn.tokens.showStep(step));
    this.turn = new Turn("prompt" in body ? "completion" : "chat", body, (answer) => {
      this.answer = answer;
      onGrowth();
    });
    this.turn.tokens.label = withDrafts ? "With drafts" : "Without drafts";
    /** @type {Answer | null} */
    this.answer = null;
    this.isStopped = false;
    this.root = element(
      "section",
      { class: "lane", "aria-label": this.turn.tokens.label },
      element("h3", {}, this.turn.tokens.label),
      this.instruments.root,
      this.turn.root,
    );
  }

  get hasEnded() {
    return this.answer !== null && this.answer.finishReason !== null;
  }

  /** Of all its steps. */
  get milliseconds() {
    return (this.answer?.steps ?? []).reduce((sum, step) => sum + durationOf(step), 0);
  }

  /** @param {number} span milliseconds that both lines of time show */
  stretch(span) {
    if (this.answer !== null) this.instruments.update(this.answer, span);
  }

  run() {
    return this.turn.run();
  }

  stop() {
    this.isStopped = true;
    this.turn.stop();
  }
}
