"use strict";
/* What a worker writes down while it works: the same marks as the Python adapters' notes. */
const { performance } = require("node:perf_hooks");

const PERIOD = 10;
const EARLY = 1.0;

/** Seconds since the epoch, with microseconds. */
function now() {
  return (performance.timeOrigin + performance.now()) / 1e3;
}

function cpu() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

class Notes {
  constructor() {
    this.marks = [];
  }

  noop() {
    this.marks.push([null, now()]);
  }

  /* `sent` is of the monotonic clock, which all processes of a machine share. */
  ping({ number, sent }) {
    this.marks.push([number, Number(process.hrtime.bigint() - BigInt(sent)) / 1e9]);
  }

  alarm({ number, at }) {
    this.marks.push([number, now() - at]);
  }

  beat({ name }) {
    const at = now();
    const late = ((at + EARLY) % PERIOD) - EARLY;
    this.marks.push([`${name}@${Math.round(at - late)}`, late]);
  }

  report(before) {
    let first = Infinity;
    let last = -Infinity;
    for (const [, value] of this.marks) {
      first = Math.min(first, value);
      last = Math.max(last, value);
    }
    return {
      done: this.marks.length,
      seconds: this.marks.length ? last - first : 0,
      marks: this.marks.filter(([name]) => name !== null),
      cpu: cpu() - before,
      rss_mb: process.memoryUsage().rss / 1e6,
    };
  }
}

module.exports = { Notes, PERIOD, cpu, now };
