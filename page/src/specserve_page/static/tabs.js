/**
 * The views of the page as tabs: by pointer, by arrow keys, by the part of the address behind #.
 */

import { byId } from "./dom.js";

/**
 * @param {(view: string) => void} onShow
 * @returns {(view: string) => void} shows one
 */
export function startTabs(onShow) {
  const tabs = /** @type {HTMLElement[]} */ ([...byId("views").querySelectorAll("[role=tab]")]);
  const views = tabs.map((tab) => tab.id.replace("tab-", ""));

  /** @param {string} view */
  function show(view) {
    tabs.forEach((tab, i) => {
      const isShown = views[i] === view;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
      byId(views[i]).hidden = !isShown;
    });
    document.body.dataset.view = view;
    onShow(view);
  }

  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(views[i]));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step === undefined) return;
      const next = (i + step + tabs.length) % tabs.length;
      choose(views[next]);
      tabs[next].focus();
    });
  });

  /** @param {string} view */
  function choose(view) {
    history.replaceState(null, "", `#${view}`);
    show(view);
  }

  const showAddressed = () => show(views.includes(location.hash.slice(1)) ? location.hash.slice(1) : views[0]);
  addEventListener("hashchange", showAddressed);
  showAddressed();
  return show;
}
