"use strict";
/* BullMQ on Redis. */
const { PERIOD, now } = require("./notes.cjs");

const QUEUE = "bench";
const CONCURRENCY = 100;
const KEEP_NOTHING = { removeOnComplete: true, removeOnFail: true };

module.exports = (load) => {
  const { Queue, Worker } = load("bullmq");
  const Redis = load("ioredis");
  const connect = (url) => new Redis(url, { maxRetriesPerRequest: null });

  async function client(url) {
    const queue = new Queue(QUEUE, { connection: connect(url), defaultJobOptions: KEEP_NOTHING });
    await queue.waitUntilReady();
    return {
      submit: (handler, payload) => queue.add(handler, payload),
      submitAt: (handler, payload, at) => queue.add(handler, payload, { delay: Math.max(0, Math.ceil((at - now()) * 1e3)) }),
      submitMany: (handler, count) => queue.addBulk(Array.from({ length: count }, () => ({ name: handler, data: {} }))),
    };
  }

  async function work(stint, notes) {
    const connection = connect(stint.url);
    const handle = async (job) => notes[job.name](job.data);
    new Worker(QUEUE, handle, { connection, concurrency: CONCURRENCY }).on("error", (error) => console.error(error));
    if (stint.kind === "beat") await addBeats(stint);
  }

  /* Schedulers belong to the queue: any worker continues them. */
  async function addBeats(stint) {
    const queue = new Queue(QUEUE, { connection: connect(stint.url), defaultJobOptions: KEEP_NOTHING });
    const repeat = { pattern: `*/${PERIOD} * * * * *` };
    for (let name = 0; name < stint.schedules; name++) {
      await queue.upsertJobScheduler(`beat-${name}`, repeat, { name: "beat", data: { name } });
    }
  }

  return { PACKAGES: ["bullmq", "ioredis"], client, work };
};
