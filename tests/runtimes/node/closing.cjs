'use strict';

/** Loaded after the shim: standard error is closed, and a file of the application's gets its number. */

const fs = require('fs');

fs.closeSync(2);
if (fs.openSync(process.env.VICTIM, 'w') !== 2) {
  process.exit(2);
}
