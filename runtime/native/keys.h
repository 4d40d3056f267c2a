/* RADDLE_PLAN's keys. Made by `make generate` (tools/generate/keys.py) from raddle.planning: edit it. */
#ifndef RADDLE_KEYS_H
#define RADDLE_KEYS_H

/* X(key, name, lowest, highest, the words); a word's value is its place among them. */
#define RD_KEY_ROWS(X)                                                                                                \
    X(RD_INTRA_OP, "intra_op", 1, 1024U, NULL)                                                                        \
    X(RD_INTRA_OP_WITHOUT_SHIM, "intra_op_without_shim", 1, 1024U, NULL)                                              \
    X(RD_INTER_OP, "inter_op", 1, 1024U, NULL)                                                                        \
    X(RD_SPIN_DURATION_US, "spin_duration_us", 0, 1000000U, NULL)                                                     \
    X(RD_OVER_QUOTA, "over_quota", 0, 1U, NULL)                                                                       \
    X(RD_EXCLUSIVE_CPUS, "exclusive_cpus", 0, 65536U, NULL)                                                           \
    X(RD_SMT, "smt", 0, 1U, NULL)                                                                                     \
    X(RD_STREAMS, "streams", 1, 65536U, NULL)                                                                         \
    X(RD_WORKERS, "workers", 1, 65536U, NULL)                                                                         \
    X(RD_CONCURRENT_RUNS, "concurrent_runs", 1, 65536U, NULL)                                                         \
    X(RD_MIN_INTRA_OP, "min_intra_op", 1, 1024U, NULL)                                                                \
    X(RD_MAX_INTRA_OP, "max_intra_op", 1, 1024U, NULL)                                                                \
    X(RD_MIN_INTER_OP, "min_inter_op", 1, 1024U, NULL)                                                                \
    X(RD_FLOOR, "floor", 0, 1U, NULL)                                                                                 \
    X(RD_OMP, "omp", 1, 1024U, NULL)                                                                                  \
    X(RD_BLAS, "blas", 1, 1024U, NULL)                                                                                \
    X(RD_TORCH_INTER_OP, "torch_inter_op", 1, 1024U, NULL)                                                            \
    X(RD_GPU, "gpu", 0, 1U, NULL)                                                                                     \
    X(RD_GLOBAL_THREAD_POOL, "global_thread_pool", 0, 1U, NULL)                                                       \
    X(RD_GLOBAL_INTRA_OP, "global_intra_op", 1, 1024U, NULL)                                                          \
    X(RD_SHARED_ALLOCATOR, "shared_allocator", 0, 1U, NULL)                                                           \
    X(RD_CPU_MEM_ARENA, "cpu_mem_arena", 0, 1U, NULL)                                                                 \
    X(RD_MEM_PATTERN, "mem_pattern", 0, 1U, NULL)                                                                     \
    X(RD_DETERMINISTIC_COMPUTE, "deterministic_compute", 0, 1U, NULL)                                                 \
    X(RD_ARENA_SHRINKAGE, "arena_shrinkage", 0, 1U, NULL)                                                             \
    X(RD_SESSION_INTRA_OP_ALLOW_SPINNING, "session.intra_op.allow_spinning", 0, 1U, NULL)                             \
    X(RD_SESSION_INTER_OP_ALLOW_SPINNING, "session.inter_op.allow_spinning", 0, 1U, NULL)                             \
    X(RD_SESSION_INTRA_OP_SPIN_DURATION_US, "session.intra_op.spin_duration_us", -1, 9999999U, NULL)                  \
    X(RD_SESSION_INTER_OP_SPIN_DURATION_US, "session.inter_op.spin_duration_us", -1, 9999999U, NULL)                  \
    X(RD_SESSION_INTRA_OP_SPIN_BACKOFF_MAX, "session.intra_op.spin_backoff_max", 1, 64U, NULL)                        \
    X(RD_SESSION_INTER_OP_SPIN_BACKOFF_MAX, "session.inter_op.spin_backoff_max", 1, 64U, NULL)                        \
    X(RD_SESSION_FORCE_SPINNING_STOP, "session.force_spinning_stop", 0, 1U, NULL)                                     \
    X(RD_SESSION_DYNAMIC_BLOCK_BASE, "session.dynamic_block_base", 1, 9999U, NULL)                                    \
    X(RD_SESSION_SET_DENORMAL_AS_ZERO, "session.set_denormal_as_zero", 0, 1U, NULL)                                   \
    X(RD_SESSION_USE_ENV_ALLOCATORS, "session.use_env_allocators", 0, 1U, NULL)                                       \
    X(RD_SESSION_USE_DEVICE_ALLOCATOR_FOR_INITIALIZERS, "session.use_device_allocator_for_initializers", 0, 1U, NULL) \
    X(RD_SESSION_DISABLE_PREPACKING, "session.disable_prepacking", 0, 1U, NULL)                                       \
    X(RD_CUDA_ARENA_EXTEND_STRATEGY, "cuda.arena_extend_strategy", 0, 0, "kNextPowerOfTwo, kSameAsRequested")         \
    X(RD_CUDA_CUDNN_CONV_ALGO_SEARCH, "cuda.cudnn_conv_algo_search", 0, 0, "EXHAUSTIVE, HEURISTIC, DEFAULT")          \
    X(RD_CUDA_CUDNN_CONV_USE_MAX_WORKSPACE, "cuda.cudnn_conv_use_max_workspace", 0, 1U, NULL)                         \
    X(RD_CUDA_CUDNN_CONV1D_PAD_TO_NC1D, "cuda.cudnn_conv1d_pad_to_nc1d", 0, 1U, NULL)                                 \
    X(RD_CUDA_DO_COPY_IN_DEFAULT_STREAM, "cuda.do_copy_in_default_stream", 0, 1U, NULL)                               \
    X(RD_CUDA_ENABLE_CUDA_GRAPH, "cuda.enable_cuda_graph", 0, 1U, NULL)                                               \
    X(RD_CUDA_USE_TF32, "cuda.use_tf32", 0, 1U, NULL)                                                                 \
    X(RD_CUDA_FUSE_CONV_BIAS, "cuda.fuse_conv_bias", 0, 1U, NULL)                                                     \
    X(RD_CUDA_GPU_MEM_LIMIT, "cuda.gpu_mem_limit", 0, 9999999999999999999U, NULL)                                     \
    X(RD_CUDA_PREFER_NHWC, "cuda.prefer_nhwc", 0, 1U, NULL)                                                           \
    X(RD_CUDA_SDPA_KERNEL, "cuda.sdpa_kernel", 0, 65535U, NULL)                                                       \
    X(RD_CUDA_USE_EP_LEVEL_UNIFIED_STREAM, "cuda.use_ep_level_unified_stream", 0, 1U, NULL)                           \
    X(RD_OPENVINO_NUM_OF_THREADS, "openvino.num_of_threads", 0, 1024U, NULL)                                          \
    X(RD_OPENVINO_NUM_STREAMS, "openvino.num_streams", 0, 1024U, NULL)                                                \
    X(RD_XNNPACK_INTRA_OP_NUM_THREADS, "xnnpack.intra_op_num_threads", 0, 1024U, NULL)                                \
    X(RD_SPINNING, "spinning", 0, 0, "never, bounded, always")                                                        \
    X(RD_EXCLUSIVE_SPINNING, "exclusive_spinning", 0, 0, "never, bounded, always")                                    \
    X(RD_EXECUTION_MODE, "execution_mode", 0, 0, "sequential, parallel")                                              \
    X(RD_GRAPH_OPTIMIZATION_LEVEL, "graph_optimization_level", 0, 0, "disable, basic, extended, all")                 \
    X(RD_AFFINITY, "affinity", 0, 0, "none, numa, core")                                                              \
    X(RD_NUMA, "numa", 0, 0, "single, any")                                                                           \
    X(RD_CORE_TYPE, "core_type", 0, 0, "performance, efficient, any")                                                 \
    X(RD_EXISTING_VALUES, "existing_values", 0, 0, "respect, override")                                               \
    X(RD_OBSERVE, "observe", 0, 0, "none, sessions, runs")                                                            \
    X(RD_ALLOCATOR, "allocator", 0, 0, "system, mimalloc, jemalloc, tcmalloc")                                        \
    X(RD_CPUS, "cpus", 0, 0, RD_LISTS)                                                                                \
    X(RD_CORES, "cores", 0, 0, RD_LISTS)                                                                              \
    X(RD_NODES, "nodes", 0, 0, RD_LISTS)                                                                              \
    X(RD_SOCKETS, "sockets", 0, 0, RD_LISTS)                                                                          \
    X(RD_L3, "l3", 0, 0, RD_LISTS)                                                                                    \
    X(RD_KINDS, "kinds", 0, 0, RD_LISTS)                                                                              \
    X(RD_SLOW, "slow", 0, 0, RD_LISTS)                                                                                \
    X(RD_ISOLATED, "isolated", 0, 0, RD_LISTS)                                                                        \
    X(RD_GPU_NODES, "gpu_nodes", 0, 0, RD_LISTS)

#define RD_ENUMERATOR(key, ...) key,
enum rd_key { RD_KEY_ROWS(RD_ENUMERATOR) RD_KEYS };

#define RD_CONFIG_FIRST RD_SESSION_INTRA_OP_ALLOW_SPINNING
#define RD_CONFIG_LAST RD_SESSION_DISABLE_PREPACKING
#define RD_CUDA_FIRST RD_CUDA_ARENA_EXTEND_STRATEGY
#define RD_CUDA_LAST RD_CUDA_USE_EP_LEVEL_UNIFIED_STREAM
#define RD_OPENVINO_FIRST RD_OPENVINO_NUM_OF_THREADS
#define RD_OPENVINO_LAST RD_OPENVINO_NUM_STREAMS
#define RD_XNNPACK_FIRST RD_XNNPACK_INTRA_OP_NUM_THREADS
#define RD_XNNPACK_LAST RD_XNNPACK_INTRA_OP_NUM_THREADS
#define RD_LIST_FIRST RD_CPUS
#define RD_LIST_LAST RD_GPU_NODES

enum { RD_SPINNING_NEVER, RD_SPINNING_BOUNDED, RD_SPINNING_ALWAYS };
enum { RD_EXCLUSIVE_SPINNING_NEVER, RD_EXCLUSIVE_SPINNING_BOUNDED, RD_EXCLUSIVE_SPINNING_ALWAYS };
enum { RD_EXECUTION_MODE_SEQUENTIAL, RD_EXECUTION_MODE_PARALLEL };
enum { RD_GRAPH_OPTIMIZATION_LEVEL_DISABLE, RD_GRAPH_OPTIMIZATION_LEVEL_BASIC, RD_GRAPH_OPTIMIZATION_LEVEL_EXTENDED, RD_GRAPH_OPTIMIZATION_LEVEL_ALL };
enum { RD_AFFINITY_NONE, RD_AFFINITY_NUMA, RD_AFFINITY_CORE };
enum { RD_NUMA_SINGLE, RD_NUMA_ANY };
enum { RD_CORE_TYPE_PERFORMANCE, RD_CORE_TYPE_EFFICIENT, RD_CORE_TYPE_ANY };
enum { RD_EXISTING_VALUES_RESPECT, RD_EXISTING_VALUES_OVERRIDE };
enum { RD_OBSERVE_NONE, RD_OBSERVE_SESSIONS, RD_OBSERVE_RUNS };
enum { RD_ALLOCATOR_SYSTEM, RD_ALLOCATOR_MIMALLOC, RD_ALLOCATOR_JEMALLOC, RD_ALLOCATOR_TCMALLOC };


/* What sessions are told: PAIR(key, off, on, since 1.x), ONE(key, setter, ...) */
#define RD_SWITCHES(PAIR, ONE)                                    \
    PAIR(CPU_MEM_ARENA, DisableCpuMemArena, EnableCpuMemArena, 0) \
    PAIR(MEM_PATTERN, DisableMemPattern, EnableMemPattern, 0)     \
    ONE(DETERMINISTIC_COMPUTE, SetDeterministicCompute, 17)

enum { RD_SWITCH_CPU_MEM_ARENA, RD_SWITCH_MEM_PATTERN, RD_SWITCH_DETERMINISTIC_COMPUTE, RD_SWITCH_COUNT };

/* As in slots.h. */
enum {
    SLOT_DisableCpuMemArena = 19,
    SLOT_EnableCpuMemArena = 18,
    SLOT_DisableMemPattern = 17,
    SLOT_EnableMemPattern = 16,
    SLOT_SetDeterministicCompute = 273,
};

#endif
