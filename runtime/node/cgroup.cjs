'use strict';

/**
 * The CPU quota of a process: of the tightest cgroup that it can see, version 1 and 2.
 *
 * The part of runtime/raddle/cgroup.py and cgroupfs.py that a plan needs; those files say where each rule comes from,
 * and tests/contract compares the answers. Trees that lack mountinfo are read by Python only: a running process has it.
 */

const fs = require('fs');
const path = require('path');

const kernel = require('./kernel.cjs');

// A host may have thousands of mounts.
const MAX_MOUNTINFO_BYTES = 4 * 1024 * 1024;
// Octal escapes of fs/proc_namespace.c.
const ESCAPES = [
  ['\\040', ' '],
  ['\\011', '\t'],
  ['\\012', '\n'],
  ['\\043', '#'],
  ['\\134', '\\'],
];

/**
 * @typedef {object} Quota
 * @property {number | null} quotaCPUs CPU time per time; null: no limit is set or none can be seen
 * @property {string | null} directory that cgroup's; the thread's own where no limit is set; null: that is out of sight
 */

/**
 * The quota of the calling thread, and of those that it starts, by the /proc and the cgroup mounts below `root`.
 * Never throws.
 * @param {string} [root]
 * @returns {Quota}
 */
function readQuota(root = '/') {
  const thread = path.join(root, 'proc/thread-self');
  const proc = isDirectory(thread) ? thread : path.join(root, 'proc/self');
  const own = parseOwn(kernel.text(path.join(proc, 'cgroup')));
  const mountinfo = kernel.text(path.join(proc, 'mountinfo'), MAX_MOUNTINFO_BYTES);
  let version = own.has('cpu') || own.size === 0 ? 1 : 2;
  const ownPath = own.size === 0 ? '/' : own.get(version === 1 ? 'cpu' : '');
  if (ownPath === undefined) {
    return { quotaCPUs: null, directory: null };
  }
  let directories = visible(root, ownPath, parseMounts(mountinfo, version));
  if (own.size === 0 && directories.size === 0) {
    // The path is not told: what holds at the mount's top holds here too.
    version = 2;
    directories = visible(root, ownPath, parseMounts(mountinfo, version));
  }
  let tightest = { quotaCPUs: null, directory: (own.size && directories.get(depthOf(ownPath))) || null };
  for (const depth of Array.from(directories.keys()).sort((one, other) => other - one)) {
    const quotaCPUs = quotaOf(version, directories.get(depth));
    if (quotaCPUs !== null && (tightest.quotaCPUs === null || quotaCPUs < tightest.quotaCPUs)) {
      tightest = { quotaCPUs, directory: directories.get(depth) };
    }
  }
  return tightest;
}

/** Controller -> the process's path in its hierarchy, of /proc/PID/cgroup; "" is the hierarchy of version 2. */
function parseOwn(text) {
  const own = new Map();
  for (const line of text.split('\n')) {
    const found = /^[^:]*:([^:]*):([^]*)$/.exec(line);
    if (found) {
      found[1].split(',').forEach((controller) => own.set(controller, found[2]));
    }
  }
  return own;
}

/**
 * The mounts of the hierarchy that has the cpu controller, of /proc/PID/mountinfo: [root within the hierarchy, mount
 * point] each. A mount that another covers is left out.
 */
function parseMounts(text, version) {
  const shown = new Map();
  for (const line of text.split('\n')) {
    const dash = line.indexOf(' - ');
    const fields = line.slice(0, dash).split(' ');
    const kind = line.slice(dash + 3).split(' ');
    if (dash < 0 || fields.length < 5 || kind.length < 3) {
      continue;
    }
    const wanted = version === 2 ? kind[0] === 'cgroup2' : kind[0] === 'cgroup' && kind[2].split(',').includes('cpu');
    shown.set(fields[4], wanted ? [unescaped(fields[3]), unescaped(fields[4])] : null);
  }
  return Array.from(shown.values()).filter(Boolean);
}

function unescaped(text) {
  return ESCAPES.reduce((result, [escape, char]) => result.split(escape).join(char), text);
}

/** Depth -> directory of the process's own cgroup and its ancestors, as far as one of the mounts shows them. */
function visible(root, own, mounts) {
  const found = new Map();
  for (const [mountRoot, mountPoint] of mounts) {
    const below = visiblePath(own, mountRoot);
    let directory = path.join(root, mountPoint);
    let depth = depthOf(mountRoot);
    for (const name of below === null ? [] : ['', ...below]) {
      if (name !== '') {
        directory = `${directory}/${name}`;
        depth += 1;
      }
      if (!found.has(depth) && isDirectory(directory)) {
        found.set(depth, directory);
      }
    }
  }
  return found;
}

/** How far below the namespace's root the path's cgroup is; negative above it. */
function depthOf(text) {
  return namesOf(text).reduce((depth, name) => depth + (name === '..' ? -1 : 1), 0);
}

function namesOf(text) {
  return text.split('/').filter(Boolean);
}

/** The process's path below the mount as names; [] where only its top is known to be above us; null: another part. */
function visiblePath(own, mountRoot) {
  const names = namesOf(own);
  const above = namesOf(mountRoot);
  if (above.every((name, index) => names[index] === name)) {
    const below = names.slice(above.length);
    return below.includes('..') ? null : below;
  }
  return above.every((name) => name === '..') ? [] : null;
}

function isDirectory(directory) {
  try {
    return fs.statSync(directory).isDirectory();
  } catch (error) {
    return false;
  }
}

function quotaOf(version, directory) {
  if (version === 1) {
    return ratio(kernel.number(`${directory}/cpu.cfs_quota_us`), kernel.number(`${directory}/cpu.cfs_period_us`));
  }
  const words = kernel.text(`${directory}/cpu.max`).trim().split(/\s+/);
  return words.length === 2 && words.every(kernel.isNumber) ? ratio(Number(words[0]), Number(words[1])) : null;
}

/** 0 and null are "no quota", which version 1 writes as -1. */
function ratio(quotaUs, periodUs) {
  return quotaUs && periodUs ? quotaUs / periodUs : null;
}

module.exports = { readQuota };
