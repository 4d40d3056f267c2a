'use strict';

/** Makes and drops `count` sessions, then exits. */

const ort = require('onnxruntime-node');

const { model, count } = JSON.parse(process.argv[2]);
(async () => {
  for (let made = 0; made < count; made++) {
    const session = await ort.InferenceSession.create(model);
    await (session.release ? session.release() : undefined);
  }
  console.log(JSON.stringify({ pid: process.pid, sessions: [{ ran: true }] }));
})();
