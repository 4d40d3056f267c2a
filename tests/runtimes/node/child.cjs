'use strict';

/** A child that runs app.cjs: forked, or spawned with `spawn`; with the request's `execArgv`. */

const { fork, spawn } = require('child_process');
const path = require('path');

const request = JSON.parse(process.argv[2]);
const app = path.join(__dirname, 'app.cjs');
if (request.spawn) {
  spawn(process.execPath, [app, process.argv[2]], { stdio: 'inherit' });
} else {
  fork(app, [process.argv[2]], request.execArgv ? { execArgv: request.execArgv } : {});
}
