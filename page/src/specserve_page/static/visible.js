/**
 * Characters that a reader would not see, or that would change how others are shown, as characters that are seen.
 */

const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/**
 * Line feeds and tabs stay. A control character becomes its picture (ESC is ␛), others their number.
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.replace(HIDDEN, (character) => {
    const code = /** @type {number} */ (character.codePointAt(0));
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? "␡" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/**
 * In one line, with quotes: for what is said about a token.
 * @param {string} text
 * @returns {string}
 */
export function quoted(text) {
  return `“${visible(text).replaceAll("\n", "⏎").replaceAll("\t", "⇥")}”`;
}
