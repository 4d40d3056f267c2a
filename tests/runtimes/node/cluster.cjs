'use strict';

/** A cluster of `workers` processes (1), each with the request's sessions, made when all have loaded ONNX Runtime. */

const cluster = require('cluster');

const request = JSON.parse(process.argv[2]);
if (cluster.isMaster) {
  const workers = Array.from({ length: request.workers || 1 }, () => cluster.fork());
  const said = { loaded: 0, done: 0 };
  for (const worker of workers) {
    worker.on('message', (word) => {
      said[word] += 1;
      if (said[word] === workers.length) {
        workers.forEach((one) => (word === 'loaded' ? one.send('go') : one.disconnect()));
      }
    });
  }
} else {
  const ort = require('onnxruntime-node');
  process.once('message', () => require('./look.cjs')(ort, request).then(() => process.send('done')));
  process.send('loaded');
}
