'use strict';

/**
 * RADDLE_PLAN and what it comes to for a process. Pure: the same rules as runtime/raddle/env.py and
 * runtime/raddle/adapters/live.py, which are the reference; tests/contract compares the answers.
 */

const VERSION = '1';
const MAX_PLAN_TEXT = 4096;
const MAX_THREADS = 1024;
const MAX_STREAMS = 65536;
// Bounded spinning without a number.
const DEFAULT_SPIN_US = 50;

const SWITCH = [0, 1];
const THREADS = [1, MAX_THREADS];
const STREAMS = [1, MAX_STREAMS];
const POOL = [0, MAX_THREADS];
const SPIN_US = [-1, 9999999];
const BACKOFF = [1, 64];
// One byte below 10^19 needs more digits than a number has.
const GPU_MEM_BYTES = [0, BigInt('9999999999999999999')];

// ONNX Runtime's session configuration entries that a plan may set, under ONNX Runtime's own key.
const CONFIG_ENTRIES = {
  'session.intra_op.allow_spinning': SWITCH,
  'session.inter_op.allow_spinning': SWITCH,
  'session.intra_op.spin_duration_us': SPIN_US,
  'session.inter_op.spin_duration_us': SPIN_US,
  'session.intra_op.spin_backoff_max': BACKOFF,
  'session.inter_op.spin_backoff_max': BACKOFF,
  'session.force_spinning_stop': SWITCH,
  'session.dynamic_block_base': [1, 9999],
  'session.set_denormal_as_zero': SWITCH,
  'session.use_env_allocators': SWITCH,
  'session.use_device_allocator_for_initializers': SWITCH,
  'session.disable_prepacking': SWITCH,
};

// key -> [lowest, highest]
const NUMBERS = new Map(
  Object.entries({
    intra: THREADS,
    env_intra: THREADS,
    inter: THREADS,
    spin_us: [0, 1000000],
    excl_always: SWITCH,
    over_quota: SWITCH,
    excl: [0, 65536],
    smt: SWITCH,
    streams: STREAMS,
    workers: STREAMS,
    runs: STREAMS,
    min: THREADS,
    max: THREADS,
    min_inter: THREADS,
    floor: SWITCH,
    omp: THREADS,
    blas: THREADS,
    torch_inter: THREADS,
    gpu: SWITCH,
    global: SWITCH,
    global_intra: THREADS,
    shared_arena: SWITCH,
    arena: SWITCH,
    mem_pattern: SWITCH,
    shrink: SWITCH,
    ...CONFIG_ENTRIES,
    'cuda.cudnn_conv_use_max_workspace': SWITCH,
    'cuda.cudnn_conv1d_pad_to_nc1d': SWITCH,
    'cuda.do_copy_in_default_stream': SWITCH,
    'cuda.enable_cuda_graph': SWITCH,
    'cuda.use_tf32': SWITCH,
    'cuda.fuse_conv_bias': SWITCH,
    'cuda.gpu_mem_limit': GPU_MEM_BYTES,
    'cuda.prefer_nhwc': SWITCH,
    'cuda.sdpa_kernel': [0, 65535],
    'cuda.use_ep_level_unified_stream': SWITCH,
    'openvino.num_of_threads': POOL,
    'openvino.num_streams': POOL,
    'xnnpack.intra_op_num_threads': POOL,
  }),
);

// key -> the words allowed
const WORDS = new Map(
  Object.entries({
    spin: ['never', 'bounded', 'always'],
    mode: ['sequential', 'parallel'],
    graph: ['disable', 'basic', 'extended', 'all'],
    aff: ['none', 'numa', 'core'],
    numa: ['single', 'any'],
    ctype: ['performance', 'efficient', 'any'],
    existing: ['respect', 'override'],
    observe: ['none', 'sessions', 'runs'],
    alloc: ['system', 'mimalloc', 'jemalloc', 'tcmalloc'],
    'cuda.arena_extend_strategy': ['kNextPowerOfTwo', 'kSameAsRequested'],
    'cuda.cudnn_conv_algo_search': ['EXHAUSTIVE', 'HEURISTIC', 'DEFAULT'],
  }),
);

/** RADDLE_PLAN that can't be used; the message names the part, what was there and what is allowed. */
class PlanError extends Error {}

/**
 * The fields of RADDLE_PLAN; absent keys are absent.
 * @param {string} text
 * @returns {Record<string, number | string>}
 * @throws {PlanError}
 */
function decode(text) {
  // Python counts characters, JavaScript counts halves of those above U+FFFF.
  if (text.length > MAX_PLAN_TEXT && (text.length > 2 * MAX_PLAN_TEXT || Array.from(text).length > MAX_PLAN_TEXT)) {
    throw new PlanError(`plan is ${text.length} characters long, at most ${MAX_PLAN_TEXT} are allowed`);
  }
  const fields = Object.create(null);
  let version;
  for (const part of text.split(';')) {
    const at = part.indexOf('=');
    if (at < 0) {
      throw new PlanError(`plan part ${quoted(part, 40)} is not key=value`);
    }
    const key = part.slice(0, at);
    const value = part.slice(at + 1);
    if (key === 'v') {
      version = value;
    } else if (WORDS.has(key)) {
      fields[key] = word(key, value);
    } else if (NUMBERS.has(key)) {
      fields[key] = integer(key, value);
    }
  }
  if (version !== VERSION) {
    const found = version === undefined ? 'None' : quoted(version, 20);
    throw new PlanError(`plan version is ${found}, this shim reads version ${VERSION}`);
  }
  return fields;
}

function quoted(text, length) {
  return `'${Array.from(text.slice(0, 2 * length)).slice(0, length).join('')}'`;
}

function word(key, value) {
  const allowed = WORDS.get(key);
  if (!allowed.includes(value)) {
    throw new PlanError(`plan field ${key}=${quoted(value, 40)} must be one of ${allowed.join(', ')}`);
  }
  return value;
}

function integer(key, value) {
  const [low, high] = NUMBERS.get(key);
  if ((low < 0 ? /^-?[0-9]{1,20}$/ : /^[0-9]{1,20}$/).test(value)) {
    const number = BigInt(value);
    if (low <= number && number <= high) {
      return Number(number);
    }
  }
  throw new PlanError(`plan field ${key}=${quoted(value, 40)} must be an integer from ${low} to ${high}`);
}

/**
 * @typedef {object} Facts what holds for this process now
 * @property {number[] | null} cpus the CPUs that it may run on, ascending; null or empty: not known
 * @property {number | null} quotaCPUs CFS quota of the tightest visible cgroup in CPUs; null: none
 * @property {number} workersSeen processes like this one with the same parent, this one counted
 * @property {{threads: number, because: string} | null} [placed] what the CPUs have room for, where they are the
 *     exclusive ones of the plan
 */

/**
 * @typedef {object} Effective a plan's values for one process; null: leave it alone
 * @property {number | null} intra
 * @property {number | null} inter
 * @property {string | null} spin
 * @property {number} spinUs
 * @property {number | null} cap threads that fit one session's share; null: neither quota nor cpuset is known
 * @property {boolean} exclusive the CPUs are the exclusive ones that the plan expects and nobody shares them
 * @property {Record<string, string>} because what decided, value by value
 */

/**
 * What the plan's fields come to for these facts.
 * @param {Record<string, any>} fields
 * @param {Facts} facts
 * @returns {Effective}
 */
function resolve(fields, facts) {
  const { placed } = facts;
  const found = placed ? roomFor(fields, facts, placed.threads, placed.because) : cpusRoom(fields, facts);
  const room = found.threads;
  const workers = either(fields.workers, 1);
  let streams = either(fields.streams, 1);
  const crowded = facts.workersSeen > workers;
  if (crowded) {
    streams = facts.workersSeen * Math.max(1, Math.floor(streams / workers));
  }
  const where = found.where + sharedBy(fields, facts);
  const cap = room === null ? null : Math.max(1, Math.floor(room / streams));
  const because = {};
  const intra = clamped('intra', fields, cap, either(fields.min, 1), where, because);
  const inter = clamped('inter', fields, cap, either(fields.min_inter, 1), where, because);
  const exclusive = areExclusive(fields, facts, streams);
  const { spin, spinUs, why } = resolveSpinning(fields, facts, { intra, inter, parallel: fields.mode === 'parallel' });
  if (why) {
    because.spin = why;
  }
  return { intra, inter, spin, spinUs, cap, exclusive, because };
}

/**
 * Spinning for a session's own counts, which need not be the plan's.
 * @param {Record<string, any>} fields
 * @param {Facts} facts
 * @param {{intra?: number | null, inter?: number | null, parallel: boolean}} session
 * @returns {{spin: string | null, spinUs: number, why: string}}
 */
function resolveSpinning(fields, facts, { intra, inter, parallel }) {
  if (fields.spin !== 'bounded') {
    return { spin: either(fields.spin, null), spinUs: 0, why: '' };
  }
  // Threads that want a CPU are counted against CPUs; those of a pool against what they are placed on.
  const room = cpusRoom(fields, facts);
  const shared = sharedBy(fields, facts);
  // One session's callers, and its pools' workers.
  const runnable = either(fields.runs, 1) + (intra || 1) - 1 + (parallel ? (inter || 1) - 1 : 0);
  if (shared || (room.threads !== null && runnable > room.threads)) {
    return { spin: 'never', spinUs: 0, why: `planned bounded, stopped: ${room.where}${shared}` };
  }
  if (fields.excl_always && areExclusive(fields, facts, either(fields.streams, 1))) {
    return { spin: 'always', spinUs: 0, why: '' };
  }
  return { spin: 'bounded', spinUs: either(fields.spin_us, DEFAULT_SPIN_US), why: '' };
}

function areExclusive(fields, { cpus }, streams) {
  return cpus !== null && cpus.length > 0 && fields.excl === cpus.length && streams === 1;
}

function cpusRoom(fields, facts) {
  const size = facts.cpus && facts.cpus.length ? facts.cpus.length : null;
  return roomFor(fields, facts, size, `cpuset of ${size}`);
}

/** The words for more workers than were planned. */
function sharedBy(fields, { workersSeen }) {
  return workersSeen > either(fields.workers, 1) ? `, shared by ${workersSeen} workers` : '';
}

/** The smaller of the quota and `size` CPUs (null: neither is known), and which of the two decided. */
function roomFor(fields, facts, size, words) {
  const { quotaCPUs } = facts;
  // More threads than the quota were planned for one process that serves one request at a time.
  const overQuota = fields.over_quota && !sharedBy(fields, facts);
  if (quotaCPUs === null || overQuota || (size !== null && quotaCPUs >= size)) {
    return { threads: size, where: words };
  }
  const threads = Math.max(1, fields.floor ? Math.floor(quotaCPUs) : Math.ceil(quotaCPUs));
  return { threads, where: `quota ${Number(quotaCPUs.toPrecision(6))}` };
}

function clamped(key, fields, cap, least, where, because) {
  const planned = fields[key];
  if (planned === undefined || cap === null || planned <= cap) {
    return either(planned, null);
  }
  // Never more than planned: `least` above the plan is a plan that contradicts itself.
  const value = Math.max(cap, Math.min(least, planned));
  if (value < planned) {
    because[key] = `planned ${planned}, cut to ${where}`;
  }
  return value;
}

function either(value, otherwise) {
  return value === undefined ? otherwise : value;
}

module.exports = { CONFIG_ENTRIES, PlanError, decode, resolve, resolveSpinning };
