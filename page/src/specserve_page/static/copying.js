/**
 * A request as curl and as Python, in a dialog that also works where the clipboard is not allowed (HTTP, not localhost).
 */

import { hasKey, urlOf } from "./api.js";
import { byId, element } from "./dom.js";
import { PATHS } from "./run.js";
import { curl, python } from "./snippets.js";

/** @typedef {{kind: keyof typeof PATHS, body: object}} Request */

const WRITERS = { curl, Python: python };

/**
 * @param {Request} request
 * @returns {HTMLElement[]}
 */
export const copyButtons = (request) =>
  Object.entries(WRITERS).map(([name, write]) =>
    element(
      "button",
      {
        type: "button",
        class: "small",
        "aria-label": `Show the request as ${name}`,
        onclick: () => showSnippet(name, write(urlOf(PATHS[request.kind]), request.body, hasKey())),
      },
      name,
    ),
  );

/** @param {string} name @param {string} snippet */
function showSnippet(name, snippet) {
  const dialog = byId("snippet");
  byId("snippet-title").textContent = `The request as ${name}`;
  const text = byId("snippet-text");
  text.value = snippet;
  const said = byId("snippet-said");
  said.textContent = hasKey() ? "The API key is not in it: set SPECSERVE_API_KEY." : "";
  byId("snippet-copy").onclick = async () => {
    text.select();
    try {
      await navigator.clipboard.writeText(snippet);
      said.textContent = "Copied.";
    } catch {
      said.textContent = "The browser does not allow it here. The text is selected: copy it by the keyboard.";
    }
  };
  dialog.showModal();
}
