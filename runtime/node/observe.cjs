'use strict';

/**
 * What is recorded of a session where a report is wanted, as far as the plan's `observe` asks: none, sessions, or runs
 * too. The keys are those of runtime/raddle/observe.py. Only with observe=runs does a run cost anything.
 */

const fs = require('fs');

const report = require('./report.cjs');
const totals = require('./totals.cjs');

const SAMPLE_EVERY_MS = 10000;
// Of a process with more threads than this the pool's ids aren't told apart.
const MAX_THREADS_LISTED = 256;
const MAX_INPUTS = 16;
// onnx.proto3, TensorProto.DataType
const TYPES = ['undefined', 'float', 'uint8', 'int8', 'uint16', 'int16', 'int32', 'int64', 'string', 'bool', 'float16']
  .concat(['double', 'uint32', 'uint64', 'complex64', 'complex128', 'bfloat16']);

/** A session that is being created: when it began, and the threads that there were. */
class Creation {
  constructor() {
    this.before = threads();
    this.began = process.hrtime();
  }

  /**
   * The session's record.
   * @param {object} known runtime, version, effective, because, providers
   * @param {any} session the loaded session
   * @param {any[]} args of loadModel
   * @param {string} plan RADDLE_PLAN
   * @param {import('./plan.cjs').Facts & {cgroup: string | null}} facts
   * @returns {Record<string, any>}
   */
  created(known, session, args, plan, facts) {
    const createMs = Math.round(elapsedNs(this.began) / 1e3) / 1e3;
    const after = threads();
    const made = Object.assign({}, known, { createdAt: Date.now() / 1000, createMs });
    made.workersSeen = facts.workersSeen;
    if (facts.quotaCPUs !== null) {
      made.quotaCPUs = facts.quotaCPUs;
    }
    if (this.before !== null && after !== null) {
      made.threads = after.filter((thread) => !this.before.includes(thread));
    }
    made.totals = totals.read(facts.cgroup);
    made.tasks = made.totals.tasks;
    made.inputs = inputs(session);
    made.model = report.identity(args);
    made.plan = report.crc32(Buffer.from(plan));
    return made;
  }
}

function elapsedNs(began) {
  const [seconds, nanoseconds] = process.hrtime(began);
  return seconds * 1e9 + nanoseconds;
}

function threads() {
  try {
    const found = fs.readdirSync('/proc/self/task').map(Number);
    return found.length < MAX_THREADS_LISTED ? found : null;
  } catch (error) {
    return null;
  }
}

/** [name, type, shape] of each input, where the version tells. */
function inputs(session) {
  const found = Array.isArray(session.inputMetadata) ? session.inputMetadata : [];
  return found.slice(0, MAX_INPUTS).map(({ name, isTensor, type, shape, symbolicDimensions }) => {
    const sizes = (shape || []).map((size, at) => (size < 0 ? (symbolicDimensions || [])[at] || null : size));
    return [name, isTensor ? `tensor(${TYPES[type] || type})` : 'other', sizes];
  });
}

/** Run times of one session: log2ns[k] are the runs that took at least 2^(k-1) and less than 2^k nanoseconds. */
class Runs {
  constructor() {
    this.log2ns = {};
    // run() blocks its thread, and a session belongs to one.
    this.highWater = 0;
  }

  /**
   * Runs and counts.
   * @param {any} session
   * @param {Function} run
   * @param {any[]} args
   * @returns {any} what run returns
   */
  timed(session, run, args) {
    const began = process.hrtime();
    try {
      return Reflect.apply(run, session, args);
    } finally {
      const bucket = Math.floor(Math.log2(elapsedNs(began) || 1)) + 1;
      this.log2ns[bucket] = (this.log2ns[bucket] || 0) + 1;
      this.highWater = 1;
    }
  }
}

let sampling = false;

/**
 * Takes totals every ten seconds; never keeps the process alive.
 * @param {string | null} cgroup
 * @param {(sample: object) => void} keep
 */
function sample(cgroup, keep) {
  if (!sampling) {
    sampling = true;
    const take = () => keep(Object.assign({ at: Date.now() / 1000 }, totals.read(cgroup)));
    setInterval(take, SAMPLE_EVERY_MS).unref();
  }
}

module.exports = { Creation, Runs, sample };
