'use strict';

/**
 * What the process and its cgroup have used so far: totals since each began, so that two readings make a rate.
 * The names are those of runtime/raddle/totals.py.
 */

const fs = require('fs');

const kernel = require('./kernel.cjs');

// cpu.stat's line -> the name here, and what it is divided by.
const CPU_STAT = {
  usage_usec: ['cpuUs', 1],
  nr_periods: ['periods', 1],
  nr_throttled: ['throttledPeriods', 1],
  throttled_usec: ['throttledUs', 1],
  throttled_time: ['throttledUs', 1000],
};

/**
 * The totals now; what can't be read is absent. Never throws.
 * @param {string | null} directory of the cgroup that bounds the container's CPUs
 * @returns {Record<string, number>}
 */
function read(directory) {
  const found = {};
  try {
    const { user, system } = process.cpuUsage();
    found.processCpuUs = user + system;
  } catch (error) {
    // Sandboxes without getrusage.
  }
  const count = tasks();
  if (count !== null) {
    found.tasks = count;
  }
  return directory === null ? found : Object.assign(found, ofCgroup(directory));
}

/** @returns {number | null} threads of this process */
function tasks() {
  try {
    return fs.readdirSync('/proc/self/task').length;
  } catch (error) {
    return null;
  }
}

function ofCgroup(directory) {
  const found = {};
  for (const line of kernel.text(`${directory}/cpu.stat`).split('\n')) {
    const [key, value] = line.split(' ', 2);
    if (Object.prototype.hasOwnProperty.call(CPU_STAT, key) && kernel.isNumber(value)) {
      const [name, divisor] = CPU_STAT[key];
      found[name] = Math.floor(Number(value) / divisor);
    }
  }
  const usedNs = found.cpuUs === undefined ? kernel.number(`${directory}/cpuacct.usage`) : null;
  if (usedNs !== null) {
    found.cpuUs = Math.floor(usedNs / 1000);
  }
  const waited = /^some .*total=([0-9]{1,19})$/m.exec(kernel.text(`${directory}/cpu.pressure`));
  if (waited) {
    found.pressureUs = Number(waited[1]);
  }
  return found;
}

module.exports = { read, tasks };
