// Vercel's AI SDK: its providers openai-compatible and openai, texts, streams, objects, tools, errors.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

import { apiKey, baseURL, collect, maxTokens, needs } from "./server.mjs";

const compatible = createOpenAICompatible({
  name: "specserve",
  baseURL,
  apiKey,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const openai = createOpenAI({ baseURL, apiKey });
const MODELS = [
  ["openai-compatible, chat", compatible("demo"), {}],
  ["openai, chat", openai.chat("demo"), {}],
  ["openai, responses", openai("demo"), needs("/v1/responses")],
];
const Person = z.object({ name: z.string().max(12), age: z.number().int().min(0).max(150), kind: z.enum(["child", "adult"]) });

for (const [name, model, options] of MODELS) {
  const ask = { model, prompt: "a person, as json", temperature: 0, maxOutputTokens: maxTokens, maxRetries: 0 };

  describe(name, options, () => {
    test("a stream is the whole", async () => {
      const whole = await generateText({ ...ask, maxOutputTokens: 30 });
      const stream = streamText({ ...ask, maxOutputTokens: 30 });
      assert.equal(await collect(stream.textStream, (text) => text), whole.text);
      assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
      assert.equal(await stream.finishReason, "length");
      assert.notEqual(whole.text, "");
    });

    test("an output is an object", async () => {
      const { output } = await generateText({ ...ask, output: Output.object({ schema: Person }) });
      assert.deepEqual(Person.parse(output), output);
    });

    test("a streamed object ends as the whole", async () => {
      const stream = streamText({ ...ask, output: Output.object({ schema: Person }) });
      let partial;
      for await (partial of stream.partialOutputStream);
      assert.deepEqual(Person.parse(partial), await stream.output);
    });

    test("a tool is run in a stream and its result goes back", async () => {
      const noted = [];
      const noteAge = tool({
        description: "notes an age",
        inputSchema: z.object({ age: z.number().int() }),
        strict: true,
        execute: ({ age }) => noted.push(age) && "noted",
      });
      const providerOptions = { openai: { parallelToolCalls: false }, specserve: { parallel_tool_calls: false } };
      const calling = { ...ask, tools: { noteAge }, toolChoice: "required", providerOptions };
      const stream = streamText({ ...calling, stopWhen: isStepCount(2) });
      const steps = await stream.steps;
      assert.equal(steps.length, 2);
      assert.equal(steps[0].toolResults[0].output, "noted");
      assert.equal(typeof noted[0], "number");
    });

    test("a wrong request is an APICallError", async () => {
      await assert.rejects(generateText({ ...ask, temperature: -1 }), (error) => {
        assert.ok(APICallError.isInstance(error), String(error));
        assert.equal(error.statusCode, 400);
        return error.message.includes("temperature");
      });
    });
  });
}

test("the legacy completions work", async () => {
  const ask = { model: compatible.completionModel("demo"), prompt: "def add(a, b):", temperature: 0, maxOutputTokens: 12 };
  const { text } = await generateText(ask);
  assert.equal(await collect(streamText(ask).textStream, (part) => part), text);
  assert.notEqual(text, "");
});
