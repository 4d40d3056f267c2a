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

const WRAPPED = Symbol.for('raddle.dlopen');

/**
 * Whether an addon's exports are those of onnxruntime-node: a bundler may have renamed the file.
 * @param {any} found what the addon exports
 * @returns {boolean}
 */
function isBinding(found) {
  const session = found && found.InferenceSession;
  return typeof session === 'function' && typeof (session.prototype || {}).loadModel === 'function';
}

/** Says in a line that the rest of the shim can't be loaded: a mount that was cut down, or permissions. */
function complain(error) {
  try {
    if (process.env.RADDLE_LOG !== '0') {
      const why = String(error).split('\n')[0];
      require('fs').writeSync(2, `raddle: onnxruntime is left alone: ${why}\n`);
    }
  } catch (closed) {
    // A closed stderr is the application's choice.
  }
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
      // The addon is loaded, and works as it would without us.
      complain(error);
    }
    return result;
  };
  Object.defineProperty(dlopen, 'name', { value: original.name, configurable: true });
  Object.defineProperty(dlopen, WRAPPED, { value: true });
  process.dlopen = dlopen;
}

try {
  activate();
} catch (error) {
  // The process runs as if Raddle were not there.
}
