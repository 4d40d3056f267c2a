'use strict';

/**
 * What the shim did in this thread: kept in memory, and said on stderr in one line. Nothing is written anywhere unless
 * RADDLE_REPORT names a folder.
 */

const { say } = require('./raddle.cjs');

// The runtimes that this process or one above it has said its line about: its children stay silent.
const ANNOUNCED = 'RADDLE_ANNOUNCED';
// A process that makes and drops sessions for ever must not grow.
const MAX_KEPT = 256;
const MAX_SAMPLES = 30;

// sessions: one object each, oldest first. complaints: lines in order, also those that RADDLE_LOG silenced. samples:
// totals every ten seconds. facts: as they were read last. runtimes: name -> what it says of itself.
const state = { sessions: [], complaints: [], samples: [], facts: null, runtimes: {} };
// The runtimes that this thread has said its line about.
const announced = new Set();

/** Keeps the record of one session. */
function add(session) {
  keep(state.sessions, session, MAX_KEPT);
}

/** Keeps one sample of the totals. */
function sample(totals) {
  keep(state.samples, totals, MAX_SAMPLES);
}

function keep(list, item, most) {
  list.push(item);
  if (list.length > most) {
    list.shift();
  }
  changed();
}

/** Brings this thread's report up to date, where one is asked for. */
function changed() {
  try {
    if (process.env.RADDLE_REPORT) {
      // Loaded here: without reports no process pays for it.
      require('./report.cjs').changed(() => state);
    }
  } catch (error) {
    // A report is nothing to fail for.
  }
}

/**
 * Says what was configured: once per runtime and process tree.
 * @param {string} runtime
 * @param {string} line
 */
function announce(runtime, line) {
  const said = (process.env[ANNOUNCED] || '').split(',').filter(Boolean);
  if (said.includes(runtime) || announced.has(runtime)) {
    return;
  }
  announced.add(runtime);
  try {
    process.env[ANNOUNCED] = [...said, runtime].join(',');
  } catch (error) {
    // An application may have put a frozen object in its place; then its children say the line too.
  }
  say(line);
}

/**
 * Says what went wrong: each thing once per thread.
 * @param {string} line
 */
function complain(line) {
  if (!state.complaints.includes(line) && state.complaints.length < MAX_KEPT) {
    state.complaints.push(line);
    say(line);
    changed();
  }
}

module.exports = { add, announce, complain, sample, state };
