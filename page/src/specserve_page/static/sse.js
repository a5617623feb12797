/**
 * Server-sent events from the body of a response, as the HTML standard reads them: the data of each event.
 */

/**
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<string, void, void>}
 */
export async function* eventData(body) {
  const decoder = /** @type {ReadableWritablePair<string, Uint8Array>} */ (new TextDecoderStream());
  const reader = body.pipeThrough(decoder).getReader();
  let rest = "";
  /** @type {string[]} */
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return; // an event that has not ended is none
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = /** @type {string} */ (lines.pop());
      for (const line of lines) {
        if (line === "" && data.length > 0) {
          yield data.join("\n");
          data = [];
        }
        if (line.startsWith("data:")) data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
