'use strict';

/** An application that starts its own children without a plan, and so takes it out of its environment. */

delete process.env.RADDLE_PLAN;
