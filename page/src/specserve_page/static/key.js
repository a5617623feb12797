/**
 * The dialog for the API key. It is kept in memory alone: a reload forgets it.
 */

import { hasKey, useKey } from "./api.js";
import { byId } from "./dom.js";

/**
 * @param {() => void} onChange
 * @returns {() => void} opens the dialog
 */
export function startKey(onChange) {
  const [dialog, field, button] = [byId("key-dialog"), byId("key"), byId("key-open")];

  const open = () => {
    if (!dialog.open) dialog.showModal();
  };
  button.addEventListener("click", open);
  byId("key-form").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    useKey(field.value.trim());
    field.value = "";
    button.textContent = hasKey() ? "API key ✓" : "API key";
    dialog.close();
    onChange();
  });
  byId("key-cancel").addEventListener("click", () => dialog.close());
  return open;
}
