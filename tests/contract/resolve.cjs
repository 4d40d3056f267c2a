'use strict';

/**
 * What the Node.js shim makes of its inputs, line by line, for the contract tests.
 *
 *     node resolve.cjs             plan, CPU list, quota in CPUs, workers seen, joined by tabs -> the effective values
 *     node resolve.cjs --quota     the root of a tree -> the quota in CPUs, "-" for none
 *     node resolve.cjs --place     the root of a tree, plan, CPU list, a pool's size and the quota -> how many threads there
 *                                  is room for and in words, what that comes to and why, ONNX Runtime's string; by "|"
 */

const path = require('path');

const SHIM = path.join(__dirname, '../../runtime/node');
const cgroup = require(path.join(SHIM, 'cgroup.cjs'));
const kernel = require(path.join(SHIM, 'kernel.cjs'));
const placement = require(path.join(SHIM, 'placement.cjs'));
const plan = require(path.join(SHIM, 'plan.cjs'));

const shown = (value) => (value === null ? '-' : String(value));

function resolved(line) {
  const [text, cpus, quota, workers] = line.split('\t');
  try {
    const facts = {
      cpus: cpus === '' ? null : kernel.parseList(cpus),
      quotaCPUs: quota === '' ? null : Number(quota),
      workersSeen: Number(workers),
    };
    const found = plan.resolve(plan.decode(text), facts);
    const parts = { intra: found.intra, inter: found.inter, spin: found.spin, spin_us: found.spinUs, cap: found.cap };
    parts.exclusive = found.exclusive ? 1 : 0;
    return Object.entries(parts).map(([key, value]) => `${key}=${shown(value)}`).join(' ');
  } catch (error) {
    if (error instanceof plan.PlanError) {
      return 'error';
    }
    throw error;
  }
}

function quota(line) {
  return shown(cgroup.readQuota(line).quotaCPUs);
}

function place(line) {
  const [root, text, cpus, size, quotaCPUs] = line.split('\t');
  const fields = plan.decode(text);
  const placed = new placement.Placement(kernel.parseList(cpus), fields, root);
  const facts = { cpus: placed.machine.cpus, quotaCPUs: quotaCPUs === '' ? null : Number(quotaCPUs), workersSeen: 1, placed };
  const { intra, spin, because } = plan.resolve(fields, facts);
  const parts = [placed.threads, placed.because, shown(intra), shown(spin), because.intra || '', because.spin || ''];
  return [...parts, placed.affinityText(Number(size), fields.aff)].join('|');
}

const modes = { '--quota': quota, '--place': place };
const answer = modes[process.argv[2]] || resolved;
const chunks = [];
process.stdin.on('data', (chunk) => chunks.push(chunk));
process.stdin.on('end', () => {
  const lines = Buffer.concat(chunks).toString('utf8').split('\n').slice(0, -1);
  process.stdout.write(lines.map((line) => `${answer(line)}\n`).join(''));
});
