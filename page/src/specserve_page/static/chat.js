/**
 * The chat: messages so far, and a turn for each answer.
 */

import { chatBody, FieldError } from "./body.js";
import { Composer } from "./composer.js";
import { byId, element } from "./dom.js";
import { typedSettings } from "./settings.js";
import { Turn } from "./turn.js";
import { visible } from "./visible.js";

/** @typedef {import("./instruments.js").Instruments} Instruments */
/** @typedef {import("./answer.js").Answer} Answer */

/**
 * @param {(turn: Turn) => (answer: Answer) => void} watched has the instruments show a turn
 */
export function startChat(watched) {
  /** @type {{role: string, content: string}[]} */
  let messages = [];
  const [log, form] = [byId("chat-log"), byId("chat-form")];
  const composer = new Composer(form, log, begin);

  /** @param {string} prompt */
  function begin(prompt) {
    if (prompt.trim() === "") throw new FieldError("", "Write a message first.");
    const sent = [...messages, { role: "user", content: prompt }];
    const turn = new Turn("chat", chatBody(typedSettings(), sent), (answer) => show(answer));
    const show = watched(turn);
    log.querySelector(".empty")?.remove();
    log.append(element("div", { class: "message", role: "group", "aria-label": "You" }, visible(prompt)), turn.root);
    composer.text.value = "";
    log.scrollTop = log.scrollHeight;
    return { run: () => finish(turn, sent), stop: () => turn.stop() };
  }

  /** A message without an answer is taken back. @param {Turn} turn @param {typeof messages} sent */
  async function finish(turn, sent) {
    const answer = await turn.run();
    const asked = sent[sent.length - 1].content;
    if (answer.content !== "") messages = [...sent, { role: "assistant", content: answer.content }];
    else if (composer.text.value === "") composer.text.value = asked;
    log.scrollTop = log.scrollHeight;
  }

  byId("chat-new").addEventListener("click", () => {
    composer.running?.stop();
    messages = [];
    log.replaceChildren();
    composer.text.focus();
  });
  for (const example of log.querySelectorAll(".example")) {
    example.addEventListener("click", () => {
      composer.text.value = example.textContent ?? "";
      composer.text.focus();
    });
  }
}
