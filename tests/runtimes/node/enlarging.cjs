'use strict';

/** A plan of a megabyte: the kernel takes no variable of that size, but a process can give itself one. */

process.env.RADDLE_PLAN = `v=1;intra_op=${'1'.repeat(2 ** 20)}`;
