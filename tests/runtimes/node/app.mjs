import * as ort from 'onnxruntime-node';

import look from './look.cjs';

await look(ort, JSON.parse(process.argv[2]));
