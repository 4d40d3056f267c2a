'use strict';

/**
 * Fuzzes what reads untrusted text in the Node.js shim: `node tools/fuzz/node.cjs CASES [SEED]`.
 *
 * Plans grow by mutation from a few seeds; one that takes the parser somewhere new (a key, a word, an error it has not
 * seen) joins them. Whatever the text, decode returns bounded values or throws PlanError with a short message, resolve
 * keeps its promises, and choosing for a session with any options of the code's does not throw. Exit status 1 with the
 * failing input, and the seed that leads to it again.
 */

const path = require('path');

const SHIM = path.join(__dirname, '../../runtime/node');
const { Choice } = require(path.join(SHIM, 'choice.cjs'));
const kernel = require(path.join(SHIM, 'kernel.cjs'));
const { PlanError, decode, resolve } = require(path.join(SHIM, 'plan.cjs'));

const MAX_MESSAGE = 400;
const MAX_CORPUS = 1024;
const MAX_TEXT = 6000;
const SEEDS = [
  'v=1;intra=4;env_intra=3;inter=1;spin=bounded;spin_us=200;mode=sequential;aff=none;excl=0;streams=1;workers=1;existing=respect',
  'v=1;intra=8;global=1;global_intra=16;runs=4;floor=1;min=2;min_inter=2;mode=parallel;excl=8;graph=all;aff=core',
  'v=1;intra=8;aff=numa;excl=8;numa=single;ctype=efficient;smt=1;gpu=1;floor=0',
  'v=1;session.intra_op.allow_spinning=0;cuda.gpu_mem_limit=1073741824;openvino.num_streams=2;alloc=mimalloc',
  'v=1;cuda.arena_extend_strategy=kSameAsRequested;session.intra_op.spin_duration_us=-1;observe=runs;arena=0',
  '0-3,8,16-31:1/2',
];
const WORDS = ['v=1', ';', '=', '-1', '0', '1', '1024', '1025', '65536', '9'.repeat(19), '9'.repeat(21), '__proto__']
  .concat(['intra=', 'spin=never', 'existing=override', 'excl=4', '\0', '\n', 'é', '😀', '\ud800', 'x'.repeat(5000), '²']);
const OPTIONS = ['intraOpNumThreads', 'interOpNumThreads', 'executionMode', 'graphOptimizationLevel', 'extra']
  .concat(['enableMemPattern', 'enableCpuMemArena', 'executionProviders']);
const VALUES = [0, 1, 3, -1, 2.5, NaN, '2', '', null, undefined, true, [], {}, 'parallel', 'sequential', 'all']
  .concat([{ session: { intra_op_thread_affinities: '1;2' } }, { session: { intra_op: { allow_spinning: '1' } } }])
  .concat([{ session: null }, { 'session.intra_op.spin_duration_us': '5' }, { a: { b: 1 } }])
  .concat([['cuda'], [{ name: 'cuda' }], [null]]);

/** Mulberry32: the same numbers for the same seed. */
function generator(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

function mutated(text, corpus, random) {
  const at = random(text.length + 1);
  const other = corpus[random(corpus.length)];
  switch (random(7)) {
    case 0:
      return text.slice(0, at);
    case 1:
      return text.slice(0, at) + text.slice(at + 1 + random(8));
    case 2:
      return text.slice(0, at) + WORDS[random(WORDS.length)] + text.slice(at);
    case 3:
      return text.slice(0, at) + String.fromCharCode(random(128)) + text.slice(at + 1);
    case 4:
      return `${text};${other.split(';')[random(8)] || ''}`;
    case 5:
      return text.slice(0, at) + other.slice(random(other.length + 1));
    default:
      return text.slice(0, at) + text.slice(at).replace(/[0-9]+/, String(random(random(2) ? 20 : 2000) - 1));
  }
}

function hold(condition, what) {
  if (!condition) {
    throw new Error(what);
  }
}

/** Gives one text to every reader; returns whether it is a plan, and what tells it from texts that led elsewhere. */
function check(text, random) {
  if (text.length < 64) {
    checkList(text);
  }
  let fields;
  try {
    fields = decode(text);
  } catch (error) {
    hold(error instanceof PlanError, `not a PlanError: ${error && error.stack}`);
    hold(error.message.length <= MAX_MESSAGE, `a line of ${error.message.length} characters`);
    return { isPlan: false, way: error.message.replace(/'.*'/s, '').slice(0, 60) };
  }
  const facts = {
    cpus: random(4) ? Array.from({ length: 1 + random(16) }, (_, cpu) => cpu) : null,
    quotaCPUs: random(3) ? (1 + random(16000)) / 1000 : null,
    workersSeen: 1 + random(4),
    placed: null,
  };
  if (facts.cpus && random(2)) {
    const threads = 1 + random(facts.cpus.length);
    facts.placed = { threads, because: `${threads} physical cores` };
  }
  const wanted = resolve(fields, facts);
  for (const key of ['intra', 'inter']) {
    const [planned, value] = [fields[key], wanted[key]];
    hold((planned === undefined) === (value === null), `${key} is there exactly where it is planned`);
    hold(value === null || (value >= 1 && value <= planned), `${key} is from one to the plan's`);
  }
  hold([null, 'never', 'bounded', 'always'].includes(wanted.spin), 'spin is one of the words');
  hold(wanted.spinUs >= 0 && wanted.spinUs <= 1000000, 'spinning is bounded');
  hold(wanted.cap === null || wanted.cap >= 1, 'the cap is a thread at least');
  hold(!facts.placed || wanted.cap <= facts.placed.threads, 'no more threads than there is room for');
  checkChoice(fields, wanted, facts, random);
  return { isPlan: true, way: Object.keys(fields).sort().join() };
}

function checkList(text) {
  try {
    const cpus = kernel.parseList(text);
    hold(cpus.every((cpu, at) => !at || cpus[at - 1] < cpu), 'a list is a set');
    hold(kernel.formatList(kernel.parseList(kernel.formatList(cpus))) === kernel.formatList(cpus), 'a list is a set');
  } catch (error) {
    hold(error instanceof RangeError && error.message.length <= MAX_MESSAGE, `a list: ${error && error.stack}`);
  }
  try {
    const cpus = kernel.parseMask(text);
    hold(cpus.every((cpu, at) => !at || cpus[at - 1] < cpu), 'a mask is a set');
  } catch (error) {
    hold(error instanceof RangeError && error.message.length <= MAX_MESSAGE, `a mask: ${error && error.stack}`);
  }
}

function checkChoice(fields, wanted, facts, random) {
  const options = {};
  for (let set = random(5); set > 0; set--) {
    options[OPTIONS[random(OPTIONS.length)]] = VALUES[random(VALUES.length)];
  }
  const hasExtra = random(3) > 0;
  const binding = { hasExtra, hasSpinDuration: hasExtra && random(2) > 0 };
  const before = JSON.stringify(options);
  const groups = () => ({ text: random(2) ? '2;3' : '', why: 'none' });
  const ours = random(2) ? [fields.omp, 2].filter(Boolean) : [];
  const given = { fields, wanted, facts, options: Object.freeze(options), binding, own: {}, ours, groups };
  const choice = new Choice(given);
  const edited = choice.edited();
  hold(JSON.stringify(options) === before, "the code's options are as they were");
  for (const key of ['intraOpNumThreads', 'interOpNumThreads']) {
    const said = options[key];
    const kept = said === undefined || said === 0 || Object.is(edited[key], said);
    const cut = ours.includes(said) && edited[key] <= said;
    hold(kept || cut || !choice.respect, `${key} is the code's`);
  }
  const extra = Object.values(edited === options ? {} : edited.extra || {});
  hold(choice.changes.has('extra') === false || extra.every((value) => typeof value === 'string'), 'entries are text');
  hold(choice.line('1.30.0').length < 2000, 'the line is short');
}

function main() {
  const cases = Number(process.argv[2] || 400000);
  const seed = Number(process.argv[3] || Date.now() % 1000000);
  const random = generator(seed);
  const corpus = SEEDS.slice();
  // Most start from a plan: a text that is none soon ends the readers' work.
  const good = SEEDS.slice(0, -1);
  const seen = new Set();
  let plans = 0;
  for (let made = 0; made < cases; made++) {
    const from = random(4) ? good : corpus;
    let text = from[random(from.length)];
    for (let steps = random(3); steps >= 0; steps--) {
      text = mutated(text, corpus, random).slice(0, MAX_TEXT);
    }
    try {
      const { isPlan, way } = check(text, random);
      plans += isPlan ? 1 : 0;
      if (!seen.has(way) && corpus.length < MAX_CORPUS) {
        seen.add(way);
        corpus.push(text);
        if (isPlan) {
          good.push(text);
        }
      }
    } catch (error) {
      console.log(`node: seed ${seed}, input ${made}: ${JSON.stringify(text)}\n${error.stack}`);
      process.exit(1);
    }
  }
  console.log(`node: ${cases} inputs, ${plans} of them plans, ${seen.size} ways through the readers, seed ${seed}`);
}

main();
