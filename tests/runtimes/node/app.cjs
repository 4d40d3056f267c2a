'use strict';

const ort = require('onnxruntime-node');

require('./look.cjs')(ort, JSON.parse(process.argv[2]));
