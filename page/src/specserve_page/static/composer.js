/**
 * A prompt and its buttons: one request at a time, sent by the button or by the keyboard, stopped by the same button or
 * by Escape.
 */

import { FieldError } from "./body.js";
import { announce, errorBox, pointAtField } from "./notices.js";

export class Composer {
  /**
   * @param {HTMLFormElement} form with a textarea and a button of type submit
   * @param {HTMLElement} place where errors of the settings go
   * @param {(prompt: string) => {run: () => Promise<unknown>, stop: () => void}} begin may throw a FieldError
   */
  constructor(form, place, begin) {
    this.form = form;
    this.place = place;
    this.begin = begin;
    this.text = /** @type {HTMLTextAreaElement} */ (form.querySelector("textarea"));
    this.button = /** @type {HTMLButtonElement} */ (form.querySelector("[type=submit]"));
    this.label = this.button.textContent;
    /** @type {{stop: () => void} | null} */
    this.running = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.running) this.stop();
      else this.send();
    });
    this.text.addEventListener("keydown", (event) => this.onKey(event));
  }

  stop() {
    this.running?.stop();
    announce("Stopped.");
  }

  async send() {
    const error = this.place.querySelector(".error.of-settings");
    error?.remove();
    let started;
    try {
      started = this.begin(this.text.value);
    } catch (thrown) {
      if (!(thrown instanceof FieldError)) throw thrown;
      const box = errorBox(thrown);
      box.classList.add("of-settings");
      this.place.append(box);
      pointAtField(thrown);
      return;
    }
    this.running = started;
    this.button.textContent = "Stop";
    try {
      await started.run();
    } finally {
      this.running = null;
      this.button.textContent = this.label;
    }
  }

  /** Enter sends where it does not belong to the text: with Ctrl or Cmd always. @param {KeyboardEvent} event */
  onKey(event) {
    if (event.key === "Escape" && this.running) this.stop();
    const sends = this.text.dataset.enter === "sends" && !event.shiftKey;
    if (event.key !== "Enter" || event.isComposing || !(sends || event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (!this.running) this.send();
  }
}
