/**
 * Goes through the execution modes and thread counts of onnxruntime-node, and shows for each what a run takes and what
 * the process costs while it waits:
 *
 *     node cycle.mjs MODEL [RUNS]
 *
 * The first line is a session with no options: what the application gets from ONNX Runtime, or from Raddle where a
 * policy governs the pod; newer versions start a thread of their own with it. All others set their values in the code,
 * and a policy with `existingValues: Respect` leaves those alone; with `Override` every line is the policy's.
 */

import fs from 'node:fs';
import os from 'node:os';
import * as ort from 'onnxruntime-node';

const PAUSE_MS = 50;
const ELEMENTS = {
  float32: Float32Array,
  float64: Float64Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

/** Sessions to try: nothing set, then each mode with 1, 2, 4 … threads up to the CPUs that the process sees. */
function* cycle() {
  yield {};
  for (const executionMode of ['sequential', 'parallel']) {
    for (let threads = 1; threads <= Math.max(2, os.availableParallelism()); threads *= 2) {
      const interOpNumThreads = executionMode === 'parallel' ? threads : 1;
      yield { executionMode, intraOpNumThreads: threads, interOpNumThreads };
    }
  }
}

/** Zeros for every input; an axis of unknown length gets 1. */
function inputs(session) {
  const feeds = {};
  for (const { name, type, shape } of session.inputMetadata) {
    const sizes = shape.map((size) => (typeof size === 'number' ? size : 1));
    const count = sizes.reduce((product, size) => product * size, 1);
    feeds[name] = new ort.Tensor(type, new ELEMENTS[type](count), sizes);
  }
  return feeds;
}

const threads = () => fs.readdirSync('/proc/self/task').length;
const rest = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));

/** Milliseconds of each run, and CPU milliseconds of the pauses between them. */
async function measure(session, runs) {
  const feeds = inputs(session);
  await session.run(feeds);
  const took = [];
  let idle = 0;
  for (let run = 0; run < runs; run++) {
    const began = process.hrtime.bigint();
    await session.run(feeds);
    took.push(Number(process.hrtime.bigint() - began) / 1e6);
    const before = process.cpuUsage();
    await rest();
    const { user, system } = process.cpuUsage(before);
    idle += (user + system) / 1000;
  }
  took.sort((one, other) => one - other);
  return { p50: took[took.length >> 1], worst: took[took.length - 1], idle: idle / runs };
}

const [model, runs = '20'] = process.argv.slice(2);
const row = (cells) => console.log(cells.map((cell, at) => String(cell).padStart(at ? 14 : 12)).join(''));
row(['mode', 'intra', 'inter', 'new threads', 'p50 ms', 'worst ms', 'CPU ms idle']);
for (const options of cycle()) {
  const before = threads();
  const session = await ort.InferenceSession.create(model, options);
  const added = threads() - before;
  const { p50, worst, idle } = await measure(session, Number(runs));
  const { executionMode = 'unset', intraOpNumThreads = 'unset', interOpNumThreads = 'unset' } = options;
  const times = [p50, worst, idle].map((value) => value.toFixed(2));
  row([executionMode, intraOpNumThreads, interOpNumThreads, added, ...times]);
  await session.release();
}
