/**
 * Errors and other news, in words: what the server said, where, and for whom it is.
 */

import { ServerError } from "./api.js";
import { FieldError } from "./body.js";
import { byId, element } from "./dom.js";
import { visible } from "./visible.js";

/**
 * @param {unknown} error
 * @returns {HTMLElement}
 */
export function errorBox(error) {
  const lines = [element("p", {}, visible(messageOf(error)))];
  if (error instanceof ServerError) {
    const about = [
      error.status ? `HTTP ${error.status}` : null,
      error.type ? visible(String(error.type)) : null,
      error.param ? `field ${visible(String(error.param))}` : null,
      error.requestId ? `request ${visible(error.requestId)}` : null,
    ];
    const line = about.filter((part) => part !== null).join(" · ");
    if (line) lines.push(element("p", { class: "faint" }, line));
  }
  return element("div", { class: "error", role: "alert" }, ...lines);
}

/** @param {unknown} error */
const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Points at the field of the form that an error names.
 * @param {unknown} error
 */
export function pointAtField(error) {
  if (!(error instanceof FieldError)) return;
  const field = document.querySelector(`#settings [name="${error.field}"]`);
  if (!(field instanceof HTMLElement)) return;
  const folded = field.closest("details");
  if (folded !== null) folded.open = true;
  field.setAttribute("aria-invalid", "true");
  field.addEventListener("input", () => field.removeAttribute("aria-invalid"), { once: true });
  field.focus();
}

/** Read out by screen readers, seen by nobody. @param {string} text */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** Above everything; "" for none. @param {string} text */
export function showNotice(text) {
  const notice = byId("notice");
  notice.textContent = text;
  notice.hidden = text === "";
}
