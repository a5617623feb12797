/**
 * The form beside the prompt: its values as they were typed, and the models that it offers.
 */

import { byId, element } from "./dom.js";

/** @typedef {import("./body.js").Typed} Typed */

/** @returns {Typed} */
export function typedSettings() {
  /** @type {Typed} */
  const typed = {};
  for (const field of byId("settings").elements) {
    if (field.name) typed[field.name] = field.type === "checkbox" ? field.checked : field.value;
  }
  return typed;
}

/**
 * The base model first, then its adapters.
 * @param {{id: string, parent: string | null}[]} models
 */
export function offerModels(models) {
  const select = byId("model");
  const chosen = select.value;
  const [bases, adapters] = [models.filter((m) => m.parent === null), models.filter((m) => m.parent !== null)];
  const optionOf = (/** @type {{id: string}} */ model) => element("option", { value: model.id }, model.id);
  select.replaceChildren(...bases.map(optionOf));
  if (adapters.length > 0) select.append(element("optgroup", { label: "Adapters" }, ...adapters.map(optionOf)));
  if (models.some((model) => model.id === chosen)) select.value = chosen;
}

/** The text field of the form of answers is there for the kinds that have one. A narrow screen begins with all folded. */
export function watchSettings() {
  const [form, text] = [byId("form"), byId("form-text-label")];
  const show = () => (text.hidden = ["", "json_object"].includes(form.value));
  form.addEventListener("change", show);
  show();
  byId("all-settings").open = !matchMedia("(max-width: 900px)").matches;
}
