'use strict';

/** OpenTelemetry's instrumentation of a module, as its auto-instrumentation registers one with --require. */

const fs = require('fs');

const { InstrumentationBase, InstrumentationNodeModuleDefinition } = require('@opentelemetry/instrumentation');

class Instrumentation extends InstrumentationBase {
  init() {
    const patch = (ort) => {
      const { create } = ort.InferenceSession;
      ort.InferenceSession.create = function (...args) {
        fs.writeSync(2, 'instrumented create\n');
        return create.apply(this, args);
      };
      return ort;
    };
    return new InstrumentationNodeModuleDefinition('onnxruntime-node', ['*'], patch);
  }
}

new Instrumentation('onnxruntime-node', '1.0.0', {}).enable();
