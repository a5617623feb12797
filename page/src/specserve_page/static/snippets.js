/**
 * A request as a command line and as a program. Pure. The API key is never in them: they read SPECSERVE_API_KEY.
 */

/** Characters that change how a line is shown or ended; JSON and Python both read \uXXXX. */
const UNSEEN = /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** @param {string} json */
const seen = (json) =>
  json.replace(UNSEEN, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

/**
 * In single quotes, within which a POSIX shell changes nothing.
 * @param {string} text
 */
const shellWord = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/**
 * @param {string} url
 * @param {object} body
 * @param {boolean} withKey
 */
export function curl(url, body, withKey) {
  const lines = [
    `curl -N ${shellWord(url)}`,
    ...(withKey ? ['  -H "Authorization: Bearer $SPECSERVE_API_KEY"'] : []),
    "  -H 'Content-Type: application/json'",
    `  -d ${shellWord(seen(JSON.stringify({ ...body, stream: true }, null, 2)))}`,
  ];
  return `${lines.join(" \\\n")}\n`;
}

/**
 * A Python literal. What JSON writes for a string means the same in Python.
 * @param {any} value of JSON
 * @param {string} indent
 * @returns {string}
 */
export function pythonLiteral(value, indent = "") {
  const inner = `${indent}    `;
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return seen(JSON.stringify(value));
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const entries = isList
    ? value.map((one) => pythonLiteral(one, inner))
    : Object.entries(value).map(([name, one]) => `${pythonLiteral(name)}: ${pythonLiteral(one, inner)}`);
  const [open, close] = isList ? "[]" : "{}";
  if (entries.length === 0) return open + close;
  return `${open}\n${entries.map((entry) => `${inner}${entry},\n`).join("")}${indent}${close}`;
}

/**
 * With the standard library alone.
 * @param {string} url
 * @param {object} body
 * @param {boolean} withKey
 */
export function python(url, body, withKey) {
  const key = withKey ? ', "Authorization": f"Bearer {os.environ[\'SPECSERVE_API_KEY\']}"' : "";
  return `import json
${withKey ? "import os\n" : ""}from urllib.request import Request, urlopen

body = ${pythonLiteral(body)}
headers = {"Content-Type": "application/json"${key}}
request = Request(${pythonLiteral(url)}, json.dumps(body).encode(), headers)
with urlopen(request) as response:
    print(json.load(response)["choices"][0])
`;
}
