'use strict';

/**
 * An application with onnxruntime-node in a container: the same line of JSON as app.py's, and it stays.
 *
 *     node app.cjs MODEL
 */

const fs = require('fs');

// The same as app.py's.
const RUNS = 5;
const IDLE_MS = 500;
const SETTLE_MS = 20000;
const PAUSE_MS = 2000;
const LOAD_RATE_PER_S = 200;
const LOAD_MS = 3000;
const LATEST_MS = 2 * LOAD_MS;
// vm/model.py.
const SHAPE = [4, 1024];
const CGROUPS = '/sys/fs/cgroup';

const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const read = (path) => fs.readFileSync(path, 'utf8');
const threads = () => fs.readdirSync('/proc/self/task');

/** A file of /proc/self/task, "" where the thread has ended. */
function ofThread(thread, name) {
  try {
    return read(`/proc/self/task/${thread}/${name}`);
  } catch {
    return '';
  }
}

function allowed(thread) {
  const found = /^Cpus_allowed_list:\s*(.*)$/m.exec(ofThread(thread, 'status'));
  return found ? found[1] : '';
}

function ticks(thread) {
  const fields = ofThread(thread, 'stat').split(')').pop().trim().split(' ');
  return Number(fields[11] || 0) + Number(fields[12] || 0);
}

/** Until every worker has left a CPU once: it ties itself to its CPUs before it looks for work, not before birth. */
async function settle(pool) {
  const end = Date.now() + SETTLE_MS;
  const ran = (thread) => /ctxt_switches:\s*[1-9]/.test(ofThread(thread, 'status') || 'ctxt_switches: 1');
  while (Date.now() < end && !pool.every(ran)) {
    await rest(10);
  }
}

async function stillRunning(pool) {
  const before = pool.map(ticks);
  await rest(IDLE_MS);
  return pool.filter((thread, index) => ticks(thread) > before[index]).length;
}

function quotaCpus() {
  if (fs.existsSync(`${CGROUPS}/cpu.max`)) {
    const [quota, period] = read(`${CGROUPS}/cpu.max`).trim().split(' ');
    return quota === 'max' ? null : Number(quota) / Number(period);
  }
  const [quota, period] = ['quota', 'period'].map((part) => Number(read(`${CGROUPS}/cpu/cpu.cfs_${part}_us`)));
  return quota < 0 ? null : quota / period;
}

function periods() {
  const stat = fs.existsSync(`${CGROUPS}/cpu.max`) ? `${CGROUPS}/cpu.stat` : `${CGROUPS}/cpu/cpu.stat`;
  const counts = Object.fromEntries(read(stat).trim().split('\n').map((line) => line.split(' ')));
  return [Number(counts.nr_periods || 0), Number(counts.nr_throttled || 0)];
}

async function load(answer) {
  let requests = 0;
  const [elapsed, throttled] = periods();
  const cpu = process.cpuUsage();
  const start = performance.now();
  for (;;) {
    const due = start + (1000 * requests) / LOAD_RATE_PER_S;
    if (due >= start + LOAD_MS || performance.now() >= start + LATEST_MS) {
      break;
    }
    if (due > performance.now()) {
      await rest(due - performance.now());
    }
    await answer();
    requests += 1;
  }
  const { user, system } = process.cpuUsage(cpu);
  const after = periods();
  return {
    cpu_ms: (user + system) / 1000 / requests,
    throttled_percent: after[0] > elapsed ? (100 * (after[1] - throttled)) / (after[0] - elapsed) : null,
  };
}

async function main() {
  process.on('SIGTERM', () => process.exit(0));
  const cpus = allowed(process.pid);
  const ort = require('onnxruntime-node');
  // ONNX Runtime's environment, which may have a thread, is made with the first session else.
  const { initOrt } = require('onnxruntime-node/dist/binding.js');
  initOrt();
  const before = threads();
  const session = await ort.InferenceSession.create(process.argv[2]);
  const pool = threads().filter((thread) => !before.includes(thread));
  const size = SHAPE.reduce((product, dimension) => product * dimension);
  const input = { [session.inputNames[0]]: new ort.Tensor('float32', new Float32Array(size), SHAPE) };
  for (let run = 0; run < RUNS; run++) {
    await session.run(input);
  }
  await settle(pool);
  const spinning = await stillRunning(pool);
  // ONNX Runtime starts threads of other kinds too, which end soon.
  const left = pool.filter((thread) => threads().includes(thread));
  const found = {
    cpus,
    threads: 1 + left.length,
    caller: allowed(process.pid),
    workers: left.map(allowed),
    spinning,
    quota_cpus: quotaCpus(),
    load: process.env.E2E_LOAD === '0' ? {} : await load(() => session.run(input)),
  };
  console.log(JSON.stringify(found));
  for (;;) {
    await rest(PAUSE_MS);
    await session.run(input);
  }
}

main();
