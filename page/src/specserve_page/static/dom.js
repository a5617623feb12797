/**
 * Elements without markup: text from a model or a user only ever becomes a text node.
 */

/** @typedef {string | Node | null} Child */

/**
 * @param {string} tag
 * @param {Object<string, unknown>} [attributes] functions are listeners, `onclick`; null, undefined and false are left out
 * @param {...Child} children
 * @returns {any}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Object<string, string | number>} attributes
 * @returns {SVGElement}
 */
export function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

/**
 * @param {string} id of an element of index.html
 * @returns {any}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no element ${id}`);
  return found;
}

/**
 * Calls at most once for each frame that is painted, however often the result is called.
 * @param {() => void} action
 * @returns {() => void}
 */
export function oncePerFrame(action) {
  let isWaiting = false;
  return () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      action();
    });
  };
}
