"use strict";
/* One process of a Node peer. It speaks the same lines of JSON as the Python adapters: a client that submits as it is
 * ordered to, a worker that notes what it did and reports it, or a preparation of the store.
 *
 *     node main.cjs FOLDER STINT
 *
 * FOLDER has the peer's packages, STINT is a JSON document (`notes.Stint`). An adapter exports PACKAGES, client(url),
 * work(stint, notes) and, if its store needs tables, prepare(url).
 */
const { createRequire } = require("node:module");
const path = require("node:path");
const readline = require("node:readline");
const { Notes, cpu } = require("./notes.cjs");
const { ORDERS } = require("./submitting.cjs");

const TELL_EVERY = 50;
const stint = JSON.parse(process.argv[3]);
const load = createRequire(path.join(process.argv[2], "package.json"));
const adapter = require(`./${stint.adapter}.cjs`)(load);

function say(message) {
  process.stdout.write(JSON.stringify(message) + "\n");
}

function versions() {
  const found = { node: process.versions.node };
  for (const name of adapter.PACKAGES) found[name] = load(`./node_modules/${name}/package.json`).version;
  return found;
}

async function answer() {
  const client = await adapter.client(stint.url);
  say({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    const started = process.hrtime.bigint();
    await ORDERS[order.do](client, order.jobs);
    say({ seconds: Number(process.hrtime.bigint() - started) / 1e9 });
  }
  process.exit(0);
}

async function work() {
  const notes = new Notes();
  const before = cpu();
  let told = -1;
  setInterval(() => {
    if (notes.marks.length !== told) say({ done: (told = notes.marks.length) });
  }, TELL_EVERY);
  const lines = readline.createInterface({ input: process.stdin });
  lines.once("line", () => {
    const report = JSON.stringify({ report: notes.report(before) }) + "\n";
    process.stdout.write(report, () => process.exit(0));
  });
  lines.once("close", () => setTimeout(() => process.exit(0), 1000));
  say({ ready: true });
  await adapter.work(stint, notes);
}

async function main() {
  switch (stint.role) {
    case "versions":
      say({ versions: versions() });
      break;
    case "prepare":
      await adapter.prepare(stint.url);
      break;
    case "client":
      await answer();
      break;
    default:
      await work();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
