/**
 * One answer as it grows: what the chunks of a stream add up to. Knows nothing about how it is shown.
 */

/**
 * @typedef {{id: number, text: string, drafter: string | null}} Token of a step; null: the model's own
 * @typedef {{id: number, text: string, parent: number | null, drafter: string | null, survival: number | null,
 *   accepted: boolean}} Node of a draft, a tree in order of nodes
 * @typedef {{tokens: Token[], draft: Node[], stopped: string, reason: string | null,
 *   milliseconds: number | null}} Step
 * @typedef {{name: string, arguments: string}} Call
 */

export class Answer {
  /** @param {number} [startedAt] milliseconds, of the clock that `add` is given, too */
  constructor(startedAt = 0) {
    /** @type {Step[]} */
    this.steps = [];
    this.content = "";
    this.reasoning = "";
    /** @type {Call[]} */
    this.calls = [];
    /** @type {string | null} */
    this.finishReason = null;
    /** @type {{prompt_tokens: number, completion_tokens: number} | null} */
    this.usage = null;
    this.startedAt = startedAt;
    /** @type {number | null} */
    this.firstAt = null;
    this.lastAt = startedAt;
    /** Tokens that came with the first of them: they took the prompt's time. */
    this.numFirst = 0;
  }

  /** @returns {Token[]} */
  get tokens() {
    return this.steps.flatMap((step) => step.tokens);
  }

  get numTokens() {
    const counted = this.steps.reduce((sum, step) => sum + step.tokens.length, 0);
    return counted || (this.usage?.completion_tokens ?? 0);
  }

  get isEmpty() {
    return !(this.steps.length || this.content || this.reasoning || this.calls.length);
  }

  /**
   * @param {any} chunk of /v1/completions or of /v1/chat/completions
   * @param {number} now milliseconds
   */
  add(chunk, now) {
    if (chunk.usage) this.usage = chunk.usage;
    for (const choice of chunk.choices ?? []) {
      this.addText(choice.delta ?? { content: choice.text });
      for (const step of choice.speculation?.steps ?? []) this.steps.push(step);
      if (choice.finish_reason) this.finishReason = choice.finish_reason;
    }
    if (this.isEmpty || (chunk.choices ?? []).length === 0) return;
    if (this.firstAt === null) {
      this.firstAt = now;
      this.numFirst = this.steps.reduce((sum, step) => sum + step.tokens.length, 0);
    }
    this.lastAt = now;
  }

  /** @param {any} delta */
  addText(delta) {
    this.content += delta.content ?? "";
    this.reasoning += delta.reasoning ?? delta.reasoning_content ?? "";
    for (const piece of delta.tool_calls ?? []) {
      const call = (this.calls[piece.index] ??= { name: "", arguments: "" });
      call.name += piece.function?.name ?? "";
      call.arguments += piece.function?.arguments ?? "";
    }
  }
}
