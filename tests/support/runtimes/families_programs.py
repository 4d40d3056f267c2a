"""The programs by which the families' runtimes say what they count: each prints one line of JSON.

`count` is the runtime's own answer, or the threads that the kernel shows; `version` its own where it tells one.
"""

from __future__ import annotations

CRATES = {"rayon": "1.10.0", "tokio": "1.47.1"}

OPENMP_C = r"""
/* One parallel region, then idle time until `argv[1]` milliseconds have passed or idling took `argv[2]` CPU seconds.
   `cpus` are those that the first thread may use then, and so what it starts later. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
    int (*blocktime)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "kmp_get_blocktime");
    int team = 0;
#pragma omp parallel
#pragma omp single
    team = omp_get_num_threads();
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    double before_s = cpu_s(), idle_s = 0;
    for (int waited_ms = 0; waited_ms < atoi(argv[1]) && idle_s < atof(argv[2]); waited_ms += 10) {
        usleep(10000);
        idle_s = cpu_s() - before_s;
    }
    printf("{\"count\": %d, \"team\": %d, \"blocktime_ms\": %d, \"idle_s\": %f, \"cpus\": %d}\n",
           omp_get_max_threads(), team, blocktime ? blocktime() : -1, idle_s, CPU_COUNT(&mask));
    return 0;
}
"""
GO = """
package main

import (
	"fmt"
	"runtime"
)

func main() { fmt.Printf("{\\"count\\": %d, \\"version\\": %q}\\n", runtime.GOMAXPROCS(0), runtime.Version()[2:]) }
"""
JAVA = """
public final class Processors {
    public static void main(String[] arguments) {
        System.out.printf("{\\"count\\": %d, \\"version\\": \\"%s\\", \\"own\\": \\"%s\\"}%n",
            Runtime.getRuntime().availableProcessors(), System.getProperty("java.version"), System.getProperty("own"));
    }
}
"""
NODE = """
const fs = require('fs'), crypto = require('crypto')
const tasks = () => fs.readdirSync('/proc/self/task').length
const before = tasks()
crypto.pbkdf2('a', 'b', 1, 8, 'sha1', () => console.log(JSON.stringify(
    {count: tasks() - before, version: process.versions.uv})))
"""
CARGO = f"""
[package]
name = "processors"
version = "0.0.0"
edition = "2021"

[dependencies]
rayon = "={CRATES["rayon"]}"
tokio = {{ version = "={CRATES["tokio"]}", features = ["rt-multi-thread"] }}
"""
RUST = """
fn main() {
    let count = if std::env::args().any(|argument| argument == "rayon") {
        rayon::current_num_threads()
    } else {
        tokio::runtime::Builder::new_multi_thread().build().unwrap().metrics().num_workers()
    };
    println!("{{\\"count\\": {count}}}");
}
"""
# argv: what threadpoolctl calls the library, and how it is loaded. Work first, so that its threads exist.
POOLS = """
import ctypes, glob, json, sys, time
from threadpoolctl import threadpool_info
name, how = sys.argv[1:]
if how == "numpy":
    import numpy
    matrix = numpy.ones((600, 600))
    matrix @ matrix
elif how == "sklearn":
    import sklearn.cluster
else:
    ctypes.CDLL(glob.glob(how.replace("{prefix}", sys.prefix))[0], mode=ctypes.RTLD_GLOBAL)
before_s = time.process_time()
time.sleep(0.3)
idle_s = time.process_time() - before_s
(found,) = [pool for pool in threadpool_info() if pool["internal_api"] == name]
print(json.dumps({"count": found["num_threads"], "version": found["version"], "idle_s": idle_s}))
"""
NUMEXPR = """
import json, numexpr
print(json.dumps({"count": numexpr.get_num_threads(), "version": numexpr.__version__}))
"""
# argv: "inside" to ask one of its processes too.
JOBLIB = """
import joblib, json, os, sys
said = {"count": joblib.effective_n_jobs(-1), "version": joblib.__version__}
if "inside" in sys.argv:
    (said["inside"],) = joblib.Parallel(n_jobs=2)(joblib.delayed(os.getenv)("OMP_NUM_THREADS") for _ in range(1))
print(json.dumps(said))
"""
PYTHON = """
import json, os, platform
assert os.process_cpu_count() == os.cpu_count()
print(json.dumps({"count": os.cpu_count(), "version": platform.python_version()}))
"""
# Threads of the inter-op pool have a name of their own; those of the intra-op pool have the process's.
TF = """
import collections, json, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow
product = tensorflow.function(lambda x: tensorflow.nn.relu(x @ x) + tensorflow.nn.softmax(x @ x))
product(tensorflow.random.normal((600, 600)))
tasks = collections.Counter(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task"))
own = open("/proc/self/comm").read().strip()
print(json.dumps({"count": tasks[own], "inter": tasks["tf_Compute"], "version": tensorflow.__version__}))
"""
