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

// Sibling processes and threads of the parent that are looked at.
const MAX_SIBLINGS = 1024;
const MAX_PARENT_THREADS = 4096;
// A worker that started after this one may not have come to its runtime before this age.
const STARTING_S = 10;
const TICKS_PER_S = 100;
// What the base name of the runtime's mapped file contains.
const LIBRARY = 'onnxruntime';
const CHUNK_BYTES = 65536;
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
  // A child is listed by the thread that made it.
  for (const thread of fs.readdirSync(`/proc/${process.ppid}/task`).slice(0, MAX_PARENT_THREADS)) {
    const children = kernel.text(`/proc/${process.ppid}/task/${thread}/children`).trim().split(/\s+/).filter(Boolean);
    for (const child of children) {
      if (found.length < MAX_SIBLINGS && runs(child, mine)) {
        found.push(Number(child));
      }
    }
  }
  return found;
}

/**
 * Those that have the runtime, or may be about to: they started after this one, and only seconds ago. One that started
 * before has had the time: its mappings tell. What can't be read for lack of rights counts.
 */
function serving(processes) {
  const me = process.pid;
  const mine = startedAt(me);
  const now = mine + process.uptime() * TICKS_PER_S;
  return processes.filter((pid) => {
    try {
      if (pid === me || hasRuntime(pid)) {
        return true;
      }
      const theirs = startedAt(pid);
      return (theirs > mine || (theirs === mine && pid > me)) && now - theirs <= STARTING_S * TICKS_PER_S;
    } catch (error) {
      return error.code === 'EACCES' || error.code === 'EPERM';
    }
  });
}

/** When the process was started, in hundredths of a second since boot: proc(5), /proc/<pid>/stat, field 22. */
function startedAt(pid) {
  const text = kernel.read(`/proc/${pid}/stat`);
  // The program's name, in brackets, may hold anything.
  return Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[19]);
}

function hasRuntime(pid) {
  const file = fs.openSync(`/proc/${pid}/maps`, 'r');
  try {
    const chunk = Buffer.alloc(CHUNK_BYTES);
    let rest = '';
    for (;;) {
      const got = fs.readSync(file, chunk, 0, CHUNK_BYTES, null);
      const lines = (rest + chunk.toString('latin1', 0, got)).split('\n');
      if (lines.some((line) => line.slice(line.lastIndexOf('/') + 1).includes(LIBRARY))) {
        return true;
      }
      if (got === 0) {
        return false;
      }
      rest = lines[lines.length - 1];
    }
  } finally {
    fs.closeSync(file);
  }
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
 * @param {number} planned workers that it expects: where there are more, only those that have the runtime count
 * @returns {import('./plan.cjs').Facts & {cgroup: string | null, first: boolean}} `cgroup`: the
 *     directory of the quota; `first`: this is the oldest worker, and its oldest thread that uses ONNX Runtime
 */
function readFacts(sessions, planned) {
  const similar = attempt(siblings, []);
  const crowded = similar.length > planned;
  const processes = crowded ? attempt(() => serving(similar), similar) : similar;
  const entered = attempt(threads, []);
  const own = attempt(() => (entry === null ? null : threadOf(entry)), null);
  return refreshed({
    workersSeen: Math.max(crowded ? planned : 1, processes.length) * Math.max(1, Math.ceil(entered.length / sessions)),
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
