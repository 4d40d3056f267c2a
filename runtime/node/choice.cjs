'use strict';

/**
 * The plan's values against the code's, for one session: pure. onnxruntime-node reads its options from a plain object,
 * so what changes is a list of its properties; ONNX Runtime's configuration entries go into its property `extra`.
 */

const { CONFIG_ENTRIES } = require('./plan.cjs');

// js/node reads `extra` since 1.21: microsoft/onnxruntime#22660. session.*.spin_duration_us: #27916.
const EXTRA_SINCE = [1, 21];
const SPIN_DURATION_SINCE = [1, 26];
const AFFINITY_KEY = 'session.intra_op_thread_affinities';
const GRAPH_LEVELS = { disable: 'disabled', basic: 'basic', extended: 'extended', all: 'all' };
// Deeper than any key of ONNX Runtime.
const MAX_DEPTH = 8;
// key of the plan -> why it can't be had from Node.js
const OUT_OF_REACH = {
  global: 'onnxruntime-node has no global thread pool',
  shared_arena: 'onnxruntime-node has no shared arena',
  shrink: 'onnxruntime-node passes no configuration entries to a run',
};

/**
 * @typedef {object} Binding what the loaded version can do
 * @property {boolean} hasExtra it reads configuration entries
 * @property {boolean} hasSpinDuration ONNX Runtime bounds spinning by time
 */

/**
 * Decides between the plan's values and the code's.
 *
 * `values` is what the session gets: intra, inter, mode, spin, spinUs, affinity, graph, arena, memPattern; absent where
 * neither says anything. `because` says what decided where it was not simply the plan. `changes` are the properties
 * that differ from the code's options.
 */
class Choice {
  /**
   * @param {Record<string, any>} fields the plan
   * @param {import('./plan.cjs').Effective} wanted what it comes to here
   * @param {import('./plan.cjs').Facts} facts
   * @param {Record<string, any>} options the code's
   * @param {Binding} binding
   * @param {(affinity: string, cpus: number[], threads: number) => {text: string, why: string}} groups the workers'
   *     groups in ONNX Runtime's words, or "" and why there are none
   */
  constructor(fields, wanted, facts, options, binding, groups) {
    this.fields = fields;
    this.wanted = wanted;
    this.facts = facts;
    this.options = options;
    this.binding = binding;
    this.groups = groups;
    this.respect = fields.existing !== 'override';
    // The code's own entries; null: they are none that the binding would take, which is for it to say.
    this.entries = binding.hasExtra ? flattened(options.extra) : new Map();
    this.added = new Map();
    this.changes = new Map();
    this.values = {};
    this.because = Object.assign({}, wanted.because);
    this.decide();
  }

  decide() {
    for (const key of Object.keys(OUT_OF_REACH)) {
      if (this.fields[key]) {
        this.because[key] = OUT_OF_REACH[key];
      }
    }
    this.countsAndMode();
    this.spinning();
    this.configEntries();
    this.affinity();
    const graph = this.fields.graph;
    this.property('graph', 'graphOptimizationLevel', graph, GRAPH_LEVELS[graph]);
    this.property('arena', 'enableCpuMemArena', this.fields.arena, this.fields.arena === 1);
    this.property('memPattern', 'enableMemPattern', this.fields.mem_pattern, this.fields.mem_pattern === 1);
    if (this.added.size) {
      const extra = Object.create(null);
      new Map([...this.entries, ...this.added]).forEach((value, key) => (extra[key] = value));
      this.changes.set('extra', extra);
    }
  }

  /** What the code has set, undefined if nothing. 0 is ONNX Runtime's "unset"; anything else is the code's will. */
  code(name) {
    return name in this.options && this.options[name] !== 0 ? this.options[name] : undefined;
  }

  countsAndMode() {
    const planned = this.uncontrolled() ? 'sequential' : this.fields.mode;
    let intra = this.code('intraOpNumThreads');
    if (this.respect && intra === undefined && this.codeAffinity()) {
      // The code's affinity has a group for each worker: any other count would fail.
      intra = this.codeAffinity().split(';').filter(Boolean).length + 1;
    }
    this.count('intra', intra, this.wanted.intra);
    const codeMode = this.code('executionMode');
    const mode = planned && !(this.respect && codeMode !== undefined) ? planned : codeMode || 'sequential';
    this.values.mode = mode;
    if (mode !== (codeMode || 'sequential')) {
      this.changes.set('executionMode', mode);
    }
    let inter = this.wanted.inter;
    if (mode !== planned && codeMode !== undefined) {
      this.because.mode = 'set in the code';
    }
    if (mode === 'parallel' && planned !== 'parallel') {
      // The code asks for parallel where the plan doesn't: one inter-op thread would quietly turn it off.
      inter = this.values.intra === undefined ? null : this.values.intra;
    }
    this.count('inter', this.code('interOpNumThreads'), inter);
  }

  count(key, code, wanted) {
    const name = `${key}OpNumThreads`;
    let value = wanted;
    if (code !== undefined && (this.respect || wanted === null)) {
      this.because[key] = 'set in the code';
      value = code;
    } else if (value !== null && this.uncontrolled()) {
      const least = Math.min(this.fields[key === 'intra' ? 'min' : 'min_inter'] || 1, value);
      if (least < value) {
        this.because[key] = `planned ${this.fields[key]}, cut to ${least}: ${sinceText('can stop spinning', EXTRA_SINCE)}`;
        value = least;
      }
    }
    if (value !== null) {
      this.values[key] = value;
      if (this.options[name] !== value) {
        this.changes.set(name, value);
      }
    }
  }

  /** Whether this version's workers would spin a quota away. */
  uncontrolled() {
    const { cpus, quotaCPUs } = this.facts;
    const binds = quotaCPUs !== null && !(cpus && quotaCPUs >= cpus.length);
    return !this.binding.hasExtra && binds && this.stops();
  }

  /** Whether the plan does not leave spinning as it is. */
  stops() {
    return this.wanted.spin === 'never' || this.wanted.spin === 'bounded';
  }

  spinning() {
    const pools = ['intra', 'inter'].filter(
      (pool) => this.values[pool] !== 1 && (pool === 'intra' || this.values.mode === 'parallel'),
    );
    let planned = this.wanted.spin;
    if (!pools.length) {
      planned = 'never';
      this.because.spin = 'no worker threads';
    } else if (this.stops() && !this.binding.hasExtra) {
      this.because.spin = `planned ${planned}; ${sinceText('can stop spinning', EXTRA_SINCE)}`;
      planned = 'always';
    } else if (planned === 'bounded' && !this.binding.hasSpinDuration) {
      planned = 'never';
      this.because.spin = `planned bounded, which onnxruntime can since ${SPIN_DURATION_SINCE.join('.')}`;
    }
    this.values.spin = planned || 'always';
    if (this.entries !== null && (planned === 'never' || planned === 'bounded')) {
      pools.forEach((pool) => this.poolSpinning(`session.${pool}_op.`, planned));
    }
  }

  poolSpinning(prefix, planned) {
    const allowKey = `${prefix}allow_spinning`;
    const durationKey = `${prefix}spin_duration_us`;
    if (this.respect && (this.entries.has(allowKey) || this.entries.has(durationKey))) {
      this.values.spin = 'code';
      this.because.spin = 'set in the code';
    } else if (planned === 'never') {
      this.entry(allowKey, '0');
    } else {
      this.values.spinUs = this.wanted.spinUs;
      // Allowed is ONNX Runtime's default.
      if (this.entries.has(allowKey)) {
        this.entry(allowKey, '1');
      }
      this.entry(durationKey, String(this.wanted.spinUs));
    }
  }

  /** The entries that the policy names itself; they win over what follows from its words. */
  configEntries() {
    for (const key of Object.keys(CONFIG_ENTRIES)) {
      if (this.fields[key] === undefined) {
        continue;
      }
      if (!this.binding.hasExtra) {
        this.because[key] = sinceText('takes configuration entries', EXTRA_SINCE);
      } else if (this.respect && this.entries !== null && this.entries.has(key)) {
        this.because[key] = 'set in the code';
      } else if (this.entries !== null) {
        this.values.configEntries = Object.assign({}, this.values.configEntries, { [key]: this.fields[key] });
        this.entry(key, String(this.fields[key]));
      }
    }
  }

  entry(key, value) {
    if (this.entries.get(key) !== value) {
      this.added.set(key, value);
    }
  }

  codeAffinity() {
    return this.entries === null ? undefined : this.entries.get(AFFINITY_KEY);
  }

  affinity() {
    const planned = this.fields.aff || 'none';
    const count = this.values.intra;
    const { cpus } = this.facts;
    const code = this.codeAffinity();
    this.values.affinity = 'none';
    if (code && this.respect) {
      this.values.affinity = 'code';
      this.because.affinity = 'set in the code';
      return;
    }
    let text = '';
    if (planned !== 'none' && cpus && count > 1) {
      text = this.plannedAffinity(planned, cpus, count);
    }
    if (code && !text) {
      // The code's groups need not fit the plan's count.
      this.because.affinity = "the code's is overridden";
      const kept = new Map([...this.entries].filter(([key]) => key !== AFFINITY_KEY));
      this.entries = kept;
      const extra = Object.create(null);
      kept.forEach((value, key) => (extra[key] = value));
      this.changes.set('extra', extra);
    }
    if (text) {
      this.entry(AFFINITY_KEY, text);
    }
  }

  plannedAffinity(planned, cpus, count) {
    if (!this.wanted.exclusive) {
      this.because.affinity = 'the CPUs are not the exclusive ones that were planned';
    } else if (!this.binding.hasExtra) {
      this.because.affinity = sinceText('takes configuration entries', EXTRA_SINCE);
    } else if (this.entries !== null) {
      const { text, why } = this.groups(planned, cpus, count);
      if (text) {
        this.values.affinity = planned;
        this.values.affinityGroups = text;
        return text;
      }
      this.because.affinity = why;
    }
    return '';
  }

  property(key, name, planned, value) {
    if (planned === undefined) {
      return;
    }
    if (this.respect && name in this.options) {
      this.because[key] = 'set in the code';
      return;
    }
    this.values[key] = planned;
    if (this.options[name] !== value) {
      this.changes.set(name, value);
    }
  }

  /**
   * The code's options with the changes in front of them; the object itself when nothing changes.
   * @returns {Record<string, any>}
   */
  edited() {
    if (!this.changes.size) {
      return this.options;
    }
    // The binding looks properties up as JavaScript does, so the code's own, inherited and frozen ones stay as they are.
    const edited = Object.create(this.options);
    this.changes.forEach((value, key) => Object.defineProperty(edited, key, { value, enumerable: true }));
    return edited;
  }

  /**
   * E.g. "onnxruntime 1.31.1: intra_op=2 (planned 4, cut to quota 2), inter_op=1, spinning off, affinity none".
   * @param {string} version
   * @returns {string}
   */
  line(version) {
    const { values, because } = this;
    const spin = { never: 'off', bounded: `${values.spinUs} us`, code: 'as in the code' };
    const shown = (value) => (value === undefined ? 'default' : value);
    const parts = [
      ['intra', `intra_op=${shown(values.intra)}`],
      ['inter', `inter_op=${shown(values.inter)}`],
      ['spin', `spinning ${spin[values.spin] || 'default'}`],
      ['affinity', `affinity ${values.affinity}`],
    ];
    const said = parts.map(([key, text]) => (because[key] ? `${text} (${because[key]})` : text));
    return `onnxruntime ${version}: ${said.join(', ')}`;
  }
}

/**
 * ONNX Runtime's keys of the option `extra`, whose objects nest by dots.
 * @param {any} extra
 * @returns {Map<string, string> | null} null: there is a value that the binding refuses
 */
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

function sinceText(what, [major, minor]) {
  return `onnxruntime-node ${what} since ${major}.${minor}`;
}

module.exports = { Choice, EXTRA_SINCE, SPIN_DURATION_SINCE };
