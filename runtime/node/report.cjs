'use strict';

/**
 * One JSON file a thread in the folder that RADDLE_REPORT names, in the form of runtime/raddle/report.py.
 *
 * It is written when a session was created or something went wrong, and at exit; a burst of eight writes at once, then
 * at most one a second. A folder that is missing, full or read-only is left alone without a word.
 */

const fs = require('fs');
const path = require('path');

const kernel = require('./kernel.cjs');
const totals = require('./totals.cjs');

const VERSION = 1;
const RADDLE = '0.1.0';
const MAX_FILES = 64;
const MAX_BYTES = 16384;
const MAX_BURST = 8;
const MAX_PLAN_TEXT = 4096;
// Of the parts that the runtime or the application has a say in.
const MAX_COMPLAINTS = 16;
const MAX_LINE = 300;
const MAX_CPU_LIST = 1024;
const MAX_COMMAND = 64;
// Bytes at each end of a model that tell it from others.
const MODEL_END_BYTES = 65536;

const startedAt = Date.now();
let exists = false;
let listening = false;
let writesLeft = MAX_BURST;
let refilledAt = startedAt;

/**
 * Brings this thread's file up to date, if it may be written now. Never throws.
 * @param {() => object} state {sessions, complaints, samples, facts, runtimes} as `record` holds them
 * @param {boolean} [atExit] the last write, which is always made
 */
function changed(state, atExit = false) {
  try {
    if (!listening) {
      listening = true;
      process.on('exit', () => changed(state, true));
    }
    if (atExit || mayWrite()) {
      put(process.env.RADDLE_REPORT, fitted(documentOf(state(), atExit), state().sessions));
    }
  } catch (error) {
    // The folder is the platform's; the application must not notice.
  }
}

function mayWrite() {
  const now = Date.now();
  writesLeft = Math.min(MAX_BURST, writesLeft + Math.max(0, now - refilledAt) / 1000);
  refilledAt = now;
  if (writesLeft < 1) {
    return false;
  }
  writesLeft -= 1;
  return true;
}

// Threads of a process start in the same millisecond: chance tells them apart.
const name = `${process.pid}-${Math.floor(Math.random() * 0x100000000).toString(16).padStart(8, '0')}.json`;

function put(folder, text) {
  if (!exists && fs.readdirSync(folder).length >= MAX_FILES) {
    return;
  }
  const file = path.join(folder, name);
  const unfinished = path.join(folder, `.${name}.tmp`);
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
  try {
    // Not blocking: a FIFO may stand there.
    const flag = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK;
    fs.writeFileSync(unfinished, text, { flag, mode: 0o644 });
    fs.renameSync(unfinished, file);
  } catch (error) {
    fs.unlinkSync(unfinished);
    throw error;
  }
  if (!exists && fs.readdirSync(folder).length > MAX_FILES) {
    // Others came at the same time; each takes its own back.
    fs.unlinkSync(file);
    return;
  }
  exists = true;
}

/** The report without its sessions. */
function documentOf(state, atExit) {
  const { facts } = state;
  const document = {
    v: VERSION,
    raddle: RADDLE,
    pid: process.pid,
    language: 'node',
    // The program's name without its folder and arguments, which may hold secrets.
    command: path.basename(process.argv[1] || '').slice(0, MAX_COMMAND),
    startedAt: startedAt / 1000,
    writtenAt: Date.now() / 1000,
    plan: (process.env.RADDLE_PLAN || '').slice(0, MAX_PLAN_TEXT),
    facts: {},
    runtimes: state.runtimes,
    complaints: state.complaints.slice(0, MAX_COMPLAINTS).map((line) => line.slice(0, MAX_LINE)),
  };
  if (facts) {
    if (facts.cpus) {
      document.facts.cpus = kernel.formatList(facts.cpus).slice(0, MAX_CPU_LIST);
    }
    if (facts.quotaCPUs !== null) {
      document.facts.quotaCPUs = facts.quotaCPUs;
    }
    document.facts.workersSeen = facts.workersSeen;
  }
  if (state.samples.length) {
    document.samples = state.samples;
  }
  if (atExit) {
    document.atExit = Object.assign({ at: Date.now() / 1000 }, totals.read(facts ? facts.cgroup : null));
  }
  return document;
}

/** The whole document in MAX_BYTES: the oldest sessions are dropped, and `truncated` counts them. */
function fitted(document, sessions) {
  if (bytes(document) > MAX_BYTES / 2) {
    delete document.samples;
  }
  const texts = sessions.map((session) => JSON.stringify(session));
  const kept = [];
  let room = MAX_BYTES - bytes(document) - bytes({ truncated: texts.length, sessions: [] });
  for (const text of texts.reverse()) {
    room -= Buffer.byteLength(text) + 1;
    if (room < 0) {
      document.truncated = texts.length - kept.length;
      break;
    }
    kept.unshift(text);
  }
  return `${JSON.stringify(document).slice(0, -1)},"sessions":[${kept.join(',')}]}`;
}

function bytes(document) {
  return Buffer.byteLength(JSON.stringify(document));
}

/**
 * A model's size, and CRC-32 of its first and last 64 KiB; undefined where it can't be read.
 * @param {any[]} args of loadModel: (path, options) or (buffer, offset, length, options)
 * @returns {{bytes: number, head: string, tail: string} | undefined}
 */
function identity(args) {
  try {
    if (typeof args[0] !== 'string') {
      const whole = Buffer.from(args[0], args[1], args[2]);
      return identityOf(whole.length, whole.subarray(0, MODEL_END_BYTES), whole.subarray(-MODEL_END_BYTES));
    }
    const file = fs.openSync(args[0], 'r');
    try {
      const size = fs.fstatSync(file).size;
      const end = (at) => {
        const part = Buffer.alloc(Math.min(size, MODEL_END_BYTES));
        return part.subarray(0, fs.readSync(file, part, 0, part.length, at));
      };
      return identityOf(size, end(0), end(Math.max(0, size - MODEL_END_BYTES)));
    } finally {
      fs.closeSync(file);
    }
  } catch (error) {
    return undefined;
  }
}

function identityOf(size, head, tail) {
  return { bytes: size, head: crc32(head), tail: crc32(tail) };
}

let table = null;

/**
 * CRC-32 as zlib computes it, eight hex digits; Node.js has its own since 22.
 * @param {Buffer} data
 * @returns {string}
 */
function crc32(data) {
  if (table === null) {
    const step = (value) => (value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1);
    table = Int32Array.from({ length: 256 }, (_, byte) => Array.from({ length: 8 }).reduce(step, byte));
  }
  let value = -1;
  for (const byte of data) {
    value = (value >>> 8) ^ table[(value ^ byte) & 0xff];
  }
  return (~value >>> 0).toString(16).padStart(8, '0');
}

module.exports = { RADDLE, changed, crc32, identity };
