/* What one session gets: the plan's value or the code's, decided option by option as Choice in
 * runtime/raddle/adapters/onnxruntime/choice.py decides, and with the same reasons. It is set on a clone of the code's options.
 */
#include "ort.h"

#define ORT_ENABLE_ALL 99
#define BOUNDED_SPIN_SINCE 26
#define AFFINITY_KEY "session.intra_op_thread_affinities"

enum { INTRA, INTER };

static const char *const in_the_code = "set in the code";
static const char *const in_the_environment = "set in the environment";

/* Keeps the failure of a setter. */
static void set_option(struct rd_choice *choice, rd_status status)
{
    if (!rd_ok(status, choice->message, choice->failed ? 0 : sizeof choice->message)) {
        choice->failed = true;
    }
}

/* Whether the code has set the entry. Asked of the code's own object, which has none of ours. */
static bool code_has(const struct rd_choice *choice, const char *key)
{
    int has = 0;
    return choice->given != NULL
           && rd_ok(RD_REAL(HasSessionConfigEntry, rd_status(*)(const void *, const char *, int *))(choice->given, key,
                                                                                                   &has),
                    NULL, 0)
           && has != 0;
}

static bool code_value(const struct rd_choice *choice, const char *key, char *value, size_t size)
{
    return code_has(choice, key)
           && rd_ok(RD_REAL(GetSessionConfigEntry, rd_status(*)(const void *, const char *, char *, size_t *))(
                        choice->given, key, value, &size),
                    NULL, 0);
}

static void set_entry(struct rd_choice *choice, const char *key, const char *value)
{
    set_option(choice, RD_REAL(AddSessionConfigEntry, rd_on_entry)(choice->options, key, value));
}

/* The groups of the code's own affinity string: one per worker. 0 where it has none. */
static int code_groups(const struct rd_choice *choice)
{
    char text[8192];
    if (!code_value(choice, AFFINITY_KEY, text, sizeof text)) {
        return 0;
    }
    int groups = 0;
    struct rd_text rest = rd_text_of(text);
    for (bool more = true; more;) {
        groups += rd_split(rest, ';', &rest, &more).length > 0;
    }
    return groups;
}

/* ---- counts and mode ---- */

/* The count that the code has set for the pool, 0 where it has set none. */
static int code_count(const struct rd_choice *choice, int which, int wanted)
{
    return rd_code_count(which == INTRA ? choice->code.intra : choice->code.inter, wanted, choice->wanted.capacity);
}

/* Says it where the plan's count is taken because the code's is only this machine's. */
static void say_copied(struct rd_choice *choice, int which, const char **because)
{
    int code = which == INTRA ? choice->code.intra : choice->code.inter;
    if (rd_runtime.respect && *because != in_the_environment && code > choice->wanted.capacity
        && choice->wanted.capacity != 0 && *because != in_the_code && rd_is_machines_count(code)) {
        struct rd_out out = rd_out(choice->copied[which], sizeof choice->copied[which]);
        rd_put_number(&out, code);
        rd_put(&out, " in the code is this machine's count");
        *because = choice->copied[which];
    }
}

static int count_of(int which, int code, int wanted, const char **because)
{
    const char *where = in_the_code;
    if (code == 0) {
        code = rd_runtime.env_counts[which];
        where = in_the_environment;
    }
    if (code != 0 && (rd_runtime.respect || wanted == 0)) {
        *because = where;
        return code;
    }
    return wanted;
}

/* True where it is the plan's. */
static bool choose_mode(struct rd_choice *choice)
{
    const struct rd_plan *plan = &rd_runtime.plan;
    choice->parallel = (choice->code.code & RD_CODE_PARALLEL) != 0;
    bool planned = rd_plan_get(plan, RD_EXECUTION_MODE, choice->parallel) == RD_EXECUTION_MODE_PARALLEL;
    if (!plan->has[RD_EXECUTION_MODE] || (rd_runtime.respect && (choice->code.code & RD_CODE_MODE) != 0)) {
        return false;
    }
    choice->parallel = planned;
    return true;
}

static void choose_counts(struct rd_choice *choice)
{
    const struct rd_plan *plan = &rd_runtime.plan;
    int code_intra = code_count(choice, INTRA, choice->wanted.intra), groups = code_groups(choice);
    choice->code_affinity = groups > 0;
    if (rd_runtime.respect && code_intra == 0 && groups > 0) {
        /* Any other count would not fit the code's affinity. */
        code_intra = groups + 1;
    }
    choice->intra_because = choice->wanted.intra_because;
    choice->intra = count_of(INTRA, code_intra, choice->wanted.intra, &choice->intra_because);
    say_copied(choice, INTRA, &choice->intra_because);
    choose_mode(choice);
    int inter = choice->wanted.inter;
    choice->inter_because = choice->wanted.inter_because;
    if (choice->parallel
        && rd_plan_get(plan, RD_EXECUTION_MODE, RD_EXECUTION_MODE_SEQUENTIAL) != RD_EXECUTION_MODE_PARALLEL) {
        /* Parallel is the code's own choice: one inter-op thread would quietly turn it off. */
        inter = choice->intra;
        choice->inter_because = "as intra, for the code asks for parallel";
    }
    choice->inter = count_of(INTER, code_count(choice, INTER, inter), inter, &choice->inter_because);
    say_copied(choice, INTER, &choice->inter_because);
    choice->single_thread = choice->intra == 1 && choice->code.intra != 1
                            && choice->intra_because != in_the_environment;
    if (choice->intra != 0) {
        set_option(choice, RD_REAL(SetIntraOpNumThreads, rd_on_number)(choice->options, choice->intra));
    }
    if (choice->inter != 0) {
        set_option(choice, RD_REAL(SetInterOpNumThreads, rd_on_number)(choice->options, choice->inter));
    }
    set_option(choice, RD_REAL(SetSessionExecutionMode, rd_on_number)(choice->options, choice->parallel));
}

/* ---- how a session's pools wait for work: the entries that follow from spin=, the plan's own, the code's ---- */

/* The value of one of a pool's entries: the plan's own under the runtime's key, else what follows from spin=. */
static bool pool_value(enum rd_key key, const char *derived, char *text, size_t size)
{
    struct rd_out out = rd_out(text, size);
    if (rd_runtime.plan.has[key]) {
        rd_plan_value(&rd_runtime.plan, key, &out);
    } else if (derived != NULL) {
        rd_put(&out, derived);
    }
    return out.length > 0;
}

static void say_spinning(struct rd_choice *choice, const char *allow, const char *duration)
{
    bool bounded = duration[0] != '\0' && !rd_same(duration, "-1") && !rd_same(duration, "0");
    choice->spin = rd_same(allow, "0") || rd_same(duration, "0") ? RD_SPINNING_NEVER
                   : bounded                                     ? RD_SPINNING_BOUNDED
                                                                 : RD_SPINNING_ALWAYS;
    uint64_t us = 0;
    choice->spin_us = choice->spin == RD_SPINNING_BOUNDED && rd_number(rd_text_of(duration), &us) ? (int)us : 0;
}

static void spin_of_pool(struct rd_choice *choice, bool intra, int planned)
{
    /* The two pools' keys lie side by side. */
    int other = intra ? 0 : 1;
    enum rd_key allow_key = (enum rd_key)(RD_SESSION_INTRA_OP_ALLOW_SPINNING + other);
    enum rd_key duration_key = (enum rd_key)(RD_SESSION_INTRA_OP_SPIN_DURATION_US + other);
    enum rd_key backoff_key = (enum rd_key)(RD_SESSION_INTRA_OP_SPIN_BACKOFF_MAX + other);
    char allow[24], duration[24], backoff[24], us[24];
    struct rd_out out = rd_out(us, sizeof us);
    rd_put_number(&out, choice->wanted.spin_us);
    bool newer = rd_runtime.minor >= BOUNDED_SPIN_SINCE;
    bool set_allow = pool_value(allow_key,
                                planned == RD_SPINNING_NEVER     ? "0"
                                : planned == RD_SPINNING_BOUNDED ? "1"
                                                             : NULL,
                                allow, sizeof allow);
    bool set_duration = newer && pool_value(duration_key, planned == RD_SPINNING_BOUNDED ? us : NULL, duration,
                                            sizeof duration);
    bool set_backoff = newer && pool_value(backoff_key, NULL, backoff, sizeof backoff);
    if (!set_allow && !set_duration && !set_backoff) {
        return;
    }
    bool code_allow = code_has(choice, rd_plan_key(allow_key));
    bool code_duration = newer && code_has(choice, rd_plan_key(duration_key));
    if (rd_runtime.respect && (code_allow || code_duration)) {
        choice->spin = RD_SPINNING_CODE;
        choice->spin_because = in_the_code;
        set_allow = set_duration = false;
    } else {
        say_spinning(choice, set_allow ? allow : "", set_duration ? duration : "");
    }
    /* Allowed is the runtime's default: written only over another value of the code's. */
    if (set_allow && (code_allow || !rd_same(allow, "1"))) {
        set_entry(choice, rd_plan_key(allow_key), allow);
    }
    if (set_duration) {
        set_entry(choice, rd_plan_key(duration_key), duration);
    }
    if (set_backoff && !(rd_runtime.respect && code_has(choice, rd_plan_key(backoff_key)))) {
        set_entry(choice, rd_plan_key(backoff_key), backoff);
    }
}

static void choose_spinning(struct rd_choice *choice)
{
    bool intra = choice->intra != 1, inter = choice->parallel && choice->inter != 1;
    rd_resolve_spinning(&rd_runtime.plan, &choice->facts, choice->intra, choice->inter, choice->parallel,
                        &choice->wanted);
    int planned = choice->wanted.spin;
    choice->spin_because = choice->wanted.spin_because;
    if (!intra && !inter) {
        planned = RD_SPINNING_NEVER;
        choice->spin_because = "no worker threads";
    } else if (planned != RD_SPINNING_NEVER && (choice->code.code & RD_CODE_GPU) != 0 &&
               rd_plan_get(&rd_runtime.plan, RD_SPINNING, -1) == RD_SPINNING_BOUNDED) {
        /* Its workers wait for a GPU most of the time; the count stays, since the provider may fall back to the CPU. */
        planned = RD_SPINNING_NEVER;
        choice->spin_because = "planned bounded, turned off: the session asks for a GPU";
    } else if (planned == RD_SPINNING_BOUNDED && rd_runtime.minor < BOUNDED_SPIN_SINCE) {
        planned = RD_SPINNING_NEVER;
        choice->spin_because = "planned bounded, which onnxruntime supports since 1.26";
    }
    choice->spin = planned < 0 ? RD_SPINNING_ALWAYS : planned;
    if (intra) {
        spin_of_pool(choice, true, planned);
    }
    if (inter) {
        spin_of_pool(choice, false, planned);
    }
}

/* ---- threads and their places ---- */

static void choose_threads(struct rd_choice *choice)
{
    static const int slots[3] = {SLOT_SessionOptionsSetCustomCreateThreadFn,
                                 SLOT_SessionOptionsSetCustomThreadCreationOptions,
                                 SLOT_SessionOptionsSetCustomJoinThreadFn};
    if (choice->code_affinity && rd_runtime.respect) {
        choice->affinity = RD_AFFINITY_CODE;
        choice->affinity_because = in_the_code;
        return;
    }
    if ((choice->code.code & RD_CODE_THREADS) != 0) {
        choice->affinity_because = "the code makes the threads itself";
        return;
    }
    bool workers = choice->intra > 1 || (choice->parallel && choice->inter > 1);
    /* Without a count the runtime pins its workers itself; our threads would lose that. */
    if (choice->intra == 0 || !workers || !rd_threads_usable()) {
        return;
    }
    bool planned = choice->intra_because != in_the_code && choice->intra_because != in_the_environment;
    if (!rd_use_threads(choice->options, slots, choice->intra, &choice->facts, &choice->wanted, planned, &choice->pool,
                        &choice->affinity_because)) {
        choice->failed = true;
    }
    if (choice->pool == NULL) {
        /* The runtime's own threads would look at the code's groups, which need not fit. */
        choice->failed |= choice->code_affinity;
        return;
    }
    if (choice->pool->placed > 0) {
        choice->affinity = (int)rd_plan_get(&rd_runtime.plan, RD_AFFINITY, RD_AFFINITY_NONE);
    }
    if (choice->code_affinity && choice->intra > 1) {
        /* An entry can't be removed, its groups have to be as many as the workers, and these obey it when they run. */
        char text[4096];
        struct rd_out out = rd_out(text, sizeof text);
        choice->failed |= !rd_put_groups(&out, choice->pool, choice->intra - 1, &choice->facts.cpus);
        set_entry(choice, AFFINITY_KEY, text);
        choice->affinity_because = "the code's value is overridden";
    }
}

/* ---- what is shared, memory, graph level, entries ---- */

static bool joins_global_pool(struct rd_choice *choice)
{
    if (rd_plan_get(&rd_runtime.plan, RD_GLOBAL_THREAD_POOL, 0) == 0) {
        return false;
    }
    if (!rd_global_pool()) {
        return false;
    }
    bool own = (choice->code.code & RD_CODE_THREADS) != 0
               || code_count(choice, INTRA, choice->wanted.intra) != 0
               || code_count(choice, INTER, choice->wanted.inter) != 0;
    if (rd_runtime.respect && (own || rd_runtime.env_counts[INTRA] != 0 || rd_runtime.env_counts[INTER] != 0)) {
        return false;
    }
    return true;
}

static void use_global_pool(struct rd_choice *choice)
{
    choice->global = true;
    set_option(choice, RD_REAL(DisablePerSessionThreads, rd_on)(choice->options));
    choice->intra = choice->wanted.global_intra;
    choice->single_thread = rd_global_single_thread();
    bool planned = rd_plan_get(&rd_runtime.plan, RD_GLOBAL_THREAD_POOL, 0) != 0;
    choice->inter = choice->wanted.inter == 0 && planned ? 1 : choice->wanted.inter;
    struct rd_out out = rd_out(choice->cut, sizeof choice->cut);
    rd_put(&out, "the process's global thread pool");
    if (choice->wanted.global_because[0] != '\0') {
        rd_put(&out, ", ");
        rd_put(&out, choice->wanted.global_because);
    }
    choice->intra_because = choice->cut;
    /* Its spinning is stopped or not; there is no time in between. */
    choice->spin = choice->wanted.spin < 0 ? RD_SPINNING_ALWAYS : choice->wanted.spin;
    if (choice->spin == RD_SPINNING_BOUNDED) {
        choice->spin = RD_SPINNING_NEVER;
        choice->spin_because = "planned bounded, which a global pool does not support";
    }
    if (choose_mode(choice)) {
        set_option(choice, RD_REAL(SetSessionExecutionMode, rd_on_number)(choice->options, choice->parallel));
    }
}

/* A switch of sessions, by its place: the functions for off and on are one where it takes the value. */
struct session_switch {
    enum rd_key key;
    int off, on;
    int since; /* of 1.x */
};
#define PAIR(key, off, on, ...) {RD_##key, SLOT_##off, SLOT_##on, __VA_ARGS__},
#define ONE(key, function, ...) {RD_##key, SLOT_##function, SLOT_##function, __VA_ARGS__},
static const struct session_switch switches[] = {RD_SWITCHES(PAIR, ONE)};

static void choose_switches(struct rd_choice *choice)
{
    for (int place = 0; place < RD_SWITCH_COUNT; place++) {
        const struct session_switch *one = &switches[place];
        choice->switches[place] = -1;
        if (!rd_runtime.plan.has[one->key] || rd_runtime.minor < one->since
            || (rd_runtime.respect && (choice->code.code & RD_CODE_SWITCH(place)) != 0)) {
            continue;
        }
        bool on = rd_runtime.plan.value[one->key] != 0;
        const void *setter = rd_real[on ? one->on : one->off];
        set_option(choice, one->on == one->off ? ((rd_on_number)(uintptr_t)setter)(choice->options, on)
                                                  : ((rd_on)(uintptr_t)setter)(choice->options));
        choice->switches[place] = on;
    }
}

static void choose_shared_arena(struct rd_choice *choice, const void *environment)
{
    int planned = choice->switches[RD_SWITCH_CPU_MEM_ARENA];
    uint64_t code = choice->code.code;
    bool off = (code & RD_CODE_SWITCH(RD_SWITCH_CPU_MEM_ARENA)) != 0
               && (code & RD_CODE_SWITCHED_ON(RD_SWITCH_CPU_MEM_ARENA)) == 0;
    bool arena = planned > 0 || (planned < 0 && !off);
    const char *shared = rd_plan_key(RD_SESSION_USE_ENV_ALLOCATORS);
    if (rd_plan_get(&rd_runtime.plan, RD_SHARED_ALLOCATOR, 0) != 0 && arena
        && !(rd_runtime.respect && code_has(choice, shared)) && rd_shared_arena(environment)) {
        choice->shared_arena = true;
        set_entry(choice, shared, "1");
    }
}

static void choose_graph(struct rd_choice *choice)
{
    static const int levels[] = {0, 1, 2, ORT_ENABLE_ALL};
    const struct rd_plan *plan = &rd_runtime.plan;
    if (plan->has[RD_GRAPH_OPTIMIZATION_LEVEL] && !(rd_runtime.respect && (choice->code.code & RD_CODE_GRAPH) != 0)) {
        int level = levels[plan->value[RD_GRAPH_OPTIMIZATION_LEVEL]];
        set_option(choice, RD_REAL(SetSessionGraphOptimizationLevel, rd_on_number)(choice->options, level));
    }
}

/* The entries that the plan names under ONNX Runtime's own keys; those of a pool's spinning are written with it. All
 * are older than 1.14. */
static void choose_entries(struct rd_choice *choice)
{
    for (int key = RD_SESSION_FORCE_SPINNING_STOP; key <= RD_CONFIG_LAST; key++) {
        const char *name = rd_plan_key((enum rd_key)key);
        bool written = key == RD_SESSION_USE_ENV_ALLOCATORS && choice->shared_arena;
        if (rd_runtime.plan.has[key] && !written && !(rd_runtime.respect && code_has(choice, name))) {
            char text[24];
            struct rd_out out = rd_out(text, sizeof text);
            rd_plan_value(&rd_runtime.plan, (enum rd_key)key, &out);
            set_entry(choice, name, text);
        }
    }
}

bool rd_choice_make(struct rd_choice *choice, const void *options, const void *environment, bool may_join)
{
    __builtin_memset(choice, 0, sizeof *choice);
    choice->code = rd_options_of(options);
    choice->given = options;
    if ((choice->code.code & RD_CODE_UNKNOWN) != 0 && rd_runtime.respect) {
        rd_complain("onnxruntime session is not configured: too many options objects to know what the code has set");
        return false;
    }
    rd_resolve_now(&choice->facts, &choice->wanted);
    rd_status made = options != NULL
                         ? RD_REAL(CloneSessionOptions, rd_status(*)(const void *, void **))(options, &choice->options)
                         : RD_REAL(CreateSessionOptions, rd_on)((void *)&choice->options);
    if (!rd_ok(made, choice->message, sizeof choice->message) || choice->options == NULL) {
        return false;
    }
    if ((choice->code.code & RD_CODE_NO_POOLS) != 0 || (may_join && joins_global_pool(choice))) {
        use_global_pool(choice);
    } else {
        choose_counts(choice);
        choose_spinning(choice);
        choose_threads(choice);
    }
    choose_graph(choice);
    choose_switches(choice);
    choose_shared_arena(choice, environment);
    choose_entries(choice);
    return !choice->failed;
}

void rd_choice_release(struct rd_choice *choice)
{
    if (choice->options != NULL) {
        RD_REAL(ReleaseSessionOptions, rd_release)(choice->options);
    }
    if (choice->pool != NULL) {
        rd_pool_done(choice->pool);
    }
}
