'use strict';

/**
 * The kernel's small text files, read with bounds, and its lists and masks of CPUs.
 *
 * Inside a container a FIFO, a device or something endless may stand where a short file is expected: a read never
 * blocks, and ends. A set of CPUs is an ascending array of their ids.
 */

const fs = require('fs');

const MAX_BYTES = 64 * 1024;
const PAGE_BYTES = 4096;
// One more than the largest CPU id that is accepted; Linux's own ceiling is 8192.
const MAX_CPUS = 65536;

/**
 * @param {string} path
 * @param {number} [maxBytes]
 * @returns {string} the file's text
 * @throws where it can't be read or is longer than maxBytes
 */
function read(path, maxBytes = MAX_BYTES) {
  const file = fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  try {
    const parts = [];
    let length = 0;
    for (;;) {
      const part = Buffer.allocUnsafe(PAGE_BYTES);
      const got = fs.readSync(file, part, 0, PAGE_BYTES, null);
      if (got === 0) {
        return Buffer.concat(parts).toString('utf8');
      }
      length += got;
      if (length > maxBytes) {
        throw new RangeError(`${path} is longer than ${maxBytes} bytes`);
      }
      parts.push(part.subarray(0, got));
    }
  } finally {
    fs.closeSync(file);
  }
}

/**
 * @param {string} path
 * @param {number} [maxBytes]
 * @returns {string} the file's text, "" where it can't be read
 */
function text(path, maxBytes) {
  try {
    return read(path, maxBytes);
  } catch (error) {
    return '';
  }
}

/**
 * @param {string} path
 * @returns {number | null} the number that the file holds, null for anything else
 */
function number(path) {
  const found = text(path).trim();
  return isNumber(found) ? Number(found) : null;
}

function isNumber(found) {
  return /^[0-9]{1,19}$/.test(found);
}

/**
 * The set that a kernel list names, "0-3,8" or with a stride "0-7:1/2" (lib/bitmap.c).
 * @param {string} list
 * @returns {number[]}
 * @throws {RangeError} naming the part that is not a list
 */
function parseList(list) {
  const trimmed = list.trim();
  if (trimmed === '' || trimmed === '(null)') {
    return [];
  }
  let ids = [];
  let isAscending = true;
  for (const part of trimmed.split(',')) {
    const found = /^ *([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9})\/([0-9]{1,9}))?)? *$/.exec(part);
    const first = found ? Number(found[1]) : MAX_CPUS;
    const last = found && found[2] !== undefined ? Number(found[2]) : first;
    const group = found && found[4] !== undefined ? Number(found[4]) : 1;
    const used = found && found[3] !== undefined ? Number(found[3]) : 1;
    if (first > last || last >= MAX_CPUS || group === 0 || used > group) {
      throw new RangeError(`'${part.slice(0, 64)}' is not a CPU list`);
    }
    isAscending = isAscending && (!ids.length || first > ids[ids.length - 1]);
    for (let cpu = first; cpu <= last; cpu++) {
      if ((cpu - first) % group < used) {
        ids.push(cpu);
      }
    }
    if (!isAscending && ids.length > 2 * MAX_CPUS) {
      // A text may name all of them thousands of times.
      ids = ascending(ids);
    }
  }
  return isAscending ? ids : ascending(ids);
}

function ascending(ids) {
  const present = new Uint8Array(MAX_CPUS);
  ids.forEach((cpu) => (present[cpu] = 1));
  const sorted = [];
  for (let cpu = present.indexOf(1); cpu >= 0; cpu = present.indexOf(1, cpu + 1)) {
    sorted.push(cpu);
  }
  return sorted;
}

/**
 * The set that a kernel mask names, "ff,00000001": words of 32 bits, the highest first.
 * @param {string} mask
 * @returns {number[]}
 * @throws {RangeError} where it is none
 */
function parseMask(mask) {
  const trimmed = mask.trim();
  if (trimmed === '' || trimmed === '(null)') {
    return [];
  }
  const ids = [];
  trimmed.split(',').reverse().forEach((word, at) => {
    if (!/^[0-9a-fA-F]{1,8}$/.test(word) || (at >= MAX_CPUS / 32 && Number(`0x${word}`) !== 0)) {
      throw new RangeError(`'${trimmed.slice(0, 64)}' is not a CPU mask`);
    }
    const bits = Number(`0x${word}`);
    for (let bit = 0; bit < 32; bit++) {
      if (Math.floor(bits / 2 ** bit) % 2 === 1) {
        ids.push(32 * at + bit);
      }
    }
  });
  return ids;
}

/**
 * @param {string} folder
 * @returns {boolean} whether there is such a folder
 */
function isFolder(folder) {
  try {
    return fs.statSync(folder).isDirectory();
  } catch (error) {
    return false;
  }
}

/**
 * @param {string} folder
 * @returns {string[]} the names in it, none where it can't be read
 */
function names(folder) {
  try {
    return fs.readdirSync(folder);
  } catch (error) {
    return [];
  }
}

/**
 * @param {number[]} cpus ascending
 * @returns {string} the shortest kernel list of the set
 */
function formatList(cpus) {
  const parts = [];
  for (let at = 0; at < cpus.length; at++) {
    const first = cpus[at];
    while (at + 1 < cpus.length && cpus[at + 1] === cpus[at] + 1) {
      at++;
    }
    parts.push(first === cpus[at] ? String(first) : `${first}-${cpus[at]}`);
  }
  return parts.join(',');
}

module.exports = { formatList, isFolder, isNumber, names, number, parseList, parseMask, read, text };
