'use strict';

/**
 * How many threads exclusive CPUs have room for, and where each goes, in ONNX Runtime's words: what
 * runtime/raddle/placement.py decides, which says why.
 */

const { readMachine, readSockets } = require('./topology.cjs');

// Linux's cpu_set_t, which ONNX Runtime uses, ends here.
const CPU_SETSIZE = 1024;
// What every version takes for a configuration entry.
const MAX_TEXT = 1024;

/** Where a pool goes on exclusive CPUs. */
class Placement {
  /**
   * @param {number[]} cpus the exclusive CPUs, ascending
   * @param {Record<string, any>} fields the plan
   * @param {string} [root] the folder that has /sys below it
   */
  constructor(cpus, fields, root = '/') {
    this.machine = readMachine(root, cpus, fields.gpu === 1);
    this.allThreads = fields.smt === 1;
    this.uncut = this.ofOneKind(fields.ctype);
    const node = this.cutToNode(fields.numa);
    const socket = node === null && fields.numa === undefined ? this.cutToSocket(root) : null;
    this.cutTo = node ? ' on one NUMA node' : socket ? ' on one socket' : '';
    this.pool = node || socket || this.uncut;
    /** How many threads there is room for. */
    this.threads = this.units(this.pool).length;
  }

  /** `threads` in words: "6 physical cores of one type on one NUMA node". */
  get because() {
    const { threads } = this;
    const words = `${threads} ${this.allThreads ? 'CPU' : 'physical core'}${threads === 1 ? '' : 's'}`;
    return `${words}${this.kindsTaken()}${this.cutTo}`;
  }

  kindsTaken() {
    const taken = this.machine.kinds.filter((kind) => this.pool.some((cpu) => kind.cpus.has(cpu)));
    return !this.keepsToKinds ? '' : taken.length < 2 ? ' of one type' : ' of the faster types';
  }

  ofOneKind(wanted) {
    const { cpus, kinds, capacities } = this.machine;
    this.keepsToKinds = wanted !== 'any' && kinds.length > 1;
    if (!this.keepsToKinds) {
      return cpus;
    }
    const bySpeed = kinds.slice().sort((one, other) => other.speed - one.speed);
    const within = (kind) => cpus.filter((cpu) => kind.cpus.has(cpu));
    if (wanted !== undefined) {
      const order = wanted === 'efficient' ? bySpeed.reverse() : bySpeed;
      return order.map(within).find((found) => found.length) || cpus;
    }
    // All but the slowest: Arm clusters come in many small kinds. But a slow kind of more than twice as many cores.
    const slowest = bySpeed[bySpeed.length - 1];
    const slow = within(slowest);
    const fast = capacities ? cpus.filter((cpu) => !slowest.cpus.has(cpu)) : within(bySpeed[0]);
    const [few, many] = [this.oneEach(fast).length, this.oneEach(slow).length];
    return many > 2 * few ? slow : fast.length ? fast : cpus;
  }

  /** The lowest CPU of each core in the set. */
  oneEach(cpus) {
    const inside = new Set(cpus);
    const lowest = this.machine.cores.map((core) => core.find((cpu) => inside.has(cpu)));
    return lowest.filter((cpu) => cpu !== undefined);
  }

  units(cpus) {
    return this.allThreads ? cpus : this.oneEach(cpus);
  }

  /** The pool's CPUs on the NUMA node that holds enough of it; null where none does. */
  cutToNode(wanted) {
    const units = this.units(this.uncut);
    const shares = this.machine.numaNodes.map((node) => {
      const within = (cpus) => cpus.filter((cpu) => node.set.has(cpu));
      const inside = within(this.uncut);
      return { inside, key: [-within(units).length, node.gpu ? 0 : 1, -inside.length, node.id] };
    });
    const best = shares.sort((one, other) => compare(one.key, other.key))[0];
    if (wanted === 'any' || this.machine.nodesKnown < 2 || best === undefined) {
      return null;
    }
    const share = -best.key[0];
    const isEnough = wanted === 'single' || 4 * share >= 3 * units.length;
    return isEnough && share > 0 && share < units.length ? best.inside : null;
  }

  /** The same of a socket, where one NUMA node has all of the pool: several sockets may be told as one node. */
  cutToSocket(root) {
    const units = this.units(this.uncut);
    const within = (group) => units.filter((cpu) => group.has(cpu)).length;
    const shares = this.machine.nodesKnown < 2 ? [] : this.machine.numaNodes.map((node) => within(node.set));
    if (shares.some((share) => share > 0 && share < units.length)) {
      return null;
    }
    const sockets = readSockets(root, this.machine.cpus).map((socket) => new Set(socket));
    const enough = sockets.find((socket) => within(socket) < units.length && 4 * within(socket) >= 3 * units.length);
    return enough === undefined ? null : this.uncut.filter((cpu) => enough.has(cpu));
  }

  /**
   * One CPU set for each of the threads - 1 workers in ONNX Runtime's words; the caller is never pinned. "" where
   * nothing sensible can be said.
   * @param {number} threads the pool's size
   * @param {'numa' | 'core'} affinity `numa`: all of the pool's CPUs on the worker's NUMA node; `core`: a core each
   * @returns {string}
   */
  affinityText(threads, affinity) {
    if (threads < 2 || threads > this.machine.cpus.length) {
      return '';
    }
    const pool = this.poolFor(threads);
    const text = groupsText(this.groups(pool, threads, affinity));
    const lowest = this.oneEach(pool);
    // Too long with the idle siblings: servers number them apart, so that each group is a list.
    const isTooLong = text === '' && affinity === 'numa' && lowest.length >= threads;
    return isTooLong ? groupsText(this.groups(lowest, threads, affinity)) : text;
  }

  /**
   * A count of a policy's or of the code's own may be above what was placed: the first set that has room, with a core
   * for each where that is wanted and can be.
   */
  poolFor(threads) {
    const pools = [this.pool, this.uncut];
    const withUnits = pools.find((cpus) => this.units(cpus).length >= threads);
    return withUnits || pools.find((cpus) => cpus.length >= threads) || this.machine.cpus;
  }

  groups(pool, threads, affinity) {
    let units = this.coresInOrder(pool);
    if (threads > units.length) {
      // All threads of a core are wanted: first one CPU of each core, then their siblings.
      const depth = Math.max(...units.map((core) => core.length));
      const level = (n) => units.filter((core) => core.length > n).map((core) => [core[n]]);
      units = [].concat(...Array.from({ length: depth }, (_, n) => level(n)));
    }
    const workers = units.slice(1, threads);
    return affinity === 'core' ? workers : this.shares(pool, workers);
  }

  /** All of the pool's CPUs on the NUMA node of each unit. */
  shares(pool, units) {
    const { isolated, numaNodes } = this.machine;
    const balanced = pool.filter((cpu) => !isolated.has(cpu));
    const found = new Map();
    return units.map((unit) => {
      if (unit.some((cpu) => isolated.has(cpu))) {
        // The scheduler balances no threads between isolated CPUs: each has its own.
        return unit;
      }
      const node = numaNodes.find(({ set }) => unit.some((cpu) => set.has(cpu)));
      if (!found.has(node)) {
        found.set(node, node === undefined ? balanced : balanced.filter((cpu) => node.set.has(cpu)));
      }
      return found.get(node);
    });
  }

  /** The cores within the set, by (NUMA node, most of the set first; L3 domain, most of the set first; lowest CPU). */
  coresInOrder(pool) {
    const inside = new Set(pool);
    const within = (cpus) => cpus.filter((cpu) => inside.has(cpu));
    const numa = ranks(this.machine.numaNodes.map((node) => [within(node.cpus), node.gpu ? 0 : 1, node.id]));
    const l3 = ranks(this.machine.l3Domains.map((domain) => [within(domain.cpus), 0, domain.id]));
    const rank = (found, cpu) => (found.has(cpu) ? found.get(cpu) : Infinity);
    const seats = this.machine.cores.map(within).filter((core) => core.length);
    const keyed = seats.map((core) => ({ core, key: [rank(numa, core[0]), rank(l3, core[0]), core[0]] }));
    return keyed.sort((one, other) => compare(one.key, other.key)).map(({ core }) => core);
  }
}

/** cpu -> the rank of its group; groups are [cpus, key, key], most CPUs first, then by the keys. */
function ranks(groups) {
  const order = groups.slice().sort(([one, ...keys], [other, ...others]) =>
    compare([-one.length, ...keys], [-other.length, ...others]),
  );
  const found = new Map();
  order.forEach(([cpus], rank) => cpus.forEach((cpu) => found.set(cpu, rank)));
  return found;
}

function compare(one, other) {
  const at = one.findIndex((value, index) => value !== other[index]);
  return at < 0 ? 0 : one[at] < other[at] ? -1 : 1;
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
  // Most groups are the same: each is written once.
  const written = new Map(groups.map((group) => [group, '']));
  for (const group of written.keys()) {
    const first = group[0] + 1;
    const last = group[group.length - 1] + 1;
    const isRange = group.length > 1 && group.length === last - first + 1;
    written.set(group, isRange ? `${first}-${last}` : group.map((cpu) => cpu + 1).join(','));
  }
  const text = groups.map((group) => written.get(group)).join(';');
  return text.length <= MAX_TEXT ? text : '';
}

module.exports = { Placement, groupsText };
