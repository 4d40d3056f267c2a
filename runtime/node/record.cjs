'use strict';

/** What the shim did in this thread: kept in memory, and said on stderr in one line. */

const fs = require('fs');

// The runtimes that this process or one above it has said its line about: its children stay silent.
const ANNOUNCED = 'RADDLE_ANNOUNCED';
// A process that makes and drops sessions for ever must not grow.
const MAX_KEPT = 256;

// One object a session, oldest first.
const sessions = [];
// Lines of `complain`, in order, also those that RADDLE_LOG silenced.
const complaints = [];

/** Keeps the record of one session. */
function add(session) {
  sessions.push(session);
  if (sessions.length > MAX_KEPT) {
    sessions.shift();
  }
}

/**
 * Says what was configured: once per runtime and process tree.
 * @param {string} runtime
 * @param {string} line
 */
function announce(runtime, line) {
  const said = (process.env[ANNOUNCED] || '').split(',').filter(Boolean);
  if (!said.includes(runtime)) {
    process.env[ANNOUNCED] = [...said, runtime].join(',');
    say(line);
  }
}

/**
 * Says what went wrong: each thing once per thread.
 * @param {string} line
 */
function complain(line) {
  if (!complaints.includes(line) && complaints.length < MAX_KEPT) {
    complaints.push(line);
    say(line);
  }
}

function say(line) {
  try {
    if (process.env.RADDLE_LOG !== '0') {
      // Not process.stderr: a worker thread's is a stream to the main thread, which may be busy for long.
      fs.writeSync(2, `raddle: ${line.split('\n').join(' ')}\n`);
    }
  } catch (error) {
    // A closed stderr is the application's choice.
  }
}

module.exports = { add, announce, complain, complaints, sessions };
