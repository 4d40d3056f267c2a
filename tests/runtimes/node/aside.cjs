'use strict';

/** The main thread makes the request's sessions beside a worker, which may have `loaded` ONNX Runtime, and `ended`. */

const { Worker } = require('worker_threads');

const ort = require('onnxruntime-node');

const request = JSON.parse(process.argv[2]);
const code = `
  const { parentPort } = require('worker_threads');
  ${request.loaded ? `require(${JSON.stringify(require.resolve('onnxruntime-node'))});` : ''}
  parentPort.once('message', () => parentPort.close());
  parentPort.postMessage('ready');
`;
const worker = new Worker(code, { eval: true });
worker.once('message', async () => {
  if (request.ended) {
    await worker.terminate();
  }
  await require('./look.cjs')(ort, request);
  worker.postMessage('end');
});
