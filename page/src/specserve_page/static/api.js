/**
 * Requests to this server and to no other one. Owns the API key, in memory only, and the form of errors.
 */

import { eventData } from "./sse.js";

let key = "";

/** @param {string} given "" for none */
export function useKey(given) {
  key = given;
}

export const hasKey = () => key !== "";

/** What the server refused, or why it did not answer. */
export class ServerError extends Error {
  /**
   * @param {string} message
   * @param {{status?: number, type?: string, param?: string | null, requestId?: string | null}} [details]
   */
  constructor(message, details = {}) {
    super(message);
    this.status = details.status ?? 0;
    this.type = details.type ?? "";
    this.param = details.param ?? null;
    this.requestId = details.requestId ?? null;
  }
}

/**
 * Behind a proxy the page has a prefix; every path is relative to it.
 * @param {string} path without a slash at its beginning
 */
export const urlOf = (path) => new URL(path, document.baseURI).href;

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>} one that succeeded
 */
async function ask(path, options = {}) {
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(urlOf(path), { ...options, headers, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ServerError("The server cannot be reached. Is it still running?");
  }
  if (response.ok) return response;
  throw await refusal(response);
}

/** @param {Response} response */
async function refusal(response) {
  const text = await response.text().catch(() => "");
  const requestId = response.headers.get("x-request-id");
  const told = parsed(text)?.error;
  const message = typeof told?.message === "string" ? told.message : text || response.statusText;
  return new ServerError(message, { status: response.status, type: told?.type, param: told?.param, requestId });
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @param {unknown} error */
export const isAbort = (error) => error instanceof DOMException && error.name === "AbortError";

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export const getJson = async (path) => (await ask(path)).json();

/**
 * Which answers 503 while the server is not ready.
 * @returns {Promise<{status: string, progress?: {stage: string, done?: number, total?: number}}>}
 */
export async function health() {
  try {
    return await (await fetch(urlOf("health"), { credentials: "omit", cache: "no-store" })).json();
  } catch {
    return { status: "not reachable" };
  }
}

/**
 * The chunks of a streamed answer. Raises ServerError for an error within the stream, and where it breaks off.
 * @param {string} path
 * @param {object} body
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<any, void, void>}
 */
export async function* streamed(path, body, signal) {
  const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
  const response = await ask(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  const requestId = response.headers.get("x-request-id");
  try {
    for await (const data of eventData(/** @type {ReadableStream<Uint8Array>} */ (response.body))) {
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ServerError(event.error.message, { ...event.error, requestId });
      yield event;
    }
  } catch (error) {
    if (error instanceof ServerError || isAbort(error)) throw error;
    throw new ServerError("The stream broke off: the connection to the server was lost.", { requestId });
  }
  throw new ServerError("The stream ended before the answer did.", { requestId });
}
