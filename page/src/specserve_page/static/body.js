/**
 * From the settings, as they were typed, to a request's body. Pure: an error says which field is wrong.
 */

/**
 * @typedef {Object<string, string | boolean>} Typed by the names of the fields of the form; "" is not set
 */

export class FieldError extends Error {
  /** @param {string} field @param {string} message */
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/** Fields that go into the body as numbers, under their own names. */
const NUMBERS = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"];

/**
 * What both APIs share.
 * @param {Typed} typed
 * @returns {Object<string, any>}
 */
export function commonFields(typed) {
  /** @type {Object<string, any>} */
  const body = typed.model ? { model: typed.model } : {};
  for (const name of NUMBERS) {
    if (typed[name] !== "" && typed[name] !== undefined) body[name] = numberOf(name, String(typed[name]));
  }
  const stop = String(typed.stop ?? "").split("\n").filter((line) => line !== "");
  if (stop.length > 0) body.stop = stop.map(unescaped);
  const speculation = speculationOf(typed);
  if (speculation !== null) body.speculation = speculation;
  Object.assign(body, formOf(typed), parsedJson("more", String(typed.more ?? ""), {}));
  return body;
}

/** @param {Typed} typed */
function speculationOf(typed) {
  if (typed.speculation === false) return { enabled: false };
  const limit = String(typed.max_draft_tokens ?? "");
  return limit === "" ? null : { max_draft_tokens: numberOf("max_draft_tokens", limit) };
}

/** @param {string} field @param {string} text */
function numberOf(field, text) {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new FieldError(field, `${field} is not a number: ${text}`);
  if (field === "seed" && !Number.isSafeInteger(value)) {
    throw new FieldError(field, `seed is not a whole number below 2^53: ${text}`);
  }
  return value;
}

/** A stop string in one line: \n, \t and \\ stand for what they do elsewhere. @param {string} line */
const unescaped = (line) =>
  line.replace(/\\([nt\\])/g, (_, letter) => ({ n: "\n", t: "\t", "\\": "\\" })[/** @type {"n"} */ (letter)]);

/** @param {Typed} typed */
function formOf(typed) {
  const text = String(typed.form_text ?? "");
  switch (typed.form) {
    case "json_object":
      return { response_format: { type: "json_object" } };
    case "json_schema": {
      const schema = parsedJson("form_text", text, null);
      if (schema === null) throw new FieldError("form_text", "Write the JSON schema that the answer is to follow.");
      return { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } };
    }
    case "choice":
      return { structured_outputs: { choice: text.split("\n").filter((line) => line !== "") } };
    case "regex":
    case "grammar":
      return { structured_outputs: { [String(typed.form)]: text } };
    default:
      return {};
  }
}

/** @param {string} field @param {string} text @param {any} empty */
function parsedJson(field, text, empty) {
  if (text.trim() === "") return empty;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FieldError(field, `${field} is not JSON: ${/** @type {Error} */ (error).message}`);
  }
}

/**
 * @param {Typed} typed
 * @param {string} prompt
 */
export const completionBody = (typed, prompt) => ({ ...commonFields(typed), prompt });

/**
 * @param {Typed} typed
 * @param {{role: string, content: string}[]} messages
 */
export function chatBody(typed, messages) {
  const system = String(typed.system ?? "");
  const tools = parsedJson("tools", String(typed.tools ?? ""), null);
  return {
    ...commonFields(typed),
    ...(tools === null ? {} : { tools, tool_choice: typed.tool_choice || "auto" }),
    messages: [...(system === "" ? [] : [{ role: "system", content: system }]), ...messages],
  };
}

/**
 * What the page asks for besides, so that it can show an answer as it grows.
 * @param {object} body
 */
export const streamedBody = (body) => ({
  ...body,
  stream: true,
  stream_options: { include_usage: true },
  return_speculation: true,
});
