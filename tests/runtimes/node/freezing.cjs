'use strict';

/** An environment that nobody may change, as hardened applications have it. */

process.env = Object.freeze({ ...process.env });
