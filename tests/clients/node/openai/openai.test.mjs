// openai for Node.js: texts, streams, parse() with zod, tools, errors.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { apiKey, baseURL, collect, longText, maxTokens, needs } from "./server.mjs";

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "a person, as json" }];
const ask = { model: "demo", messages, temperature: 0, max_tokens: maxTokens };
const Person = z.object({ name: z.string().max(12), age: z.number().int().min(0).max(150), kind: z.enum(["child", "adult"]) });
const noteAge = {
  type: "function",
  function: {
    name: "note_age",
    strict: true,
    parameters: {
      type: "object",
      properties: { age: { type: "integer" } },
      required: ["age"],
      additionalProperties: false,
    },
  },
};
const calling = { ...ask, tools: [noteAge], tool_choice: "required", parallel_tool_calls: false };

test("models are listed with the adapter", async () => {
  const names = (await client.models.list()).data.map((model) => model.id);
  assert.deepEqual(names.toSorted(), ["demo", "docstrings"]);
});

test("a stream of a completion is the whole", async () => {
  const body = { model: "demo", prompt: "def add(a, b):", max_tokens: 40, temperature: 0 };
  const whole = (await client.completions.create(body)).choices[0].text;
  const stream = await client.completions.create({ ...body, stream: true });
  assert.equal(await collect(stream, (chunk) => chunk.choices[0].text), whole);
  assert.notEqual(whole, "");
});

test("a stream of a chat is the whole", async () => {
  const whole = (await client.chat.completions.create({ ...ask, max_tokens: 40 })).choices[0].message.content;
  const stream = await client.chat.completions.create({ ...ask, max_tokens: 40, stream: true });
  assert.equal(await collect(stream, (chunk) => chunk.choices[0].delta.content), whole);
  assert.notEqual(whole, "");
});

test("log-probabilities are read", async () => {
  const answer = await client.chat.completions.create({ ...ask, max_tokens: 4, logprobs: true, top_logprobs: 1 });
  for (const token of answer.choices[0].logprobs.content) assert.equal(token.logprob, token.top_logprobs[0].logprob);
});

test("parse gives an object", async () => {
  const answer = await client.chat.completions.parse({ ...ask, response_format: zodResponseFormat(Person, "person") });
  assert.deepEqual(Person.parse(answer.choices[0].message.parsed), answer.choices[0].message.parsed);
});

test("a streamed call is the whole", async () => {
  const whole = (await client.chat.completions.create(calling)).choices[0].message.tool_calls[0].function;
  const stream = client.chat.completions.stream(calling);
  const streamed = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
  assert.equal(streamed.length, 1);
  assert.equal(streamed[0].function.arguments, whole.arguments);
  assert.equal(typeof JSON.parse(whole.arguments).age, "number");
});

test("runTools runs a function and sends its result", async () => {
  const noted = [];
  const run = ({ age }) => noted.push(age) && "noted";
  const tool = { type: "function", function: { ...noteAge.function, function: run, parse: JSON.parse } };
  const runner = client.chat.completions.runTools(
    { ...calling, tools: [tool], tool_choice: { type: "function", function: { name: "note_age" } } },
    { maxChatCompletions: 2 },
  );
  await runner.done();
  assert.deepEqual(noted.map((age) => typeof age), ["number"]);
  assert.equal(runner.messages.filter((message) => message.role === "tool")[0].content, "noted");
});

test("a stream that is aborted does no harm", async () => {
  const stream = await client.chat.completions.create({ ...ask, max_tokens: 2000, stream: true });
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    stream.controller.abort();
  }
  assert.equal((await client.chat.completions.create({ ...ask, max_tokens: 2 })).usage.completion_tokens, 2);
});

test("errors are the classes of their status", async () => {
  await assert.rejects(client.chat.completions.create({ ...ask, temperature: -1 }), OpenAI.BadRequestError);
  await assert.rejects(client.chat.completions.create({ ...ask, model: "gpt-x" }), OpenAI.NotFoundError);
  await assert.rejects(new OpenAI({ baseURL, apiKey: "wrong" }).models.list(), OpenAI.AuthenticationError);
  const tooLong = client.completions.create({ model: "demo", prompt: longText, stream: true });
  await assert.rejects(tooLong, { code: "context_length_exceeded" });
});

test("a stream of a response is the whole", needs("/v1/responses"), async () => {
  const body = { model: "demo", input: "hello", temperature: 0, max_output_tokens: 20 };
  const whole = await client.responses.create(body);
  const stream = await client.responses.create({ ...body, stream: true });
  const text = await collect(stream, (event) => (event.type === "response.output_text.delta" ? event.delta : ""));
  assert.equal(text, whole.output_text);
  assert.notEqual(text, "");
});
