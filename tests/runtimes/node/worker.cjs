'use strict';

/**
 * `threads` worker threads (1), each with the request's sessions. All have loaded ONNX Runtime before the first makes
 * any; they make them one after the other, since new threads are told apart by time.
 */

const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

if (isMainThread) {
  const request = JSON.parse(process.argv[2]);
  const options = Object.assign({ workerData: request }, request.worker);
  const workers = Array.from({ length: request.threads || 1 }, () => new Worker(__filename, options));
  const message = (worker) => new Promise((resolve) => worker.once('message', resolve));
  (async () => {
    await Promise.all(workers.map(message));
    for (const worker of workers) {
      worker.postMessage('go');
      await message(worker);
    }
    workers.forEach((worker) => worker.postMessage('end'));
  })();
} else {
  const ort = require('onnxruntime-node');
  parentPort.once('message', async () => {
    await require('./look.cjs')(ort, workerData);
    parentPort.once('message', () => parentPort.close());
    parentPort.postMessage('done');
  });
  parentPort.postMessage('loaded');
}
