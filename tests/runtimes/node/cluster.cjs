'use strict';

/** A cluster of `workers` processes (1), each with the request's sessions, made and ended when all are there. */

const cluster = require('cluster');

const request = JSON.parse(process.argv[2]);
if (cluster.isMaster) {
  const workers = Array.from({ length: request.workers || 1 }, () => cluster.fork());
  let online = 0;
  let done = 0;
  for (const worker of workers) {
    worker.once('online', () => {
      online += 1;
      if (online === workers.length) {
        workers.forEach((one) => one.send('go'));
      }
    });
    worker.on('message', () => {
      done += 1;
      if (done === workers.length) {
        workers.forEach((one) => one.disconnect());
      }
    });
  }
} else {
  const ort = require('onnxruntime-node');
  process.once('message', () => require('./look.cjs')(ort, request).then(() => process.send('done')));
}
