'use strict';

/**
 * Milliseconds to make sessions: `node node_child.cjs MODEL COUNT`, in a folder with onnxruntime-node. Prints JSON:
 * `first`, and with the shim loaded COUNT times each `with` it and `without`, in turns.
 */

const { createRequire } = require('module');
const path = require('path');

const from = createRequire(path.join(process.cwd(), 'here.cjs'));
const ort = from('onnxruntime-node');
const { binding } = from('onnxruntime-node/dist/binding.js');

const [model, count] = [process.argv[2], Number(process.argv[3])];

function since(began) {
  const [seconds, nanoseconds] = process.hrtime(began);
  return seconds * 1e3 + nanoseconds / 1e6;
}

function made(Session) {
  // Some of what the plan says, so that both make the same pool.
  const options = { intraOpNumThreads: 2, extra: { session: { intra_op: { allow_spinning: '0' } } } };
  const session = new Session();
  const began = process.hrtime();
  session.loadModel(model, options);
  const passed = since(began);
  session.dispose();
  return passed;
}

(async () => {
  const began = process.hrtime();
  await ort.InferenceSession.create(model, {});
  const found = { first: since(began), with: [], without: [] };
  const original = Object.getPrototypeOf(binding.InferenceSession);
  for (let number = 0; number < count && original !== Function.prototype; number++) {
    found.with.push(made(binding.InferenceSession));
    found.without.push(made(original));
  }
  console.log(JSON.stringify(found));
})();
