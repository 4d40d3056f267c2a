'use strict';

/** An application that wants one thread in each session. */

process.env.ORT_INTRA_OP_NUM_THREADS = '1';
