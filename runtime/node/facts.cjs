'use strict';

/**
 * What holds for this process now: the CPUs of this thread, the quota, and who else shares them.
 *
 * Workers are counted as the Python shim counts them, by processes with the same parent and command line; and, since
 * worker threads share a process, by the JavaScript threads that have loaded ONNX Runtime. Those can't share
 * variables, so each holds its own /proc/thread-self/comm open, which all see in /proc/self/fd. Node.js closes a
 * worker's files when it ends.
 */

const fs = require('fs');

const cgroup = require('./cgroup.cjs');
const kernel = require('./kernel.cjs');

// Siblings and threads of the parent that are looked at; more than this many workers share nothing useful.
const MAX_SIBLINGS = 128;
const MAX_PARENT_THREADS = 64;
const MAX_OPEN_FILES = 1024;

// This thread's entry among those that use ONNX Runtime; null: not entered.
let entry = null;

/**
 * @returns {number[] | null} the CPUs that the calling thread may run on, and its future threads with it
 */
function readCPUs() {
  const status = kernel.text('/proc/thread-self/status') || kernel.text('/proc/self/status');
  const found = /^Cpus_allowed_list:(.*)$/m.exec(status);
  try {
    const cpus = found ? kernel.parseList(found[1]) : [];
    return cpus.length ? cpus : null;
  } catch (error) {
    return null;
  }
}

/** Enters this thread among those that use ONNX Runtime. */
function enterThread() {
  try {
    entry = entry === null ? fs.openSync('/proc/thread-self/comm', 'r') : entry;
  } catch (error) {
    // Not counted by the others, and it counts itself only.
  }
}

/**
 * Ids of the living threads of this process that have entered, ascending.
 * @returns {number[]}
 */
function threads() {
  const found = new Set();
  for (const file of fs.readdirSync('/proc/self/fd').slice(0, MAX_OPEN_FILES)) {
    const thread = threadOf(file);
    if (thread !== null && fs.existsSync(`/proc/self/task/${thread}`)) {
      found.add(thread);
    }
  }
  return Array.from(found).sort((one, other) => one - other);
}

function threadOf(file) {
  try {
    const found = /^\/proc\/([0-9]+)\/task\/([0-9]+)\/comm$/.exec(fs.readlinkSync(`/proc/self/fd/${file}`));
    return found && Number(found[1]) === process.pid ? Number(found[2]) : null;
  } catch (error) {
    return null;
  }
}

/**
 * Ids of the parent's children that run the same command line, digits aside, this process among them.
 * @returns {number[]}
 * @throws where the kernel does not list children or hides the parent
 */
function siblings() {
  if (process.ppid === 0) {
    return [process.pid];
  }
  const mine = commandLine('self');
  const found = [];
  for (const thread of fs.readdirSync(`/proc/${process.ppid}/task`).slice(0, MAX_PARENT_THREADS)) {
    const children = kernel.read(`/proc/${process.ppid}/task/${thread}/children`).trim().split(/\s+/).filter(Boolean);
    found.push(...children.slice(0, MAX_SIBLINGS).filter((child) => runs(child, mine)).map(Number));
  }
  return found;
}

function commandLine(pid) {
  return kernel.read(`/proc/${pid}/cmdline`).replace(/[0-9]/g, '');
}

/** Whether the child still lives and runs this command line. */
function runs(child, line) {
  try {
    return commandLine(child) === line;
  } catch (error) {
    return false;
  }
}

/**
 * The facts of this thread. Never throws: what can't be read is null.
 * @param {number} sessions sessions that the plan expects in one process: so many threads of it are no surprise
 * @returns {import('./plan.cjs').Facts & {cgroup: string | null, first: boolean}} `cgroup`: the
 *     directory of the quota; `first`: this is the oldest worker, and its oldest thread that uses ONNX Runtime
 */
function readFacts(sessions) {
  const processes = attempt(siblings, []);
  const entered = attempt(threads, []);
  const own = attempt(() => (entry === null ? null : threadOf(entry)), null);
  return refreshed({
    workersSeen: Math.max(1, processes.length) * Math.max(1, Math.ceil(entered.length / sessions)),
    first: processes.every((pid) => pid >= process.pid) && (own === null || entered.every((thread) => thread >= own)),
  });
}

/**
 * The same facts with the CPUs and the quota of now, which a resize in place changes; the workers stay as they were.
 * Never throws.
 */
function refreshed(facts) {
  const quota = attempt(() => cgroup.readQuota(), { quotaCPUs: null, directory: null });
  return { ...facts, cpus: attempt(readCPUs, null), quotaCPUs: quota.quotaCPUs, cgroup: quota.directory };
}

function attempt(read, otherwise) {
  try {
    return read();
  } catch (error) {
    return otherwise;
  }
}

module.exports = { enterThread, readCPUs, readFacts, refreshed };
