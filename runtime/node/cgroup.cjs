'use strict';

/**
 * The CPU quota of a process: of the tightest cgroup that it can see, version 1 and 2.
 *
 * The part of runtime/raddle/cgroup.py that a plan needs; that file says where each rule comes from, and
 * tests/contract compares the answers.
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
  ['\\134', '\\'],
];

/**
 * @typedef {object} Quota
 * @property {number | null} quotaCPUs CPU time per time; null: no limit is set or none can be seen
 * @property {string | null} directory that cgroup's; the process's own where no limit is set; null: none can be seen
 */

/**
 * The quota of this process by the /proc and the cgroup mounts below `root`. Never throws.
 * @param {string} [root]
 * @returns {Quota}
 */
function readQuota(root = '/') {
  const proc = path.join(root, 'proc/self');
  const own = parseOwn(kernel.text(path.join(proc, 'cgroup')));
  const version = own.has('cpu') ? 1 : 2;
  const hierarchy = version === 1 ? 'cpu' : '';
  if (!own.has(hierarchy)) {
    return { quotaCPUs: null, directory: null };
  }
  const mounts = parseMounts(kernel.text(path.join(proc, 'mountinfo'), MAX_MOUNTINFO_BYTES), hierarchy);
  const directories = visible(root, own.get(hierarchy), mounts);
  let tightest = { quotaCPUs: null, directory: directories.length ? directories[0] : null };
  for (const directory of directories) {
    const quotaCPUs = quotaOf(version, directory);
    if (quotaCPUs !== null && (tightest.quotaCPUs === null || quotaCPUs < tightest.quotaCPUs)) {
      tightest = { quotaCPUs, directory };
    }
  }
  return tightest;
}

/** Controller -> the process's path in its hierarchy, of /proc/PID/cgroup; "" is the hierarchy of version 2. */
function parseOwn(text) {
  const own = new Map();
  for (const line of text.split('\n')) {
    const found = /^[^:]*:([^:]*):(.*)$/.exec(line);
    if (found) {
      found[1].split(',').forEach((controller) => own.set(controller, found[2]));
    }
  }
  return own;
}

/** The mounts of one hierarchy, of /proc/PID/mountinfo: [root within the hierarchy, mount point] each. */
function parseMounts(text, hierarchy) {
  const mounts = [];
  for (const line of text.split('\n')) {
    const dash = line.indexOf(' - ');
    const fields = line.slice(0, dash).split(' ');
    const kind = line.slice(dash + 3).split(' ');
    if (dash < 0 || fields.length < 5 || kind.length < 3 || !['cgroup', 'cgroup2'].includes(kind[0])) {
      continue;
    }
    const controllers = kind[0] === 'cgroup' ? kind[2].split(',') : [''];
    if (controllers.includes(hierarchy)) {
      mounts.push([unescaped(fields[3]), unescaped(fields[4])]);
    }
  }
  return mounts;
}

function unescaped(text) {
  return ESCAPES.reduce((result, [escape, char]) => result.split(escape).join(char), text);
}

/** The directories that can be seen of one hierarchy, from the process's own upwards, by the mount that shows most. */
function visible(root, own, mounts) {
  let found = [];
  for (const [mountRoot, mountPoint] of mounts) {
    const below = visiblePath(own, mountRoot);
    if (below === null) {
      continue;
    }
    let directory = path.join(root, mountPoint);
    const chain = [directory];
    for (const name of below) {
      directory = `${directory}/${name}`;
      chain.unshift(directory);
    }
    const present = chain.filter(isDirectory);
    if (present.length > found.length) {
      found = present;
    }
  }
  return found;
}

/** The process's path below the mount as names; [] where only its top is known to be above us; null: another part. */
function visiblePath(own, mountRoot) {
  const names = own.split('/').filter(Boolean);
  const above = mountRoot.split('/').filter(Boolean);
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
