'use strict';

/**
 * onnxruntime-node: every session of the process gets the plan's values, whoever makes it.
 *
 * `InferenceSession` of the native binding is the one class that all JavaScript reaches, CommonJS or ESM, and its
 * `loadModel` reads the options once. So a subclass in its place hands on the code's options with the plan's values in
 * front of them. Where that fails the session is made as it would have been without Raddle.
 */

const fs = require('fs');
const path = require('path');

const { Choice } = require('./choice.cjs');
const { EXTRA_SINCE, SPIN_DURATION_SINCE } = require('./entries.cjs');
const facts = require('./facts.cjs');
const kernel = require('./kernel.cjs');
const { decode, resolve } = require('./plan.cjs');
const record = require('./record.cjs');

const RUNTIME = 'onnxruntime';
// Facts are read again for a session that comes later than this: an in-place resize changes the quota.
const FACTS_AGE_MS = 10000;
// The native shim's file, the mapping by which it says that it acts (api.c: tell_node), and room for the mappings of a
// process with thousands of them.
const NATIVE = 'libraddle.so';
const ACTS = '/memfd:raddle-acts (deleted)\n';
const MAX_MAPS_BYTES = 4 * 1024 * 1024;
// bin/napi-v6/linux/x64/onnxruntime_binding.node is four folders deep.
const MAX_FOLDERS_UP = 6;
// How ONNX Runtime tells of a model that it couldn't read in; options come to effect behind that.
const MODELS_ERRORS = /^Load model from |rotobuf parsing failed|This is an invalid model/;

/**
 * Puts the wrapped class into the binding. One that can't be wrapped is left alone, with a line on stderr.
 * @param {any} binding what the addon exports
 * @param {string} filename the addon's file
 */
function install(binding, filename) {
  if (nativeShimActs()) {
    return;
  }
  const text = process.env.RADDLE_PLAN;
  if (!text) {
    // The application has taken it out since the process started: it wants to be left alone.
    return;
  }
  let fields;
  try {
    fields = decode(text);
  } catch (error) {
    record.announce(RUNTIME, `onnxruntime is left alone: ${error.message}`);
    return;
  }
  try {
    facts.enterThread();
    const runtime = new Runtime(binding, filename, fields, text);
    binding.InferenceSession = runtime.sessionClass();
  } catch (error) {
    record.complain(`onnxruntime is left alone: ${error}`);
  }
}

/** Whether the native shim does all this below the binding, for every version, and more. */
function nativeShimActs() {
  const asked = (process.env.LD_PRELOAD || '').includes(NATIVE);
  return asked && kernel.text('/proc/self/maps', MAX_MAPS_BYTES).includes(ACTS);
}

/**
 * The environment's counts: `own`, those that it sets otherwise than the plan (intra, inter), and `ours`, those that
 * are the plan's. None where the policy overrides.
 *
 * What Raddle itself puts into the environment equals the plan; anything else came by a way that the webhook can't see,
 * and ONNX Runtime from 1.29 on reads it by itself; older ones are given it.
 */
function countsIn(environ, fields) {
  const own = {};
  const ours = [];
  if (fields.existing === 'override') {
    return { own, ours };
  }
  const count = (name) => (/^[0-9]{1,9}$/.test(environ[name] || '') ? Number(environ[name]) : 0);
  const intra = fields.env_intra || fields.intra;
  const pools = [['intra', 'ORT_INTRA_OP_NUM_THREADS', intra], ['inter', 'ORT_INTER_OP_NUM_THREADS', fields.inter]];
  for (const [key, name, planned] of [...pools, ['omp', 'OMP_NUM_THREADS', fields.omp]]) {
    if (count(name) === planned) {
      ours.push(planned);
    } else if (count(name) > 0 && key !== 'omp') {
      own[key] = count(name);
    }
  }
  return { own, ours };
}

/**
 * The version of the package that a file belongs to: "1.30.0", "" where that can't be found (a bundle).
 * @param {string} filename
 * @returns {string}
 */
function versionOf(filename) {
  let folder = filename;
  for (let up = 0; up < MAX_FOLDERS_UP; up++) {
    folder = path.dirname(folder);
    try {
      const found = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8'));
      if (found.name === 'onnxruntime-node') {
        return String(found.version);
      }
    } catch (error) {
      // Not this folder.
    }
  }
  return '';
}

function isSince(version, [major, minor]) {
  const found = /^([0-9]+)\.([0-9]+)/.exec(version);
  return found !== null && (Number(found[1]) > major || (Number(found[1]) === major && Number(found[2]) >= minor));
}

/** The class with its run times counted, for the one plan that pays for it. */
function timed(original) {
  return class InferenceSession extends original {
    run(...args) {
      return this.raddleRuns ? this.raddleRuns.timed(this, super.run, args) : super.run(...args);
    }
  };
}

/** One loaded binding and the plan for it. */
class Runtime {
  constructor(binding, filename, fields, planText) {
    this.original = binding.InferenceSession;
    this.fields = fields;
    this.counts = countsIn(process.env, fields);
    this.planText = planText;
    this.version = versionOf(filename);
    this.binding = {
      // initOrtOnce came with `extra`, in 1.21.
      hasExtra: this.version ? isSince(this.version, EXTRA_SINCE) : 'initOrtOnce' in binding,
      hasSpinDuration: isSince(this.version, SPIN_DURATION_SINCE),
    };
    // Nobody but the report asks what was recorded; loaded here, for without reports no process pays for it.
    this.level = process.env.RADDLE_REPORT ? fields.observe || 'sessions' : 'none';
    this.observe = this.level === 'none' ? null : require('./observe.cjs');
    this.facts = null;
    this.factsAt = 0;
    this.placement = null;
    record.state.runtimes[RUNTIME] = { version: this.version };
    // Sessions whose workers have a core each; those that are gone are dropped.
    this.pinned = [];
  }

  sessionClass() {
    const runtime = this;
    const wrapped = class InferenceSession extends this.original {
      loadModel(...args) {
        return runtime.load(this, super.loadModel, args);
      }

      dispose(...args) {
        runtime.pinned = runtime.pinned.filter((held) => held.deref() !== this);
        return super.dispose(...args);
      }
    };
    return this.level === 'runs' ? timed(wrapped) : wrapped;
  }

  /** Makes the session with the plan's values, or as it would have been where that isn't possible. */
  load(session, original, args) {
    const choice = this.choose(args);
    if (choice === null) {
      return Reflect.apply(original, session, args);
    }
    const creation = this.observe && new this.observe.Creation();
    let result;
    try {
      result = Reflect.apply(original, session, [...args.slice(0, -1), choice.edited()]);
    } catch (failure) {
      if (!choice.changes.size || MODELS_ERRORS.test(failure.message)) {
        throw failure;
      }
      // Throws what the code would have seen without Raddle; where it doesn't, our values were to blame.
      result = Reflect.apply(original, session, args);
      record.complain(`onnxruntime session is created without the plan's values: ${failure.message}`);
      return result;
    }
    this.created(session, choice, creation, args);
    return result;
  }

  choose(args) {
    try {
      // (path, options) or (buffer, offset, length, options); anything else is for the binding to refuse.
      const options = args[args.length - 1];
      if (args.length < 2 || options === null || typeof options !== 'object') {
        return null;
      }
      const now = this.currentFacts();
      return new Choice({
        fields: this.fields,
        wanted: resolve(this.fields, now),
        facts: now,
        options,
        binding: this.binding,
        ...this.counts,
        groups: (affinity, cpus, threads) => this.groups(affinity, cpus, threads),
      });
    } catch (error) {
      record.complain(`onnxruntime session is left alone: ${error}`);
      return null;
    }
  }

  currentFacts() {
    const now = Date.now();
    if (this.facts === null || Math.abs(now - this.factsAt) > FACTS_AGE_MS) {
      const { streams = 1, workers = 1 } = this.fields;
      this.facts = facts.readFacts(Math.max(1, Math.floor(streams / workers)), workers);
      this.factsAt = now;
    } else {
      this.facts = facts.refreshed(this.facts);
    }
    this.facts.placed = this.place(this.facts.cpus);
    record.state.facts = this.facts;
    return this.facts;
  }

  /** Where the exclusive CPUs of the plan have room; null where the CPUs are others. */
  place(cpus) {
    if (!cpus || this.fields.excl !== cpus.length) {
      this.placement = null;
    } else if (this.placement === null || String(this.placement.machine.cpus) !== String(cpus)) {
      try {
        // Loaded here: only an exclusive container needs it.
        const { Placement } = require('./placement.cjs');
        this.placement = new Placement(cpus, this.fields);
      } catch (error) {
        record.complain(`exclusive CPUs are only counted: ${error}`);
        this.placement = null;
      }
    }
    return this.placement;
  }

  groups(affinity, cpus, threads) {
    if (affinity === 'core' && this.pinned.some((held) => held.deref() !== undefined)) {
      return { text: '', why: "another session's workers have a core each" };
    }
    const placement = this.place(cpus);
    const text = placement === null ? '' : placement.affinityText(threads, affinity);
    return { text, why: `no groups for ${threads} threads on these CPUs` };
  }

  created(session, choice, creation, args) {
    try {
      if (choice.values.affinity === 'core') {
        this.pinned.push(new WeakRef(session));
      }
      if (creation !== null) {
        const known = { runtime: RUNTIME, version: this.version, effective: choice.values, because: choice.because };
        const made = creation.created(known, session, args, this.planText, this.facts);
        if (this.level === 'runs') {
          const runs = new this.observe.Runs();
          made.runs = runs;
          Object.defineProperty(session, 'raddleRuns', { value: runs });
          this.observe.sample(this.facts.cgroup, record.sample);
        }
        record.add(made);
      }
      if (this.facts.first) {
        record.announce(RUNTIME, choice.line(this.version || '(bundled)'));
      }
    } catch (error) {
      record.complain(`onnxruntime session is not recorded: ${error}`);
    }
  }
}

module.exports = { install };
