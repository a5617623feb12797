/**
 * Which plugins run, which are installed, and for any two whether they work together, why, and what tests have proven.
 */

import { getJson } from "./api.js";
import { byId, element } from "./dom.js";
import { errorBox } from "./notices.js";
import { Proofs } from "./proofs.js";
import { visible } from "./visible.js";

/**
 * @typedef {{name: string, version: string, distribution: string, features: string[],
 *   features_off: Object<string, string>, enabled: boolean, reason: string | null}} Plugin
 * @typedef {{plugins: [string, string], verdict: string, sentence: string}} Pair
 */

const SIGNS = new Map([
  ["compatible", "✓"],
  ["proven", "✓✓"],
  ["conflict", "✗"],
  ["undeclared", "?"],
  ["unusable", "!"],
]);

const LEGEND = "✓ declared, ✓✓ declared and proven by a test, ✗ refused, ? undeclared. Choose two plugins to see why.";

/** Asked anew each time that it is shown. */
export async function showPlugins() {
  const place = byId("plugins-content");
  try {
    const paths = ["v1/plugins", "v1/plugins/pairs", "page/proofs.json"];
    const [plugins, pairs, proofs] = await Promise.all(paths.map(getJson));
    place.replaceChildren(list(plugins.data), matrix(plugins.data, pairs.data, new Proofs(proofs)), chosen(plugins.engine));
  } catch (error) {
    place.replaceChildren(errorBox(error));
  }
}

/** @param {Plugin[]} plugins */
function list(plugins) {
  const rows = plugins.map((plugin) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, plugin.name),
      element("td", { class: "state" }, plugin.enabled ? "runs" : plugin.reason === null ? "installed" : "switched off"),
      element("td", {}, visible(plugin.features.join(", "))),
      element("td", {}, visible([plugin.reason, ...Object.values(plugin.features_off)].filter(Boolean).join("; "))),
      element("td", { class: "faint" }, visible(`${plugin.distribution} ${plugin.version}`)),
    ),
  );
  return tableOf("Installed plugins", ["Plugin", "State", "Features", "Why not", "Distribution"], rows);
}

/** @param {Plugin[]} plugins @param {Pair[]} pairs @param {Proofs} proofs */
function matrix(plugins, pairs, proofs) {
  const found = new Map();
  for (const pair of pairs) {
    const [left, right] = pair.plugins;
    found.set(`${left} ${right}`, pair).set(`${right} ${left}`, pair);
  }
  const reason = element("p", { class: "reason", "aria-live": "polite" }, LEGEND);
  const cell = (/** @type {Plugin} */ row, /** @type {Plugin} */ column) => {
    const pair = /** @type {Pair | undefined} */ (found.get(`${row.name} ${column.name}`));
    if (pair === undefined) return element("td", {});
    const proof = pair.verdict === "compatible" ? proofs.of(row, column) : null;
    const verdict = proof === null ? pair.verdict : "proven";
    const text = visible([pair.sentence, proof && proofs.sentence(proof)].filter(Boolean).join(" "));
    const show = () => (reason.textContent = text);
    const name = `${row.name} with ${column.name}: ${verdict}`;
    const attributes = { type: "button", class: `cell ${verdict}`, "aria-label": name, onclick: show, onfocus: show };
    return element("td", {}, element("button", { ...attributes, onpointerenter: show }, SIGNS.get(verdict) ?? "·"));
  };
  const rows = plugins.map((row) =>
    element("tr", {}, element("th", { scope: "row" }, row.name), ...plugins.map((column) => cell(row, column))),
  );
  const title = "Which work together, by their declarations under this configuration, and by tests";
  const table = tableOf(title, ["", ...plugins.map((plugin) => plugin.name)], rows);
  table.classList.add("matrix");
  table.insertBefore(reason, table.lastChild);
  return table;
}

/** @param {Object<string, any>} engine */
function chosen(engine) {
  const rows = Object.entries(engine).map(([name, value]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name.replaceAll("_", " ")),
      element("td", {}, element("code", {}, visible(typeof value === "string" ? value : JSON.stringify(value)))),
    ),
  );
  return tableOf("The engine", ["What", "Chosen"], rows);
}

/** @param {string} title @param {string[]} heads @param {Node[]} rows */
function tableOf(title, heads, rows) {
  const cells = heads.map((head) =>
    head === "" ? element("td", {}) : element("th", { scope: "col" }, element("span", {}, head)),
  );
  const table = element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...cells)),
    element("tbody", {}, ...rows),
  );
  const scrolled = element("div", { class: "scrolled", tabindex: "0", role: "group", "aria-label": title }, table);
  return element("section", {}, element("h2", {}, title), scrolled);
}
