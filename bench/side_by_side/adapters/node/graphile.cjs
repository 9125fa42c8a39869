"use strict";
/* graphile-worker on PostgreSQL, with its local queue and batched completions. */
const CONCURRENCY = 24;
const POOL = 10;
const LOCAL_QUEUE = 500;

module.exports = (load) => {
  const { Logger, makeWorkerUtils, run } = load("graphile-worker");
  const { Pool } = load("pg");
  const logger = new Logger(() => () => {});

  async function prepare(url) {
    const pgPool = new Pool({ connectionString: url });
    await pgPool.query("DROP SCHEMA IF EXISTS graphile_worker CASCADE");
    const utils = await makeWorkerUtils({ pgPool, logger });
    await utils.migrate();
    await utils.release();
    await pgPool.end();
  }

  async function client(url) {
    const utils = await makeWorkerUtils({ pgPool: new Pool({ connectionString: url, max: POOL }), logger });
    return {
      submit: (handler, payload) => utils.addJob(handler, payload),
      submitAt: (handler, payload, at) => utils.addJob(handler, payload, { runAt: new Date(at * 1e3) }),
      submitMany: (handler, count) =>
        utils.addJobs(Array.from({ length: count }, () => ({ identifier: handler, payload: {} }))),
    };
  }

  async function work(stint, notes) {
    const names = ["noop", "ping", "alarm"];
    const taskList = Object.fromEntries(names.map((name) => [name, async (payload) => notes[name](payload)]));
    await run({
      taskList,
      logger,
      noHandleSignals: true,
      pgPool: new Pool({ connectionString: stint.url, max: POOL }),
      preset: {
        worker: {
          concurrentJobs: CONCURRENCY,
          localQueue: { size: LOCAL_QUEUE },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    });
  }

  return { PACKAGES: ["graphile-worker", "pg"], client, prepare, work };
};
