"use strict";
/* Submitting as each measurement needs it, with the same pace and sizes as the Python adapters. A client has
 * submit(handler, payload), submitAt(handler, payload, at) and submitMany(handler, count).
 */
const { setTimeout: sleep } = require("node:timers/promises");
const { now } = require("./notes.cjs");

const FIFTY = 50;
const CHUNK = 1000;
const PACE = 10;
const LEAD = 2;
const SPREAD = 10;

async function single(client, jobs) {
  for (let number = 0; number < jobs; number++) await client.submit("noop", {});
}

async function fifty(client, jobs) {
  let left = jobs;
  const oneOfFifty = async () => {
    while (left-- > 0) await client.submit("noop", {});
  };
  await Promise.all(Array.from({ length: FIFTY }, oneOfFifty));
}

async function bulk(client, jobs) {
  for (let start = 0; start < jobs; start += CHUNK) await client.submitMany("noop", Math.min(CHUNK, jobs - start));
}

async function pings(client, jobs) {
  let next = performance.now();
  for (let number = 0; number < jobs; number++) {
    next += PACE;
    await sleep(Math.max(0, next - performance.now()));
    await client.submit("ping", { number, sent: process.hrtime.bigint().toString() });
  }
}

async function alarms(client, jobs) {
  const first = now() + LEAD;
  for (let number = 0; number < jobs; number++) {
    const at = first + (SPREAD * number) / jobs + (number % 997) / 1e6;
    await client.submitAt("alarm", { number, at }, at);
  }
}

module.exports = { ORDERS: { put: bulk, single, fifty, bulk, pings, alarms } };
