'use strict';

/**
 * ONNX Runtime's configuration entries of one session: those of the code, and the plan's for spinning and by name.
 * Pure. onnxruntime-node takes them as its option `extra`, an object whose objects nest by dots.
 */

const { CONFIG_ENTRIES, resolveSpinning } = require('./plan.cjs');

// js/node reads `extra` since 1.21: microsoft/onnxruntime#22660. session.*.spin_duration_us: #27916.
const EXTRA_SINCE = [1, 21];
const SPIN_DURATION_SINCE = [1, 26];
// The entries of a pool's spinning, and what ONNX Runtime takes where there is none; "0" for all other entries.
const SPIN_DEFAULTS = { allow_spinning: '1', spin_duration_us: '-1', spin_backoff_max: '1' };
// Deeper than any key of ONNX Runtime.
const MAX_DEPTH = 8;
const GPU_PROVIDERS = ['cuda', 'tensorrt', 'dml', 'webgpu', 'coreml', 'qnn'];
const IN_THE_CODE = 'set in the code';

/** The code's entries and the changes to them. */
class Entries {
  /**
   * @param {any} extra the code's option
   * @param {boolean} respect the code's stay
   */
  constructor(extra, respect) {
    const code = flattened(extra);
    // Values that the binding refuses are for it to refuse: nothing is written then.
    this.readable = code !== null;
    this.code = code || new Map();
    this.respect = respect;
    this.changed = false;
    this.all = new Map(this.code);
  }

  /** Plans an entry, unless the code's own stays or ONNX Runtime takes that value anyway. */
  plan(key, value, otherwise) {
    const present = this.code.get(key);
    if (!(this.respect && present !== undefined) && (present === undefined ? otherwise : present) !== value) {
      this.set(key, value);
    }
  }

  set(key, value) {
    this.all.set(key, value);
    this.changed = true;
  }

  drop(key) {
    this.all.delete(key);
    this.changed = true;
  }

  /** The option that has all of them, under their full names. */
  extra() {
    const found = Object.create(null);
    this.all.forEach((value, key) => (found[key] = value));
    return found;
  }
}

/** ONNX Runtime's keys of the option `extra`; null: there is a value that the binding refuses. */
function flattened(extra) {
  const found = new Map();
  const walk = (value, prefix, depth) => {
    if (typeof value === 'string') {
      found.set(prefix, value);
      return prefix !== '';
    }
    const nests = value !== null && typeof value === 'object' && depth < MAX_DEPTH;
    return nests && Object.keys(value).every((key) => walk(value[key], prefix ? `${prefix}.${key}` : key, depth + 1));
  };
  return extra === undefined || walk(extra, '', 0) ? found : null;
}

/**
 * Decides spinning: `values.spin` and `values.spinUs` of the choice, and the entries of the pools that it has.
 * @param {import('./choice.cjs').Choice} choice with its counts and mode decided
 */
function decideSpinning(choice) {
  const { values, because, binding, fields, facts } = choice;
  const gpu = gpuOf(choice.options);
  const { intra, inter, mode } = values;
  const resolved = resolveSpinning(fields, facts, { intra, inter, parallel: mode === 'parallel' });
  let planned = resolved.spin;
  delete because.spin;
  if (resolved.why) {
    because.spin = resolved.why;
  }
  if (!choice.pools.length) {
    planned = 'never';
    because.spin = 'no worker threads';
  } else if (stops(choice.wanted) && !binding.hasExtra) {
    because.spin = `planned ${planned}; ${since('can stop spinning', EXTRA_SINCE)}`;
    planned = 'always';
  } else if (fields.spin === 'bounded' && planned !== 'never' && gpu) {
    // Its workers wait for a GPU most of the time; the count stays, since the provider may fall back to the CPU.
    planned = 'never';
    because.spin = `planned bounded, stopped: ${gpu}`;
  } else if (planned === 'bounded' && !binding.hasSpinDuration) {
    planned = 'never';
    because.spin = `planned bounded, which onnxruntime can since ${SPIN_DURATION_SINCE.join('.')}`;
  }
  values.spin = planned || 'always';
  if (binding.hasExtra) {
    choice.pools.forEach((pool) => poolSpinning(choice, `session.${pool}_op.`, planned, resolved.spinUs));
  }
}

/** Plans the pool's entries: the policy's own before what follows from its word. */
function poolSpinning(choice, prefix, planned, spinUs) {
  const { entries, fields, values, because } = choice;
  let wanted = {};
  if (planned === 'never') {
    wanted.allow_spinning = '0';
  } else if (planned === 'bounded') {
    wanted = { allow_spinning: '1', spin_duration_us: String(spinUs) };
  }
  for (const option of Object.keys(SPIN_DEFAULTS)) {
    if (fields[prefix + option] !== undefined && knows(choice.binding, option)) {
      wanted[option] = String(fields[prefix + option]);
    }
  }
  const code = ['allow_spinning', 'spin_duration_us'].some((option) => entries.code.has(prefix + option));
  if (choice.respect && code && Object.keys(wanted).length) {
    values.spin = 'code';
    because.spin = IN_THE_CODE;
    delete wanted.allow_spinning;
    delete wanted.spin_duration_us;
  } else {
    saySpinning(values, wanted);
  }
  Object.entries(wanted).forEach(([option, value]) => entries.plan(prefix + option, value, SPIN_DEFAULTS[option]));
}

function saySpinning(values, wanted) {
  const duration = Number(wanted.spin_duration_us === undefined ? -1 : wanted.spin_duration_us);
  if (wanted.allow_spinning === '0' || duration === 0) {
    values.spin = 'never';
    delete values.spinUs;
  } else if (duration > 0) {
    values.spin = 'bounded';
    values.spinUs = duration;
  } else if (Object.keys(wanted).length) {
    values.spin = 'always';
  }
}

/**
 * Plans the entries that the policy names itself; those of pools were planned with their spinning.
 * @param {import('./choice.cjs').Choice} choice with its spinning decided
 */
function decideConfigEntries(choice) {
  const { binding, entries, fields } = choice;
  const found = {};
  const reasons = [];
  for (const key of Object.keys(CONFIG_ENTRIES).filter((name) => fields[name] !== undefined)) {
    const planned = String(fields[key]);
    const pool = /^session\.(intra|inter)_op\./.exec(key);
    if (!knows(binding, key)) {
      reasons.push(`${key}: ${since('can', binding.hasExtra ? SPIN_DURATION_SINCE : EXTRA_SINCE)}`);
    } else if (pool && !choice.pools.includes(pool[1])) {
      reasons.push(`${key}: there is no such pool`);
    } else {
      if (!pool) {
        entries.plan(key, planned, '0');
      }
      found[key] = choice.respect && entries.code.has(key) ? entries.code.get(key) : planned;
      if (found[key] !== planned) {
        reasons.push(`${key}: ${IN_THE_CODE}`);
      }
    }
  }
  if (Object.keys(found).length) {
    choice.values.configEntries = found;
  }
  if (reasons.length) {
    choice.because.configEntries = reasons.join('; ');
  }
}

/** Whether this version reads the entry. */
function knows(binding, key) {
  return binding.hasExtra && (binding.hasSpinDuration || !/spin_(duration_us|backoff_max)$/.test(key));
}

/**
 * Whether the plan does not leave spinning as it is.
 * @param {import('./plan.cjs').Effective} wanted
 * @returns {boolean}
 */
function stops(wanted) {
  return wanted.spin === 'never' || wanted.spin === 'bounded';
}

/** The GPU provider that the code asks for, undefined for none. */
function gpuOf(options) {
  const asked = Array.isArray(options.executionProviders) ? options.executionProviders : [];
  return asked.map((provider) => (provider && provider.name) || provider).find((name) => GPU_PROVIDERS.includes(name));
}

function since(what, [major, minor]) {
  return `onnxruntime-node ${what} since ${major}.${minor}`;
}

module.exports = {
  EXTRA_SINCE, Entries, IN_THE_CODE, SPIN_DURATION_SINCE, decideConfigEntries, decideSpinning, since, stops,
};
