'use strict';
// A Node.js program that serves a model with onnxruntime-node:
// node serve_node.cjs PACKAGES MODEL SIDE SOCKET THREADS SPIN. The same protocol as tools/load/server.py.
// THREADS 0 and SPIN "default" leave the options as they are; SPIN may be never, always, or microseconds.

const fs = require('fs');
const net = require('net');
const path = require('path');

const [, , packages, model, side, socket, count, spin] = process.argv;
const threads = () => fs.readdirSync('/proc/self/task').length;

// What a user can write into the code.
function options() {
  const intra = {};
  if (spin !== 'default') {
    intra.allow_spinning = spin === 'never' ? '0' : '1';
  }
  if (Number(spin) > 0) {
    intra.spin_duration_us = spin;
  }
  const found = spin === 'default' ? {} : { extra: { session: { intra_op: intra } } };
  return count === '0' ? found : { ...found, intraOpNumThreads: Number(count) };
}

async function main() {
  const folder = path.join(packages, 'onnxruntime-node');
  const ort = require(folder);
  const before = threads();
  const session = await ort.InferenceSession.create(model, options());
  const pool = threads() - before + 1; // the caller works too
  const values = Float32Array.from({ length: 3 * side * side }, () => Math.random() - 0.5);
  const feeds = { image: new ort.Tensor('float32', values, [1, 3, Number(side), Number(side)]) };
  for (let i = 0; i < 3; i += 1) {
    await session.run(feeds);
  }
  const server = net.createServer((connection) => {
    // The generator sends a request only when it has the last answer.
    connection.on('data', (request) => {
      session.run(feeds).then(() => connection.write(request));
    });
    connection.on('error', () => connection.destroy());
  });
  server.listen(socket, () => {
    const { version } = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8'));
    const raddle = fs.readFileSync('/proc/self/maps', 'utf8').includes('libraddle.so');
    process.stdout.write(`${JSON.stringify({ version, pool_threads: pool, created_s: 0, raddle })}\n`);
  });
  process.stdin.on('end', () => process.exit(0)).resume();
}

main();
