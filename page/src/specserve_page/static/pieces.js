/**
 * The texts of tokens, where a character is made of several. A token that is a part of a character is told as its bytes,
 * `bytes:\\xf0\\x9f`; the character is shown at the last of its tokens.
 */

const BYTES = /^bytes:((?:\\x[0-9a-f]{2})+)$/;

export class Pieces {
  constructor() {
    this.decoder = new TextDecoder();
  }

  /**
   * Of the next token.
   * @param {string} text as it is told
   * @returns {string} "" where a character has begun and not ended
   */
  next(text) {
    const told = BYTES.exec(text);
    if (told === null) return this.decoder.decode() + text;
    const bytes = told[1].slice(2).split("\\x").map((digits) => parseInt(digits, 16));
    return this.decoder.decode(new Uint8Array(bytes), { stream: true });
  }
}
