'use strict';

/**
 * What the kernel tells of a process's CPUs: their cores, caches of level 3 and NUMA nodes, as runtime/raddle/sysfs.py,
 * coretypes.py and pci.py read them. The kernel's sets are the facts; its numbers only name NUMA nodes and caches. What
 * can't be read is unknown.
 */

const path = require('path');

const kernel = require('./kernel.cjs');

const CORE_FILES = ['core_cpus_list', 'thread_siblings_list', 'core_cpus', 'thread_siblings'];
const SOCKET_FILES = ['package_cpus_list', 'core_siblings_list', 'package_cpus', 'core_siblings'];
const CACHE_FILES = ['shared_cpu_list', 'shared_cpu_map'];
const NODE_FILES = ['cpulist', 'cpumap'];
const LIST = /list$/;
const MAX_CACHES = 10;
const MAX_PCI_DEVICES = 4096;
// More kinds are a calibration of single cores.
const MAX_KINDS = 16;
// PCI vendor -> classes of its GPUs; pci.py says what is left out.
const GPU_CLASSES = {
  '0x10de': ['0x0300', '0x0302', '0x0380'],
  '0x1002': ['0x0300', '0x0302', '0x0380', '0x1200'],
  '0x8086': ['0x0302', '0x0380'],
};

/**
 * @typedef {object} Machine groups hold the process's CPUs only and are disjoint
 * @property {number[]} cpus all of them
 * @property {number[][]} cores
 * @property {{id: number, cpus: number[]}[]} l3Domains
 * @property {{id: number, cpus: number[], set: Set<number>, gpu: boolean}[]} numaNodes those that have some of the CPUs,
 *     by id
 * @property {number} nodesKnown the machine's NUMA nodes
 * @property {Set<number>} isolated
 * @property {{speed: number, cpus: Set<number>}[]} kinds kinds of core, of the whole machine; fewer than two: none known
 * @property {boolean} capacities the kinds are the kernel's capacities
 */

/**
 * @param {string} root the folder that has /sys below it
 * @param {number[]} cpus ascending
 * @param {boolean} gpu which NUMA nodes have GPUs is asked for
 * @returns {Machine}
 */
function readMachine(root, cpus, gpu) {
  const system = path.join(root, 'sys/devices/system/cpu');
  const listed = new Set(firstSet(system, ['online'], /^/));
  const online = cpus.some((cpu) => listed.has(cpu)) ? listed : new Set(cpus);
  const { cores, speakers } = readCores(system, cpus);
  const { numaNodes, nodesKnown } = readNodes(root, cpus, online);
  if (gpu && numaNodes.length > 1) {
    const nodes = gpuNodes(root);
    numaNodes.forEach((node) => (node.gpu = nodes.has(node.id)));
  }
  const l3Domains = readL3Domains(system, cpus, speakers, online);
  const isolated = new Set(firstSet(system, ['isolated'], /^/));
  const kinds = readKinds(root, Array.from(online));
  return { cpus, cores, l3Domains, numaNodes, nodesKnown, isolated, ...kinds };
}

function readCores(system, cpus) {
  const { groups, rest } = partition(cpus, (cpu) => firstSet(`${system}/cpu${cpu}/topology`, CORE_FILES));
  // A CPU that nobody speaks for counts as a core.
  const cores = groups.concat(Array.from(rest, (cpu) => [cpu])).sort(([one], [other]) => one - other);
  return { cores, speakers: new Set(cores.map((core) => core[0])) };
}

/**
 * Disjoint groups by what each CPU says of its siblings: two are together when neither denies it. `rest` are those that
 * are in none.
 */
function partition(cpus, read) {
  const rest = new Set(cpus);
  const claims = new Map();
  for (const cpu of cpus) {
    const found = read(cpu);
    if (found.length) {
      claims.set(cpu, new Set(found).add(cpu));
    }
  }
  const groups = [];
  for (const [cpu, claim] of claims) {
    if (rest.has(cpu)) {
      const agrees = (other) => rest.has(other) && (!claims.has(other) || claims.get(other).has(cpu));
      const group = Array.from(claim).filter(agrees).sort((one, other) => one - other);
      group.forEach((other) => rest.delete(other));
      groups.push(group);
    }
  }
  return { groups, rest };
}

/** The set in the first of the folder's files that has one, [] where none has. */
function firstSet(folder, files, isList) {
  return toldSet(folder, files, isList) || [];
}

/** The same, null where no file could be read. Lists are told from masks by their name. */
function toldSet(folder, files, isList = LIST) {
  let told = null;
  for (const name of files) {
    try {
      const text = kernel.read(`${folder}/${name}`);
      told = isList.test(name) ? kernel.parseList(text) : kernel.parseMask(text);
      if (told.length) {
        return told;
      }
    } catch (error) {
      // Absent on older kernels.
    }
  }
  return told;
}

/** Numbered as the kernel does where that tells them apart, else by the lowest CPU of each. */
function readL3Domains(system, cpus, speakers, online) {
  const folder = (cpu) => (speakers.has(cpu) ? l3Folder(`${system}/cpu${cpu}/cache`) : null);
  const sharing = (cpu) => (folder(cpu) === null ? [] : firstSet(folder(cpu), CACHE_FILES));
  const { groups } = partition(cpus, sharing);
  const first = groups.map((group) => group.find((cpu) => speakers.has(cpu)));
  const ids = first.map((cpu) => kernel.number(`${folder(cpu)}/id`));
  const areKnown = !ids.includes(null) && new Set(ids).size === ids.length;
  const lowest = (cpu) => sharing(cpu).filter((other) => online.has(other)).reduce((a, b) => Math.min(a, b), cpu);
  return groups.map((group, at) => ({ id: areKnown ? ids[at] : lowest(first[at]), cpus: group }));
}

/** The folder of a CPU's cache of level 3, usually the fourth; null where it has none. */
function l3Folder(caches) {
  const indices = [3, ...Array(MAX_CACHES).keys()];
  const found = indices.find((index) => kernel.number(`${caches}/index${index}/level`) === 3);
  return found === undefined ? null : `${caches}/index${found}`;
}

// --- NUMA nodes and GPUs ---------------------------------------------------------------------------------------------

function readNodes(root, cpus, online) {
  const folder = path.join(root, 'sys/devices/system/node');
  const taken = new Set();
  const numaNodes = [];
  let nodesKnown = 0;
  for (const id of numbered(folder, /^node([0-9]{1,5})$/)) {
    const found = nodeCPUs(`${folder}/node${id}`);
    const own = (found || []).filter((cpu) => online.has(cpu));
    // Firmware may let each node have all CPUs: one that names a lower node's is not believed.
    if (found !== null && !own.some((cpu) => taken.has(cpu))) {
      nodesKnown++;
      own.forEach((cpu) => taken.add(cpu));
      const set = new Set(own);
      const within = cpus.filter((cpu) => set.has(cpu));
      if (within.length) {
        numaNodes.push({ id, cpus: within, set, gpu: false });
      }
    }
  }
  return { numaNodes, nodesKnown };
}

/** A NUMA node's CPUs; by its links to them in a tree that has neither list nor mask. Null where nothing tells. */
function nodeCPUs(folder) {
  const told = toldSet(folder, NODE_FILES);
  const linked = told === null ? numbered(folder, /^cpu([0-9]{1,5})$/) : [];
  return linked.length ? linked : told;
}

/** The numbers in the names that match, ascending. */
function numbered(folder, pattern) {
  const found = kernel.names(folder).map((name) => pattern.exec(name)).filter(Boolean);
  return found.map((match) => Number(match[1])).sort((one, other) => one - other);
}

/** Ids of the NUMA nodes that have a GPU. */
function gpuNodes(root) {
  const folder = path.join(root, 'sys/bus/pci/devices');
  const nodes = new Set();
  for (const device of kernel.names(folder).slice(0, MAX_PCI_DEVICES)) {
    const text = (name) => kernel.text(`${folder}/${device}/${name}`).trim();
    const classes = GPU_CLASSES[text('vendor')];
    if (classes !== undefined && classes.includes(text('class').slice(0, 6))) {
      nodes.add(kernel.number(`${folder}/${device}/numa_node`));
    }
  }
  return nodes;
}

// --- kinds of core ---------------------------------------------------------------------------------------------------

function readKinds(root, online) {
  const system = path.join(root, 'sys/devices/system/cpu');
  const byPMU = kindsByPMU(root, online);
  if (byPMU !== null) {
    return { kinds: byPMU, capacities: false };
  }
  const byCapacity = kindsByCapacity(readEach(online, (cpu) => kernel.number(`${system}/cpu${cpu}/cpu_capacity`)));
  if (byCapacity.length) {
    return { kinds: byCapacity.length > MAX_KINDS ? [] : byCapacity, capacities: true };
  }
  return { kinds: process.arch === 'x64' ? kindsByCaches(root, system, online) : [], capacities: false };
}

/** x86: perf's PMUs of a hybrid machine; null where there are none of them. */
function kindsByPMU(root, online) {
  const [core, atom, low] = ['cpu_core', 'cpu_atom', 'cpu_lowpower'].map((name) =>
    firstSet(path.join(root, 'sys/devices', name), ['cpus'], /^/),
  );
  const present = new Set(online);
  const fast = new Set(core.filter((cpu) => present.has(cpu)));
  const slow = new Set(atom.concat(low).filter((cpu) => present.has(cpu) && !fast.has(cpu)));
  if (!fast.size && !slow.size) {
    return null;
  }
  return fast.size && slow.size ? [{ speed: 2, cpus: fast }, { speed: 1, cpus: slow }] : [];
}

/** cpu -> what is read of it; nothing where the first CPU has nothing. */
function readEach(cpus, read) {
  const found = new Map();
  for (const cpu of cpus) {
    const value = read(cpu);
    if (value !== null) {
      found.set(cpu, value);
    } else if (!found.size) {
      break;
    }
  }
  return found;
}

/** Capacities of at least seven eighths of the highest are one kind, and so on with the rest. */
function kindsByCapacity(capacities) {
  const kinds = [];
  for (const [cpu, speed] of Array.from(capacities).sort(([, one], [, other]) => other - one)) {
    const last = kinds[kinds.length - 1];
    if (last !== undefined && 8 * speed >= 7 * last.speed) {
      last.cpus.add(cpu);
    } else {
      kinds.push({ speed, cpus: new Set([cpu]) });
    }
  }
  return kinds;
}

/** x86 without any PMU: two kinds where CPUs differ in frequency and have two shapes of caches. */
function kindsByCaches(root, system, online) {
  if (kernel.isFolder(path.join(root, 'sys/devices/cpu'))) {
    return [];
  }
  const megahertz = readEach(online, (cpu) => {
    const khz = kernel.number(`${system}/cpu${cpu}/cpufreq/cpuinfo_max_freq`);
    return khz === null || khz < 1000 ? null : Math.floor(khz / 1000);
  });
  if (megahertz.size < online.length || new Set(megahertz.values()).size < 2) {
    return [];
  }
  const shapes = new Map();
  for (const [cpu, speed] of megahertz) {
    const sizes = [0, 1].map((index) => kernel.text(`${system}/cpu${cpu}/cache/index${index}/size`).trim());
    const shape = sizes.includes('') ? '' : sizes.join('|');
    const kind = shapes.get(shape) || { speed: 0, cpus: new Set() };
    kind.speed = Math.max(kind.speed, speed);
    kind.cpus.add(cpu);
    shapes.set(shape, kind);
  }
  const kinds = Array.from(shapes.values());
  return kinds.length === 2 && !shapes.has('') && kinds[0].speed !== kinds[1].speed ? kinds : [];
}

/** The process's CPUs on each socket. */
function readSockets(root, cpus) {
  const system = path.join(root, 'sys/devices/system/cpu');
  return partition(cpus, (cpu) => firstSet(`${system}/cpu${cpu}/topology`, SOCKET_FILES)).groups;
}

module.exports = { readMachine, readSockets };
