'use strict';

/** Another product's hook: it wraps all that Raddle wraps, and more, and says which of it was used for the binding. */

const fs = require('fs');
const Module = require('module');

function wrap(object, name) {
  const original = object[name];
  object[name] = function (...args) {
    const file = args.find((arg) => typeof arg === 'string' && arg.endsWith('onnxruntime_binding.node'));
    if (file) {
      fs.writeSync(2, `wrapped ${name}\n`);
    }
    return original.apply(this, args);
  };
}

wrap(Module._extensions, '.node');
wrap(Module.prototype, 'require');
wrap(process, 'dlopen');
