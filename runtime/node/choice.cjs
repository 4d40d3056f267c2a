'use strict';

/**
 * The plan's values against the code's, for one session: pure. onnxruntime-node reads its options from a plain object,
 * so what changes is a list of its properties.
 */

const entries = require('./entries.cjs');

const { EXTRA_SINCE, Entries, IN_THE_CODE } = entries;

const AFFINITY_KEY = 'session.intra_op_thread_affinities';
const GRAPH_LEVELS = { disable: 'disabled', basic: 'basic', extended: 'extended', all: 'all' };
// Key of the plan -> its name in the record, and why it can't be had from Node.js.
const OUT_OF_REACH = {
  global: ['globalPool', 'onnxruntime-node has no global thread pool'],
  shared_arena: ['sharedArena', 'onnxruntime-node has no shared arena'],
  shrink: ['arenaShrinkage', 'onnxruntime-node passes no configuration entries to a run'],
};
const IN_THE_ENVIRONMENT = 'set in the environment';

/**
 * @typedef {object} Binding what the loaded version can do
 * @property {boolean} hasExtra it reads configuration entries
 * @property {boolean} hasSpinDuration ONNX Runtime bounds spinning by time
 */

/**
 * @typedef {object} Given what is decided by
 * @property {Record<string, any>} fields the plan
 * @property {import('./plan.cjs').Effective} wanted what it comes to here
 * @property {import('./plan.cjs').Facts} facts
 * @property {Record<string, any>} options the code's
 * @property {Binding} binding
 * @property {{intra?: number, inter?: number}} own counts that the environment sets otherwise than the plan
 * @property {number[]} ours counts that Raddle has put there
 * @property {(affinity: string, cpus: number[], threads: number) => {text: string, why: string}} groups the workers'
 *     groups in ONNX Runtime's words, or "" and why there are none
 */

/**
 * Decides between the plan's values and the code's.
 *
 * `values` is what the session gets: intra, inter, mode, spin, spinUs, affinity, graph, arena, memPattern,
 * configEntries; absent where neither says anything. `because` says what decided where it was not simply the plan.
 * `changes` are the properties that differ from the code's options.
 */
class Choice {
  /** @param {Given} given */
  constructor(given) {
    Object.assign(this, given);
    this.respect = this.fields.existing !== 'override';
    // Where the binding reads no entries the code's have no effect either.
    this.entries = new Entries(this.binding.hasExtra ? this.options.extra : undefined, this.respect);
    this.changes = new Map();
    this.values = {};
    this.because = Object.assign({}, this.wanted.because);
    this.decide();
  }

  decide() {
    for (const [key, [name, why]] of Object.entries(OUT_OF_REACH)) {
      if (this.fields[key]) {
        this.values[name] = false;
        this.because[name] = why;
      }
    }
    this.countsAndMode();
    this.pools = ['intra', 'inter'].filter((pool) => this.values[pool] !== 1);
    if (this.values.mode !== 'parallel') {
      this.pools = this.pools.filter((pool) => pool === 'intra');
    }
    entries.decideSpinning(this);
    entries.decideConfigEntries(this);
    this.affinity();
    const { graph, arena, mem_pattern: memPattern } = this.fields;
    this.property('graph', 'graphOptimizationLevel', graph, GRAPH_LEVELS[graph]);
    this.property('arena', 'enableCpuMemArena', flag(arena), flag(arena));
    this.property('memPattern', 'enableMemPattern', flag(memPattern), flag(memPattern));
    if (this.entries.changed && this.entries.readable) {
      this.changes.set('extra', this.entries.extra());
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
    const code = this.code('executionMode');
    const mode = planned && !(this.respect && code !== undefined) ? planned : code || 'sequential';
    this.values.mode = mode;
    if (mode !== (code || 'sequential')) {
      this.changes.set('executionMode', mode);
    } else if (code !== undefined && mode !== planned) {
      this.because.mode = IN_THE_CODE;
    }
    let { inter } = this.wanted;
    if (mode === 'parallel' && planned !== 'parallel') {
      // The code asks for parallel where the plan doesn't: one inter-op thread would quietly turn it off.
      inter = this.values.intra === undefined ? null : this.values.intra;
      this.because.inter = 'as intra, for the code asks for parallel';
    }
    this.count('inter', this.code('interOpNumThreads'), inter);
  }

  count(key, inCode, wanted) {
    const name = `${key}OpNumThreads`;
    // A copy of what Raddle has put into the environment. Where it is the code's own after all, it gets no more.
    const copied = this.ours.includes(inCode) && wanted !== null && wanted <= inCode;
    const code = copied ? undefined : inCode;
    const said = code === undefined ? this.own[key] : code;
    let value = wanted;
    if (said !== undefined && (this.respect || wanted === null)) {
      this.because[key] = code === undefined ? IN_THE_ENVIRONMENT : IN_THE_CODE;
      value = said;
    } else if (value !== null && this.uncontrolled()) {
      const least = Math.min(this.fields[key === 'intra' ? 'min' : 'min_inter'] || 1, value);
      if (least < value) {
        const why = entries.since('can stop spinning', EXTRA_SINCE);
        this.because[key] = `planned ${this.fields[key]}, cut to ${least}: ${why}`;
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
    return !this.binding.hasExtra && binds && entries.stops(this.wanted);
  }

  codeAffinity() {
    return this.entries.code.get(AFFINITY_KEY);
  }

  affinity() {
    const planned = this.fields.aff || 'none';
    const { cpus } = this.facts;
    this.values.affinity = 'none';
    if (this.codeAffinity() && this.respect) {
      this.values.affinity = 'code';
      this.because.affinity = IN_THE_CODE;
      return;
    }
    if (this.codeAffinity()) {
      // The code's groups need not fit the plan's count.
      this.entries.drop(AFFINITY_KEY);
      this.because.affinity = "the code's is overridden";
    }
    if (planned !== 'none' && cpus && this.values.intra > 1) {
      this.plannedAffinity(planned, cpus, this.values.intra);
    }
  }

  plannedAffinity(planned, cpus, count) {
    if (!this.wanted.exclusive) {
      this.because.affinity = 'the CPUs are not the exclusive ones that were planned';
    } else if (!this.binding.hasExtra) {
      this.because.affinity = entries.since('can', EXTRA_SINCE);
    } else {
      const { text, why } = this.groups(planned, cpus, count);
      if (text) {
        this.values.affinity = planned;
        this.values.affinityGroups = text;
        this.entries.set(AFFINITY_KEY, text);
      } else {
        this.because.affinity = why;
      }
    }
  }

  property(key, name, planned, value) {
    if (planned === undefined) {
      return;
    }
    if (this.respect && name in this.options) {
      this.because[key] = IN_THE_CODE;
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
    // The binding looks properties up as JavaScript does, so the code's own, inherited or frozen, stay as they are.
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

/** A plan's 0 and 1 as the binding takes them. */
function flag(value) {
  return value === undefined ? undefined : value === 1;
}

module.exports = { Choice };
