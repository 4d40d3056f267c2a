'use strict';

/**
 * Which CPUs the workers of a pool are tied to within exclusive CPUs, in ONNX Runtime's words. The same groups as
 * runtime/raddle/placement.py, which says why; only what the kernel tells of these CPUs is read.
 */

const fs = require('fs');
const path = require('path');

const kernel = require('./kernel.cjs');

const CORE_FILES = ['core_cpus_list', 'thread_siblings_list'];
// Linux's cpu_set_t, which ONNX Runtime uses, ends here.
const CPU_SETSIZE = 1024;
// What every version takes for a configuration entry.
const MAX_TEXT = 1024;
const MAX_CACHES = 16;

/**
 * One CPU set for each of the threads - 1 workers; the caller is never pinned. "" where nothing sensible can be said.
 * @param {number[]} cpus the exclusive CPUs
 * @param {number} threads the pool's size
 * @param {'numa' | 'core'} affinity `numa`: all of the set's CPUs on the worker's NUMA node; `core`: a core each
 * @param {string} [root] the folder that has /sys below it
 * @returns {string}
 */
function affinityText(cpus, threads, affinity, root = '/') {
  if (threads < 2 || threads > cpus.length) {
    return '';
  }
  const nodes = readNodes(root, cpus);
  let cores = coresInOrder(root, cpus, nodes);
  if (threads > cores.length) {
    // All threads of a core are wanted: first one CPU of each core, then their siblings.
    const depth = Math.max(...cores.map((core) => core.length));
    const level = (n) => cores.filter((core) => core.length > n).map((core) => [core[n]]);
    cores = [].concat(...Array.from({ length: depth }, (_, n) => level(n)));
  }
  const workers = cores.slice(1, threads);
  const share = (core) => nodes.find((node) => overlap(node, core)) || cpus;
  return groupsText(affinity === 'core' ? workers : workers.map(share));
}

/**
 * ONNX Runtime's string for one CPU set per worker: ids from 1, each group a range or a list, no spaces. "" where it
 * can't be written (onnxruntime/core/util/thread_utils.cc, ReadThreadAffinityConfig).
 * @param {number[][]} groups
 * @returns {string}
 */
function groupsText(groups) {
  if (!groups.every((group) => group.length && group[group.length - 1] < CPU_SETSIZE)) {
    return '';
  }
  const text = groups.map((group) => {
    const first = group[0] + 1;
    const last = group[group.length - 1] + 1;
    const isRange = group.length > 1 && group.length === last - first + 1;
    return isRange ? `${first}-${last}` : group.map((cpu) => cpu + 1).join(',');
  });
  return text.join(';').length <= MAX_TEXT ? text.join(';') : '';
}

/** The cores within the set, by (NUMA node, most of the set first; L3 domain, most of the set first; lowest CPU). */
function coresInOrder(root, cpus, nodes) {
  const folder = (cpu) => path.join(root, `sys/devices/system/cpu/cpu${cpu}`);
  const cores = grouped(cpus, (cpu) => firstList(CORE_FILES.map((name) => `${folder(cpu)}/topology/${name}`)));
  const domains = grouped(cpus, (cpu) => l3Of(`${folder(cpu)}/cache`));
  const ranked = (groups) => groups.slice().sort((one, other) => other.length - one.length);
  const numa = ranked(nodes);
  const l3 = ranked(domains);
  const rank = (groups, core) => {
    const found = groups.findIndex((group) => overlap(group, core));
    return found < 0 ? groups.length : found;
  };
  const key = (core) => [rank(numa, core), rank(l3, core), core[0]];
  return cores.sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    return a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
  });
}

/** Disjoint groups of the CPUs, by lowest CPU: two are together when neither denies it; one that is silent is alone. */
function grouped(cpus, read) {
  const claims = new Map(cpus.map((cpu) => [cpu, new Set(read(cpu)).add(cpu)]));
  const groups = [];
  const placed = new Set();
  for (const cpu of cpus) {
    if (!placed.has(cpu)) {
      const together = (other) => !placed.has(other) && claims.get(cpu).has(other) && claims.get(other).has(cpu);
      const group = cpus.filter(together);
      group.forEach((other) => placed.add(other));
      groups.push(group);
    }
  }
  return groups;
}

/** The set's CPUs on each NUMA node, by the node's id. */
function readNodes(root, cpus) {
  const folder = path.join(root, 'sys/devices/system/node');
  const rest = new Set(cpus);
  return numbered(folder, /^node([0-9]{1,5})$/).map((node) => {
    const own = firstList([`${folder}/node${node}/cpulist`]).filter((cpu) => rest.delete(cpu));
    return own;
  });
}

function numbered(folder, pattern) {
  const found = list(folder).map((name) => pattern.exec(name)).filter(Boolean);
  return found.map((match) => Number(match[1])).sort((one, other) => one - other);
}

function list(folder) {
  try {
    return fs.readdirSync(folder);
  } catch (error) {
    return [];
  }
}

function l3Of(folder) {
  for (const index of numbered(folder, /^index([0-9]{1,3})$/).slice(0, MAX_CACHES)) {
    if (kernel.number(`${folder}/index${index}/level`) === 3) {
      return firstList([`${folder}/index${index}/shared_cpu_list`]);
    }
  }
  return [];
}

/** The set in the first of these files that has one. */
function firstList(paths) {
  for (const file of paths) {
    try {
      const cpus = kernel.parseList(kernel.read(file));
      if (cpus.length) {
        return cpus;
      }
    } catch (error) {
      // Absent on older kernels.
    }
  }
  return [];
}

function overlap(one, other) {
  return one.some((cpu) => other.includes(cpu));
}

module.exports = { affinityText, groupsText };
