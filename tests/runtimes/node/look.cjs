'use strict';

/**
 * Makes the sessions that a request asks for and tells what the kernel shows of each: the threads that came with it,
 * the CPUs that these may run on, memory kept after a run, and CPU time that the process used while nothing ran.
 */

const fs = require('fs');

const PAUSES = 6;
const PAUSE_MS = 60;
const START_MS = 10000;

// They live as long as their thread.
const made = [];
const threads = () => fs.readdirSync('/proc/self/task');
const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function allowed(thread) {
  const status = fs.readFileSync(`/proc/self/task/${thread}/status`, 'utf8');
  return /^Cpus_allowed_list:\s*(.*)$/m.exec(status)[1];
}

/** Until each thread has had nothing to do once: ONNX Runtime's workers tie themselves to their CPUs when they start. */
async function started(own) {
  const waited = (thread) => /^voluntary_ctxt_switches:\s*[1-9]/m.test(fs.readFileSync(`/proc/self/task/${thread}/status`));
  const end = Date.now() + START_MS;
  while (Date.now() < end && !own.every(waited)) {
    await rest(1);
  }
}

async function idleMs(session, input) {
  let used = 0;
  for (let pause = 0; pause < PAUSES; pause++) {
    await session.run(input);
    const before = process.cpuUsage();
    await rest(PAUSE_MS);
    const { user, system } = process.cpuUsage(before);
    used += user + system;
  }
  return used / 1000;
}

async function seen(ort, request, options) {
  const model = request.buffer ? new Uint8Array(fs.readFileSync(request.model)) : request.model;
  const before = threads();
  try {
    // With providers onnxruntime-common hands on a Proxy, which must be able to change them.
    const given = options.executionProviders ? options : Object.freeze(options);
    const session = await ort.InferenceSession.create(model, given);
    made.push(session);
    const own = threads().filter((thread) => !before.includes(thread));
    const size = request.shape.reduce((product, dimension) => product * dimension);
    const input = { [session.inputNames[0]]: new ort.Tensor('float32', new Float32Array(size).fill(0.5), request.shape) };
    const resident = process.memoryUsage().rss;
    const outputs = await session.run(input);
    const keptMiB = (process.memoryUsage().rss - resident) / 2 ** 20;
    await started(own);
    const found = { threads: own.length, cpus: own.map(allowed), keptMiB, first: Object.values(outputs)[0].data[0] };
    return request.idle ? Object.assign(found, { idleMs: await idleMs(session, input) }) : found;
  } catch (error) {
    return { error: error.message };
  }
}

/**
 * What a thread of the process saw, as a line on standard output. Before the session of the same number the files of
 * `request.writes` are written: path -> text.
 */
module.exports = async function look(ort, request) {
  // From 1.21 on ONNX Runtime's environment, which may have a thread, is made with the first session.
  const { initOrt } = require('onnxruntime-node/dist/binding.js');
  if (initOrt) {
    initOrt();
  }
  const sessions = [];
  for (const [number, options] of request.sessions.entries()) {
    for (const [path, text] of Object.entries((request.writes || [])[number] || {})) {
      fs.writeFileSync(path, text);
    }
    sessions.push(await seen(ort, request, options));
  }
  const names = threads().map((thread) => fs.readFileSync(`/proc/self/task/${thread}/comm`, 'utf8').trim());
  fs.writeSync(1, `${JSON.stringify({ pid: process.pid, names, sessions })}\n`);
};
