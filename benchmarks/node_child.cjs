'use strict';

/**
 * Milliseconds to make sessions: `node node_child.cjs MODEL COUNT`, in a folder with onnxruntime-node. Prints JSON:
 * `first`, and `later` of COUNT more.
 */

const { createRequire } = require('module');
const path = require('path');

const ort = createRequire(path.join(process.cwd(), 'here.cjs'))('onnxruntime-node');

const [model, count] = [process.argv[2], Number(process.argv[3])];
// Some of what the plan says, so that all make the same pool.
const options = { intraOpNumThreads: 2, extra: { session: { intra_op: { allow_spinning: '0' } } } };

async function made() {
  const began = process.hrtime();
  const session = await ort.InferenceSession.create(model, options);
  const [seconds, nanoseconds] = process.hrtime(began);
  await session.release();
  return seconds * 1e3 + nanoseconds / 1e6;
}

(async () => {
  const found = { first: await made(), later: [] };
  for (let number = 0; number < count; number++) {
    found.later.push(await made());
  }
  console.log(JSON.stringify(found));
})();
