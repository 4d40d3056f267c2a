'use strict';

/**
 * Loaded first: a binding that tells of each session that it is asked for and takes no more than two threads, as another
 * product's hook might make it.
 */

const fs = require('fs');

const { dlopen } = process;

process.dlopen = function (module, ...rest) {
  dlopen.call(this, module, ...rest);
  const { InferenceSession } = module.exports;
  if (InferenceSession) {
    module.exports.InferenceSession = class extends InferenceSession {
      loadModel(...args) {
        fs.writeSync(2, 'asked for a session\n');
        if (args[args.length - 1].intraOpNumThreads > 2) {
          throw new RangeError('too many threads');
        }
        return super.loadModel(...args);
      }
    };
  }
};
