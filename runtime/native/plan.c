/* RADDLE_PLAN: flat text, `key=value` joined by `;`. The one definition is runtime/raddle/env.py; this gives the same
 * answers, without allocating and in one pass. It is untrusted input: numbers and words of fixed lists only. */
#include "raddle.h"

#define MAX_THREADS 1024
#define MAX_STREAMS 65536
#define SWITCH 0, 1, NULL
#define LISTS 0, 0, lists
#define MAX_QUOTED 40

struct key {
    const char *name;
    int low;
    uint64_t high;
    const char *words; /* joined by ", "; NULL: a number; `lists`: CPU lists */
};

static const char lists[] = "";

static const struct key keys[RD_KEYS] = {
    [RD_INTRA] = {"intra", 1, MAX_THREADS, NULL},
    [RD_ENV_INTRA] = {"env_intra", 1, MAX_THREADS, NULL},
    [RD_INTER] = {"inter", 1, MAX_THREADS, NULL},
    [RD_SPIN_US] = {"spin_us", 0, 1000000, NULL},
    [RD_EXCL_ALWAYS] = {"excl_always", SWITCH},
    [RD_OVER_QUOTA] = {"over_quota", SWITCH},
    [RD_EXCL] = {"excl", 0, 65536, NULL},
    [RD_SMT] = {"smt", SWITCH},
    [RD_STREAMS] = {"streams", 1, MAX_STREAMS, NULL},
    [RD_WORKERS] = {"workers", 1, MAX_STREAMS, NULL},
    [RD_RUNS] = {"runs", 1, MAX_STREAMS, NULL},
    [RD_MIN] = {"min", 1, MAX_THREADS, NULL},
    [RD_MAX] = {"max", 1, MAX_THREADS, NULL},
    [RD_MIN_INTER] = {"min_inter", 1, MAX_THREADS, NULL},
    [RD_FLOOR] = {"floor", SWITCH},
    [RD_OMP] = {"omp", 1, MAX_THREADS, NULL},
    [RD_BLAS] = {"blas", 1, MAX_THREADS, NULL},
    [RD_TORCH_INTER] = {"torch_inter", 1, MAX_THREADS, NULL},
    [RD_GPU] = {"gpu", SWITCH},
    [RD_GLOBAL] = {"global", SWITCH},
    [RD_GLOBAL_INTRA] = {"global_intra", 1, MAX_THREADS, NULL},
    [RD_SHARED_ARENA] = {"shared_arena", SWITCH},
    [RD_ARENA] = {"arena", SWITCH},
    [RD_MEM_PATTERN] = {"mem_pattern", SWITCH},
    [RD_SHRINK] = {"shrink", SWITCH},
    [RD_CONFIG_INTRA_SPIN] = {"session.intra_op.allow_spinning", SWITCH},
    [RD_CONFIG_INTER_SPIN] = {"session.inter_op.allow_spinning", SWITCH},
    [RD_CONFIG_INTRA_SPIN_US] = {"session.intra_op.spin_duration_us", -1, 9999999, NULL},
    [RD_CONFIG_INTER_SPIN_US] = {"session.inter_op.spin_duration_us", -1, 9999999, NULL},
    [RD_CONFIG_INTRA_BACKOFF] = {"session.intra_op.spin_backoff_max", 1, 64, NULL},
    [RD_CONFIG_INTER_BACKOFF] = {"session.inter_op.spin_backoff_max", 1, 64, NULL},
    [RD_CONFIG_SPINNING_STOP] = {"session.force_spinning_stop", SWITCH},
    [RD_CONFIG_BLOCK_BASE] = {"session.dynamic_block_base", 1, 9999, NULL},
    [RD_CONFIG_DENORMAL] = {"session.set_denormal_as_zero", SWITCH},
    [RD_CONFIG_ENV_ALLOCATORS] = {"session.use_env_allocators", SWITCH},
    [RD_CONFIG_DEVICE_INITIALIZERS] = {"session.use_device_allocator_for_initializers", SWITCH},
    [RD_CONFIG_NO_PREPACKING] = {"session.disable_prepacking", SWITCH},
    [RD_CUDA_EXTEND] = {"cuda.arena_extend_strategy", 0, 0, "kNextPowerOfTwo, kSameAsRequested"},
    [RD_CUDA_ALGO] = {"cuda.cudnn_conv_algo_search", 0, 0, "EXHAUSTIVE, HEURISTIC, DEFAULT"},
    [RD_CUDA_WORKSPACE] = {"cuda.cudnn_conv_use_max_workspace", SWITCH},
    [RD_CUDA_CONV1D] = {"cuda.cudnn_conv1d_pad_to_nc1d", SWITCH},
    [RD_CUDA_COPY] = {"cuda.do_copy_in_default_stream", SWITCH},
    [RD_CUDA_GRAPH] = {"cuda.enable_cuda_graph", SWITCH},
    [RD_CUDA_TF32] = {"cuda.use_tf32", SWITCH},
    [RD_CUDA_FUSE] = {"cuda.fuse_conv_bias", SWITCH},
    [RD_CUDA_MEM_LIMIT] = {"cuda.gpu_mem_limit", 0, 9999999999999999999U, NULL},
    [RD_CUDA_NHWC] = {"cuda.prefer_nhwc", SWITCH},
    [RD_CUDA_SDPA] = {"cuda.sdpa_kernel", 0, 65535, NULL},
    [RD_CUDA_STREAM] = {"cuda.use_ep_level_unified_stream", SWITCH},
    [RD_OPENVINO_THREADS] = {"openvino.num_of_threads", 0, MAX_THREADS, NULL},
    [RD_OPENVINO_STREAMS] = {"openvino.num_streams", 0, MAX_THREADS, NULL},
    [RD_XNNPACK_THREADS] = {"xnnpack.intra_op_num_threads", 0, MAX_THREADS, NULL},
    [RD_SPIN] = {"spin", 0, 0, "never, bounded, always"},
    [RD_MODE] = {"mode", 0, 0, "sequential, parallel"},
    [RD_GRAPH] = {"graph", 0, 0, "disable, basic, extended, all"},
    [RD_AFF] = {"aff", 0, 0, "none, numa, core"},
    [RD_EXISTING] = {"existing", 0, 0, "respect, override"},
    [RD_NUMA] = {"numa", 0, 0, "single, any"},
    [RD_CTYPE] = {"ctype", 0, 0, "performance, efficient, any"},
    [RD_OBSERVE] = {"observe", 0, 0, "none, sessions, runs"},
    [RD_ALLOC] = {"alloc", 0, 0, "system, mimalloc, jemalloc, tcmalloc"},
    [RD_CPUS] = {"cpus", LISTS},
    [RD_CORES] = {"cores", LISTS},
    [RD_NODES] = {"nodes", LISTS},
    [RD_SOCKETS] = {"sockets", LISTS},
    [RD_L3] = {"l3", LISTS},
    [RD_KINDS] = {"kinds", LISTS},
    [RD_SLOW] = {"slow", LISTS},
    [RD_ISOLATED] = {"isolated", LISTS},
    [RD_GPU_NODES] = {"gpu_nodes", LISTS},
};

/* The start of a text that the user may know again. */
static void put_quoted(struct rd_out *out, struct rd_text text)
{
    text.length = text.length < MAX_QUOTED ? text.length : MAX_QUOTED;
    rd_put_char(out, '\'');
    rd_put_text(out, text);
    rd_put_char(out, '\'');
}

static void put_field(struct rd_out *out, enum rd_key key, struct rd_text value)
{
    rd_put(out, "plan field ");
    rd_put(out, keys[key].name);
    rd_put_char(out, '=');
    put_quoted(out, value);
}

/* The word's number in the list, or -1; `nth` is set to the word of that number where it is asked for. */
static int word_in(const char *words, struct rd_text word, int number, struct rd_text *nth)
{
    struct rd_text rest = rd_text_of(words);
    for (int i = 0; rest.length > 0; i++) {
        bool found;
        struct rd_text one = rd_split(rest, ',', &rest, &found);
        if (found) {
            rest.at++;
            rest.length--;
        }
        if (nth != NULL && i == number) {
            *nth = one;
        }
        if (one.length == word.length && word.length > 0 && __builtin_memcmp(one.at, word.at, word.length) == 0) {
            return i;
        }
    }
    return -1;
}

static bool parse_number(struct rd_plan *plan, enum rd_key key, struct rd_text text)
{
    const struct key *known = &keys[key];
    bool negative = known->low < 0 && text.length > 0 && text.at[0] == '-';
    if (negative) {
        text.at++;
        text.length--;
    }
    /* Twenty digits, as Python's: a number beyond 64 bits is beyond every bound too. */
    if (text.length == 0 || text.length > 20) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < text.length; i++) {
        uint64_t digit = (uint64_t)(unsigned char)text.at[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(value, (uint64_t)10, &value)
            || __builtin_add_overflow(value, digit, &value)) {
            return false;
        }
    }
    negative = negative && value != 0;
    if (negative ? value > (uint64_t)-known->low : value > known->high) {
        return false;
    }
    if (!negative && known->low > 0 && value < (uint64_t)known->low) {
        return false;
    }
    plan->has[key] = true;
    plan->negative[key] = negative;
    plan->value[key] = value;
    return true;
}

/* Keeps the text of lists, none of one that has other characters or is too long: then CPUs are only counted. */
static void keep_list(struct rd_plan *plan, enum rd_key key, struct rd_text value)
{
    char *list = plan->list[key - RD_LIST_FIRST];
    __builtin_memset(list, 0, sizeof plan->list[0]);
    plan->has[key] = true;
    for (size_t i = 0; i < value.length; i++) {
        char one = value.at[i];
        if (value.length > RD_MAX_LIST_TEXT
            || ((one < '0' || one > '9') && one != ',' && one != '-' && one != ':' && one != '/' && one != '|')) {
            return;
        }
    }
    __builtin_memcpy(list, value.at, value.length);
}

static bool parse_field(struct rd_plan *plan, enum rd_key key, struct rd_text value, struct rd_out *error)
{
    const struct key *known = &keys[key];
    if (known->words == lists) {
        keep_list(plan, key, value);
        return true;
    }
    if (known->words != NULL) {
        int word = word_in(known->words, value, -1, NULL);
        if (word < 0) {
            put_field(error, key, value);
            rd_put(error, " must be one of ");
            rd_put(error, known->words);
            return false;
        }
        plan->has[key] = true;
        plan->negative[key] = false;
        plan->value[key] = (uint64_t)word;
        return true;
    }
    if (!parse_number(plan, key, value)) {
        put_field(error, key, value);
        rd_put(error, " must be an integer from ");
        rd_put_number(error, known->low);
        rd_put(error, " to ");
        rd_put_unsigned(error, known->high);
        return false;
    }
    return true;
}

bool rd_plan_parse(const char *text, struct rd_plan *plan, struct rd_out *error)
{
    __builtin_memset(plan, 0, sizeof *plan);
    struct rd_text rest = {text, 0}, version = {"", 0};
    while (text[rest.length] != '\0') {
        if (++rest.length > RD_MAX_PLAN_TEXT) {
            rd_put(error, "plan is longer than 4096 characters");
            return false;
        }
    }
    for (bool more = true; more;) {
        struct rd_text value;
        bool equals;
        struct rd_text part = rd_split(rest, ';', &rest, &more);
        struct rd_text name = rd_split(part, '=', &value, &equals);
        if (!equals) {
            rd_put(error, "plan part ");
            put_quoted(error, part);
            rd_put(error, " is not key=value");
            return false;
        }
        if (rd_text_is(name, "v")) {
            version = value;
            continue;
        }
        for (int key = 0; key < RD_KEYS; key++) {
            if (rd_text_is(name, keys[key].name)) {
                if (!parse_field(plan, (enum rd_key)key, value, error)) {
                    return false;
                }
                break;
            }
        }
    }
    if (!rd_text_is(version, "1")) {
        rd_put(error, "plan version is ");
        put_quoted(error, version);
        rd_put(error, ", this shim reads version 1");
        return false;
    }
    return true;
}

int64_t rd_plan_get(const struct rd_plan *plan, enum rd_key key, int64_t otherwise)
{
    if (!plan->has[key]) {
        return otherwise;
    }
    return plan->negative[key] ? -(int64_t)plan->value[key] : (int64_t)plan->value[key];
}

struct rd_text rd_plan_list(const struct rd_plan *plan, enum rd_key key)
{
    return rd_text_of(plan->list[key - RD_LIST_FIRST]);
}

const char *rd_plan_key(enum rd_key key)
{
    return keys[key].name;
}

void rd_plan_value(const struct rd_plan *plan, enum rd_key key, struct rd_out *out)
{
    if (keys[key].words == lists) {
        rd_put_text(out, rd_plan_list(plan, key));
        return;
    }
    if (keys[key].words != NULL) {
        struct rd_text word = {"", 0};
        word_in(keys[key].words, word, (int)plan->value[key], &word);
        rd_put_text(out, word);
        return;
    }
    if (plan->negative[key]) {
        rd_put_char(out, '-');
    }
    rd_put_unsigned(out, plan->value[key]);
}
