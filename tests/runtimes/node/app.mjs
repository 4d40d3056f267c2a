import * as ort from 'onnxruntime-node';

import look from './look.cjs';

// Of a CommonJS module Node.js finds only some names.
await look(ort.InferenceSession ? ort : ort.default, JSON.parse(process.argv[2]));
