/**
 * Light, dark, or as the system is. The colours are those of light-dark() in style.css.
 */

import { byId } from "./dom.js";

const SCHEMES = ["light dark", "light", "dark"];
const NAMES = ["Theme: system", "Theme: light", "Theme: dark"];

export function startTheme() {
  const button = byId("theme");
  let chosen = 0;
  button.addEventListener("click", () => {
    chosen = (chosen + 1) % SCHEMES.length;
    document.documentElement.style.colorScheme = SCHEMES[chosen];
    button.textContent = NAMES[chosen];
  });
}
