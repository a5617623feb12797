/**
 * The page: what is started, in which order, and who tells whom.
 */

import { startChat } from "./chat.js";
import { startCompletion } from "./completion.js";
import { byId } from "./dom.js";
import { Instruments } from "./instruments.js";
import { startKey } from "./key.js";
import { showPlugins } from "./plugins.js";
import { startRace } from "./race.js";
import { learnWhatIsServed } from "./served.js";
import { watchSettings } from "./settings.js";
import { startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";

/** @typedef {import("./turn.js").Turn} Turn */
/** @typedef {import("./answer.js").Answer} Answer */

const place = byId("measured");

/**
 * Has the panel show this turn from now on.
 * @param {Turn} turn
 * @returns {(answer: Answer) => void}
 */
function watched(turn) {
  const instruments = new Instruments((step) => turn.tokens.showStep(step));
  place.replaceChildren(instruments.root);
  return (answer) => instruments.update(answer);
}

const openKey = startKey(refresh);

/** With the key that there is now. */
async function refresh() {
  const isKnown = await learnWhatIsServed(openKey);
  if (!isKnown) return;
  if (place.dataset.isEmpty !== "no") {
    place.dataset.isEmpty = "no";
    place.replaceChildren(new Instruments(() => undefined).root);
  }
  if (document.body.dataset.view === "plugins") await showPlugins();
}

startTheme();
watchSettings();
startChat(watched);
startCompletion(watched);
startRace();
startTabs((view) => {
  if (view === "plugins") showPlugins();
});
refresh();
