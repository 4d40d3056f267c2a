'use strict';

/** Loaded first: a binding that takes no more than two threads, as another product's hook might make it. */

const { dlopen } = process;

process.dlopen = function (module, ...rest) {
  dlopen.call(this, module, ...rest);
  const { InferenceSession } = module.exports;
  if (InferenceSession) {
    module.exports.InferenceSession = class extends InferenceSession {
      loadModel(...args) {
        if (args[args.length - 1].intraOpNumThreads > 2) {
          throw new RangeError('too many threads');
        }
        return super.loadModel(...args);
      }
    };
  }
};
