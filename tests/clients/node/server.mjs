// The server that run.py has started: its address, its key, and which routes it lacks.

export const url = process.env.SPECSERVE_URL;
export const apiKey = process.env.SPECSERVE_API_KEY;
export const baseURL = `${url}/v1`;
export const maxTokens = 200;

const answer = await fetch(`${url}/openapi.json`, { headers: { Authorization: `Bearer ${apiKey}` } });
const { paths } = await answer.json();

/** For the options of a test: a reason to skip it where the server has no such route. */
export function needs(path) {
  return { skip: path in paths ? false : `this server has no ${path}` };
}

export async function collect(stream, text) {
  let whole = "";
  for await (const part of stream) whole += text(part) ?? "";
  return whole;
}

/** More tokens than the demo model's context of 4096 holds. */
export const longText = "one two ".repeat(3000);
