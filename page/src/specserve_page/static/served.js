/**
 * What this server serves, asked as the page begins and whenever the key changes: its state, models, drafters.
 */

import { getJson, hasKey, health, ServerError } from "./api.js";
import { reserveColours } from "./colours.js";
import { byId } from "./dom.js";
import { showNotice } from "./notices.js";
import { offerModels } from "./settings.js";
import { visible } from "./visible.js";

const PATIENCE = 1000;
/** Counts the calls: a later one ends the earlier ones. */
let round = 0;

/**
 * Goes on asking while the model loads, or while the server cannot be reached.
 * @param {() => void} askForKey
 * @returns {Promise<boolean>} whether it is known what is served
 */
export async function learnWhatIsServed(askForKey) {
  const own = ++round;
  while (own === round) {
    try {
      await learn();
      showNotice("");
      return true;
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (error.status === 401) {
        showNotice(hasKey() ? `This API key is refused: ${error.message}` : "This server asks for an API key.");
        askForKey();
        return false;
      }
      showNotice(error.status === 503 ? await loadingLine() : error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, PATIENCE));
  }
  return false;
}

async function learn() {
  const [models, plugins] = await Promise.all([getJson("v1/models"), getJson("v1/plugins")]);
  offerModels(models.data);
  const { model, kernels, drafters, lossless } = plugins.engine;
  reserveColours(drafters ?? []);
  const drafted = drafters?.length ? `drafts by ${drafters.join(", ")}` : "no drafter is enabled";
  const promise = lossless ? "lossless" : "not guaranteed lossless";
  byId("served").textContent = visible([model, kernels, drafted, promise].filter(Boolean).join(" · "));
}

/** What /health says, which needs no key. */
async function loadingLine() {
  const { status, progress } = await health();
  if (status !== "loading") return `The server is ${status}.`;
  const known = progress?.total ? `, ${Math.floor((100 * (progress.done ?? 0)) / progress.total)} %` : "";
  return `The model is loading${progress?.stage ? `: ${progress.stage}` : ""}${known} …`;
}
