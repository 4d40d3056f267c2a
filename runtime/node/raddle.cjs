'use strict';

/**
 * What every Node.js process of an injected container runs before its own code: NODE_OPTIONS=--require .../raddle.cjs.
 *
 * Every native addon, required, imported or bundled, is loaded by `process.dlopen`. That one function is wrapped, and
 * only when an addon turns out to be onnxruntime-node's binding is anything more loaded: `onnxruntime.cjs` decodes the
 * plan and replaces the class that makes sessions. Worker threads and child processes run this file of their own.
 *
 * It never throws, and keeps to the syntax of Node.js 8: an old runtime must be able to read it and go on.
 */

const fs = require('fs');

const WRAPPED = Symbol.for('raddle.dlopen');
const STDERR = 2;

/** What number 2 is: an application that closes it may get the number for a file of its own. */
function identity() {
  const found = fs.fstatSync(STDERR);
  return `${found.dev}:${found.ino}`;
}

let first = null;

/**
 * Writes to the standard error that the process started with; where it has none any more, nowhere.
 * @param {string} line
 */
function say(line) {
  try {
    if (process.env.RADDLE_LOG !== '0' && first !== null && identity() === first) {
      // Not process.stderr: a worker thread's is a stream to the main thread, which may be busy for long.
      fs.writeSync(STDERR, `raddle: ${line.split('\n').join(' ')}\n`);
    }
  } catch (error) {
    // A closed stderr is the application's choice.
  }
}

/**
 * Whether an addon's exports are those of onnxruntime-node: a bundler may have renamed the file.
 * @param {any} found what the addon exports
 * @returns {boolean}
 */
function isBinding(found) {
  const session = found && found.InferenceSession;
  return typeof session === 'function' && typeof (session.prototype || {}).loadModel === 'function';
}

/** Wraps process.dlopen, once, where a plan is set. */
function activate() {
  const original = process.dlopen;
  if (!process.env.RADDLE_PLAN || typeof original !== 'function' || original[WRAPPED]) {
    return;
  }
  const dlopen = function (module, filename) {
    const result = Reflect.apply(original, this, arguments);
    try {
      if (module && isBinding(module.exports)) {
        require('./onnxruntime.cjs').install(module.exports, String(filename));
      }
    } catch (error) {
      // The addon is loaded, and works as it would without us. The rest of the shim can't be: a mount that was cut down,
      // or permissions.
      say(`onnxruntime is left alone: ${String(error).split('\n')[0]}`);
    }
    return result;
  };
  Object.defineProperty(dlopen, 'name', { value: original.name, configurable: true });
  Object.defineProperty(dlopen, WRAPPED, { value: true });
  process.dlopen = dlopen;
}

try {
  first = identity();
} catch (error) {
  // It is closed.
}
try {
  activate();
} catch (error) {
  // The process runs as if Raddle were not there.
}

module.exports = { say };
