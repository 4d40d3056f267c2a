'use strict';
// As run_model.py, which has the protocol, with onnxruntime-node:
//
//     node run_model.cjs PACKAGE MODEL INPUTS plain SOCKET
//
// PACKAGE is the folder of onnxruntime-node. It has no I/O binding.

const fs = require('fs');
const net = require('net');
const path = require('path');

// Lazy work of the first runs belongs to the start.
const WARM_UP_RUNS = 3;
// numpy's names of types, where they are others than onnxruntime's.
const TYPES = { str: 'string' };
const ARRAYS = {
  float16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
};

/** The values as onnxruntime takes them. */
function values(kind, file) {
  const bytes = fs.readFileSync(file);
  if (kind === 'str') {
    return bytes.toString('utf8').split('\0').slice(0, -1);
  }
  if (!(kind in ARRAYS)) {
    throw new TypeError(`onnxruntime-node takes no ${kind}`);
  }
  // A copy: what was read may lie at any address.
  return new ARRAYS[kind](new Uint8Array(bytes).buffer);
}

/** Name -> tensor, of all inputs. */
function inputs(ort, folder) {
  const feeds = {};
  const lines = fs.readFileSync(path.join(folder, 'inputs'), 'utf8').split('\n').filter(Boolean);
  for (const line of lines) {
    const [kind, dims, file] = line.split(' ', 3);
    const name = line.slice(kind.length + dims.length + file.length + 3);
    const shape = dims === '-' ? [] : dims.split(',').map(Number);
    feeds[name] = new ort.Tensor(TYPES[kind] || kind, values(kind, path.join(folder, file)), shape);
  }
  return feeds;
}

/** How many threads this process has. */
function threads() {
  return fs.readdirSync('/proc/self/task').length;
}

/** A connection to the other side. */
function connected(socket) {
  return new Promise((resolve, reject) => {
    const link = net.connect(socket, () => resolve(link));
    link.on('error', reject);
  });
}

/** Answers each request once the model has run; ends when the other side closes. */
function serve(link, run) {
  link.on('error', () => process.exit(0));
  link.on('end', () => process.exit(0));
  link.on('data', (request) => {
    run().then(
      () => link.write(request),
      () => process.exit(1),
    );
  });
}

async function main([folder, model, given, , socket]) {
  try {
    const ort = require(folder);
    const feeds = inputs(ort, given);
    // Newer releases start a thread of their own with the first session, even with one that fails.
    await ort.InferenceSession.create(new Uint8Array(1)).catch(() => {});
    const before = threads();
    const session = await ort.InferenceSession.create(model);
    const said = {
      runtime: 'onnxruntime',
      version: require(path.join(folder, 'package.json')).version,
      providers: ['CPUExecutionProvider'],
      threads: threads() - before + 1,
    };
    const run = () => session.run(feeds);
    for (let runs = 0; runs < WARM_UP_RUNS; runs += 1) {
      await run();
    }
    const link = await connected(socket);
    link.write(`${JSON.stringify(said)}\n`);
    serve(link, run);
  } catch (error) {
    const link = await connected(socket);
    link.end(`${JSON.stringify({ error: String(error) })}\n`, () => process.exit(1));
  }
}

main(process.argv.slice(2));
