'use strict';

/** The binding under a name of a bundler's, loaded as its loader does: onnxruntime-node's JavaScript is not there. */

const fs = require('fs');
const path = require('path');

const request = JSON.parse(process.argv[2]);
const { Tensor } = require('onnxruntime-common');

const loaded = { exports: {} };
process.dlopen(loaded, path.join(request.bundle, 'a1b2c3.node'));
const binding = loaded.exports;
if (binding.initOrtOnce) {
  binding.initOrtOnce(2, Tensor, true);
}
const sessions = request.sessions.map((options) => {
  const before = fs.readdirSync('/proc/self/task').length;
  new binding.InferenceSession().loadModel(request.model, options);
  return { threads: fs.readdirSync('/proc/self/task').length - before };
});
fs.writeSync(1, `${JSON.stringify({ pid: process.pid, sessions })}\n`);
