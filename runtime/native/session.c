/* Sessions: each is made with a clone of its options that has the plan's values, by the same decisions as Choice in
 * runtime/raddle/adapters. The code's own object is never changed. Where the session can't be made with the clone, it is
 * made as it would have been without Raddle. */
#include "ort.h"

#define BOUNDED_SPIN_SINCE 26
#define AFFINITY_KEY "session.intra_op_thread_affinities"
#define ORT_ENABLE_ALL 99

enum { SPIN_DEFAULT = -1, SPIN_CODE = 3 };
enum { AFFINITY_CODE = 3 };

/* What a session gets; a count of 0 is the runtime's default. */
struct choice {
    struct rd_facts facts;
    struct rd_effective wanted;
    struct rd_options code;
    void *options; /* the clone */
    char *problem; /* the message of the first setter that failed */
    int intra;
    int inter;
    bool parallel;
    int spin;
    int spin_us;
    int affinity;
    int graph; /* -1: left alone */
    bool global;
    bool own_threads;
    bool code_affinity;
    bool failed;
    struct rd_pool *pool;
    const char *intra_because, *inter_because, *spin_because, *affinity_because;
    char message[160];
};

static void set(struct choice *choice, rd_status status)
{
    if (!rd_ok(status, choice->message, choice->failed ? 0 : sizeof choice->message)) {
        choice->failed = true;
    }
}

static bool has_entry(void *options, const char *key)
{
    int has = 0;
    rd_status status = RD_REAL(HasSessionConfigEntry, rd_status(*)(void *, const char *, int *))(options, key, &has);
    return rd_ok(status, NULL, 0) && has != 0;
}

static void set_entry(struct choice *choice, const char *key, const char *value)
{
    set(choice, RD_REAL(AddSessionConfigEntry, rd_on_entry)(choice->options, key, value));
}

/* The groups of the code's own affinity string: one a worker. 0 where it has none. */
static int code_groups(void *options)
{
    char text[8192];
    size_t size = sizeof text;
    if (!has_entry(options, AFFINITY_KEY)
        || !rd_ok(RD_REAL(GetSessionConfigEntry, rd_status(*)(void *, const char *, char *, size_t *))(
                      options, AFFINITY_KEY, text, &size),
                  NULL, 0)) {
        return 0;
    }
    int groups = 0;
    struct rd_text rest = rd_text_of(text);
    for (bool more = true; more;) {
        groups += rd_split(rest, ';', &rest, &more).length > 0;
    }
    return groups;
}

static void choose_counts(struct choice *choice)
{
    const struct rd_plan *plan = &rd_runtime.plan;
    int code_intra = choice->code.intra, code_inter = choice->code.inter;
    int groups = code_groups(choice->options);
    choice->code_affinity = groups > 0;
    if (rd_runtime.respect && code_intra == 0 && groups > 0) {
        /* Any other count would not fit the code's affinity. */
        code_intra = groups + 1;
    }
    choice->intra = choice->wanted.intra;
    choice->intra_because = choice->wanted.intra_because;
    if (code_intra != 0 && (rd_runtime.respect || choice->intra == 0)) {
        choice->intra = code_intra;
        choice->intra_because = "set in the code";
    }
    bool code_parallel = (choice->code.code & RD_CODE_PARALLEL) != 0;
    choice->parallel = code_parallel;
    if (plan->has[RD_MODE] && !(code_parallel && rd_runtime.respect)) {
        choice->parallel = rd_plan_get(plan, RD_MODE, 0) == RD_MODE_PARALLEL;
    }
    choice->inter = choice->wanted.inter;
    choice->inter_because = choice->wanted.inter_because;
    if (choice->parallel && rd_plan_get(plan, RD_MODE, RD_MODE_SEQUENTIAL) != RD_MODE_PARALLEL) {
        /* Parallel is the code's own wish: one inter-op thread would quietly turn it off. */
        choice->inter = choice->intra;
        choice->inter_because = "";
    }
    if (code_inter != 0 && (rd_runtime.respect || choice->inter == 0)) {
        choice->inter = code_inter;
        choice->inter_because = "set in the code";
    }
    if (choice->intra != 0) {
        set(choice, RD_REAL(SetIntraOpNumThreads, rd_on_number)(choice->options, choice->intra));
    }
    if (choice->inter != 0) {
        set(choice, RD_REAL(SetInterOpNumThreads, rd_on_number)(choice->options, choice->inter));
    }
    set(choice, RD_REAL(SetSessionExecutionMode, rd_on_number)(choice->options, choice->parallel));
}

static void spin_of_pool(struct choice *choice, bool intra, int planned)
{
    const char *allow = rd_plan_key(intra ? RD_CONFIG_INTRA_SPIN : RD_CONFIG_INTER_SPIN);
    const char *duration = rd_plan_key(intra ? RD_CONFIG_INTRA_SPIN_US : RD_CONFIG_INTER_SPIN_US);
    if (rd_runtime.respect
        && (has_entry(choice->options, allow)
            || (rd_runtime.minor >= BOUNDED_SPIN_SINCE && has_entry(choice->options, duration)))) {
        choice->spin = SPIN_CODE;
        choice->spin_because = "set in the code";
        return;
    }
    if (planned == RD_SPIN_NEVER) {
        set_entry(choice, allow, "0");
        return;
    }
    char text[24];
    struct rd_out out = rd_out(text, sizeof text);
    rd_put_number(&out, choice->wanted.spin_us);
    choice->spin_us = choice->wanted.spin_us;
    if (has_entry(choice->options, allow)) {
        set_entry(choice, allow, "1");
    }
    set_entry(choice, duration, text);
}

static void choose_spinning(struct choice *choice)
{
    bool intra = choice->intra != 1, inter = choice->parallel && choice->inter != 1;
    int planned = choice->wanted.spin;
    choice->spin_because = choice->wanted.spin_because;
    if (!intra && !inter) {
        planned = RD_SPIN_NEVER;
        choice->spin_because = "no worker threads";
    } else if ((choice->code.code & RD_CODE_GPU) != 0 && planned != SPIN_DEFAULT && planned != RD_SPIN_NEVER) {
        planned = RD_SPIN_NEVER;
        choice->spin_because = "the session asks for a GPU";
    } else if (planned == RD_SPIN_BOUNDED && rd_runtime.minor < BOUNDED_SPIN_SINCE) {
        planned = RD_SPIN_NEVER;
        choice->spin_because = "planned bounded, which onnxruntime can since 1.26";
    }
    choice->spin = planned;
    if (planned == RD_SPIN_NEVER || planned == RD_SPIN_BOUNDED) {
        if (intra) {
            spin_of_pool(choice, true, planned);
        }
        if (inter) {
            spin_of_pool(choice, false, planned);
        }
    }
}

bool rd_use_threads(void *options, const int slots[3], int intra, const struct rd_facts *facts,
                    const struct rd_effective *wanted, struct rd_pool **out, const char **because)
{
    *because = "";
    int affinity = (int)rd_plan_get(&rd_runtime.plan, RD_AFF, RD_AFF_NONE);
    struct rd_pool *pool = *out = rd_pool_take();
    pool->intra_workers = intra - 1;
    if (affinity != RD_AFF_NONE && intra > 1) {
        if (!wanted->exclusive) {
            *because = "the CPUs are not the exclusive ones that were planned";
        } else if (affinity == RD_AFF_CORE && rd_threads_pinned() > 0) {
            *because = "another session's workers have a core each";
        } else {
            pool->placed = intra - 1;
            pool->group = rd_map(sizeof *pool->group * (size_t)pool->placed);
            if (pool->group == NULL || !rd_affinity_groups("", &facts->cpus, intra, affinity, pool->group)) {
                rd_pool_done(pool);
                pool->placed = 0;
                *because = "no groups for so many threads on these CPUs";
            }
        }
    }
    pool->core = pool->placed > 0 && affinity == RD_AFF_CORE;
    char message[4];
    bool done = rd_ok(((rd_on_pointer)(uintptr_t)rd_real[slots[0]])(options, (const void *)rd_thread_create), message, 0)
                && rd_ok(((rd_on_pointer)(uintptr_t)rd_real[slots[1]])(options, pool), message, 0)
                && rd_ok(((rd_on_pointer)(uintptr_t)rd_real[slots[2]])(options, (const void *)rd_thread_join), message, 0);
    return done;
}

static void choose_threads(struct choice *choice)
{
    static const int slots[3] = {SLOT_SessionOptionsSetCustomCreateThreadFn,
                                 SLOT_SessionOptionsSetCustomThreadCreationOptions,
                                 SLOT_SessionOptionsSetCustomJoinThreadFn};
    choice->affinity_because = "";
    bool code_affinity = choice->code_affinity;
    if (code_affinity && rd_runtime.respect) {
        choice->affinity = AFFINITY_CODE;
        choice->affinity_because = "set in the code";
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
    choice->own_threads = rd_use_threads(choice->options, slots, choice->intra, &choice->facts, &choice->wanted,
                                         &choice->pool, &choice->affinity_because);
    choice->failed |= !choice->own_threads;
    if (choice->pool->placed > 0) {
        choice->affinity = (int)rd_plan_get(&rd_runtime.plan, RD_AFF, RD_AFF_NONE);
    }
    if (code_affinity && choice->intra > 1) {
        /* An entry can't be removed, and its groups have to be as many as the workers. Our threads don't look at it. */
        char text[4096];
        struct rd_out out = rd_out(text, sizeof text);
        for (int i = 1; i < choice->intra; i++) {
            rd_put(&out, i > 1 ? ";1" : "1");
        }
        set_entry(choice, AFFINITY_KEY, text);
        choice->affinity_because = "the code's is overridden";
    }
}

/* The code's own pools, or those of the environment; "" when the session joins them, else why not. */
static const char *join_global_pool(struct choice *choice)
{
    if (rd_plan_get(&rd_runtime.plan, RD_GLOBAL, 0) == 0 || !rd_global_pool()) {
        return NULL;
    }
    if (rd_runtime.respect && (choice->code.code & (RD_CODE_INTRA | RD_CODE_INTER | RD_CODE_THREADS)) != 0) {
        return "set in the code";
    }
    return "";
}

static void choose_memory(struct choice *choice, const void *environment)
{
    const struct rd_plan *plan = &rd_runtime.plan;
    if (plan->has[RD_ARENA] && !(rd_runtime.respect && (choice->code.code & RD_CODE_NO_ARENA) != 0)) {
        set(choice, plan->value[RD_ARENA] != 0 ? RD_REAL(EnableCpuMemArena, rd_on)(choice->options)
                                               : RD_REAL(DisableCpuMemArena, rd_on)(choice->options));
    }
    if (plan->has[RD_MEM_PATTERN] && !(rd_runtime.respect && (choice->code.code & RD_CODE_NO_PATTERN) != 0)) {
        set(choice, plan->value[RD_MEM_PATTERN] != 0 ? RD_REAL(EnableMemPattern, rd_on)(choice->options)
                                                     : RD_REAL(DisableMemPattern, rd_on)(choice->options));
    }
    const char *shared = rd_plan_key(RD_CONFIG_ENV_ALLOCATORS);
    if (rd_plan_get(plan, RD_SHARED_ARENA, 0) != 0 && !plan->has[RD_CONFIG_ENV_ALLOCATORS]
        && !(rd_runtime.respect && has_entry(choice->options, shared)) && rd_shared_arena(environment)) {
        set_entry(choice, shared, "1");
    }
}

static void choose_graph(struct choice *choice)
{
    static const int levels[] = {0, 1, 2, ORT_ENABLE_ALL};
    choice->graph = -1;
    if (rd_runtime.plan.has[RD_GRAPH] && !(rd_runtime.respect && (choice->code.code & RD_CODE_GRAPH) != 0)) {
        choice->graph = (int)rd_runtime.plan.value[RD_GRAPH];
        set(choice, RD_REAL(SetSessionGraphOptimizationLevel, rd_on_number)(choice->options, levels[choice->graph]));
    }
}

/* The entries that the plan names under ONNX Runtime's own keys. They win over what spin= comes to. `before` is the
 * code's own object, which has none of ours. */
static void choose_entries(struct choice *choice, const void *before)
{
    for (int key = RD_CONFIG_FIRST; key <= RD_CONFIG_LAST; key++) {
        const char *name = rd_plan_key((enum rd_key)key);
        if (rd_runtime.plan.has[key]
            && !(rd_runtime.respect && before != NULL && has_entry((void *)(uintptr_t)before, name))) {
            char text[24];
            struct rd_out out = rd_out(text, sizeof text);
            rd_plan_value(&rd_runtime.plan, (enum rd_key)key, &out);
            set_entry(choice, name, text);
        }
    }
}

static void put_part(struct rd_out *line, const char *name, const char *because)
{
    rd_put(line, name);
    if (because != NULL && because[0] != '\0') {
        rd_put(line, " (");
        rd_put(line, because);
        rd_put_char(line, ')');
    }
}

static void put_count(struct rd_out *out, int count)
{
    if (count == 0) {
        rd_put(out, "default");
    } else {
        rd_put_number(out, count);
    }
}

/* "onnxruntime 1.31.1: intra_op=2 (planned 4, cut to quota 2), inter_op=1, spinning off, affinity none" */
static void put_line(struct rd_out *line, const struct choice *choice)
{
    static const char *const spinning[] = {"default", "off", "", "default", "as in the code"};
    static const char *const affinities[] = {"none", "numa", "core", "code"};
    rd_put(line, "onnxruntime ");
    rd_put(line, rd_runtime.version);
    rd_put(line, ": intra_op=");
    put_count(line, choice->intra);
    put_part(line, "", choice->intra_because);
    rd_put(line, ", inter_op=");
    put_count(line, choice->inter);
    put_part(line, "", choice->inter_because);
    rd_put(line, ", spinning ");
    if (choice->spin == RD_SPIN_BOUNDED) {
        rd_put_number(line, choice->spin_us);
        rd_put(line, " us");
    }
    put_part(line, spinning[choice->spin + 1], choice->spin_because);
    rd_put(line, ", affinity ");
    put_part(line, affinities[choice->affinity], choice->affinity_because);
}

static void put_pair(struct rd_out *json, const char *key, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        rd_put(json, json->length > 0 ? ",\"" : "\"");
        rd_put(json, key);
        rd_put(json, "\":\"");
        rd_put(json, value);
        rd_put_char(json, '"');
    }
}

static void put_number(struct rd_out *json, const char *key, int value)
{
    rd_put(json, json->length > 0 ? ",\"" : "\"");
    rd_put(json, key);
    rd_put(json, "\":");
    rd_put_number(json, value);
}

static void keep(const struct choice *choice)
{
    static const char *const spins[] = {NULL, "never", "bounded", "always", "code"};
    static const char *const affinities[] = {"none", "numa", "core", "code"};
    static const char *const graphs[] = {"disable", "basic", "extended", "all"};
    char effective[256], because[512];
    struct rd_out values = rd_out(effective, sizeof effective), reasons = rd_out(because, sizeof because);
    if (choice->intra != 0) {
        put_number(&values, "intra", choice->intra);
    }
    if (choice->inter != 0) {
        put_number(&values, "inter", choice->inter);
    }
    put_pair(&values, "mode", choice->parallel ? "parallel" : "sequential");
    put_pair(&values, "spin", choice->spin == SPIN_DEFAULT ? "always" : spins[choice->spin + 1]);
    if (choice->spin == RD_SPIN_BOUNDED) {
        put_number(&values, "spinUs", choice->spin_us);
    }
    put_pair(&values, "affinity", affinities[choice->affinity]);
    if (choice->graph >= 0) {
        put_pair(&values, "graph", graphs[choice->graph]);
    }
    if (choice->global) {
        put_pair(&values, "pool", "global");
    }
    put_pair(&reasons, "intra", choice->intra_because);
    put_pair(&reasons, "inter", choice->inter_because);
    put_pair(&reasons, "spin", choice->spin_because);
    put_pair(&reasons, "affinity", choice->affinity_because);
    rd_record(rd_runtime.version, &choice->facts, effective, because);
    char text[512];
    struct rd_out line = rd_out(text, sizeof text);
    put_line(&line, choice);
    if (choice->facts.first_worker && rd_announce(text)) {
        const char *missing = rd_allocator_missing(&rd_runtime.plan);
        if (missing != NULL) {
            line = rd_out(text, sizeof text);
            rd_put(&line, "allocator ");
            rd_put(&line, missing);
            rd_put(&line, " could not be preloaded: this image has none that fits this program");
            rd_complain(text);
        }
    }
}

/* A clone of the options with the plan's values; false where the session has to be left alone. */
static bool choose(struct choice *choice, const void *options, const void *environment, bool may_join)
{
    __builtin_memset(choice, 0, sizeof *choice);
    choice->code = rd_options_of(options);
    if ((choice->code.code & RD_CODE_UNKNOWN) != 0 && rd_runtime.respect) {
        rd_complain("onnxruntime session is left alone: too many options objects to know what the code has set");
        return false;
    }
    rd_current(&choice->facts, &choice->wanted);
    rd_status made = options != NULL
                         ? RD_REAL(CloneSessionOptions, rd_status(*)(const void *, void **))(options, &choice->options)
                         : RD_REAL(CreateSessionOptions, rd_on)((void *)&choice->options);
    if (!rd_ok(made, choice->message, sizeof choice->message) || choice->options == NULL) {
        return false;
    }
    const char *own_pools = may_join ? join_global_pool(choice) : NULL;
    if ((choice->code.code & RD_CODE_NO_POOLS) != 0 || (own_pools != NULL && own_pools[0] == '\0')) {
        choice->global = true;
        set(choice, RD_REAL(DisablePerSessionThreads, rd_on)(choice->options));
        choice->intra = choice->wanted.global_intra;
        choice->inter = choice->wanted.inter;
        choice->intra_because = "the process's global pool";
        choice->spin = choice->wanted.spin == RD_SPIN_BOUNDED ? RD_SPIN_NEVER : choice->wanted.spin;
    } else {
        choose_counts(choice);
        choose_spinning(choice);
        choose_threads(choice);
    }
    choose_graph(choice);
    choose_memory(choice, environment);
    choose_entries(choice, options);
    return !choice->failed;
}

static void let_go(struct choice *choice)
{
    if (choice->options != NULL) {
        RD_REAL(ReleaseSessionOptions, rd_release)(choice->options);
    }
    if (choice->pool != NULL) {
        rd_pool_done(choice->pool);
    }
}

/* One session about to be made: `make` calls the real function with the options that it is given. */
struct making {
    rd_status (*make)(const struct making *making, const void *options);
    const void *function;
    const void *environment;
    const void *a;
    size_t b;
    const void *c;
    void *out;
};

static rd_status create(const struct making *making, const void *options)
{
    struct choice choice;
    char problem[160];
    rd_status status;
    bool tried = false;
    problem[0] = '\0';
    /* With the environment's pools, with pools of its own, as the code has it. */
    for (int attempt = 0; attempt < 2; attempt++) {
        if (choose(&choice, options, making->environment, attempt == 0)) {
            status = making->make(making, choice.options);
            if (status == NULL) {
                if (attempt > 0) {
                    rd_global_pool_failed();
                }
                let_go(&choice);
                if (!choice.global && choice.intra != 1) {
                    rd_session_made(*(void **)making->out);
                }
                keep(&choice);
                return NULL;
            }
            rd_ok(status, problem, sizeof problem);
            tried = true;
        } else if (choice.message[0] != '\0') {
            struct rd_out out = rd_out(problem, sizeof problem);
            rd_put(&out, choice.message);
            tried = true;
        }
        let_go(&choice);
        if (!choice.global || (choice.code.code & RD_CODE_NO_POOLS) != 0) {
            break;
        }
    }
    status = making->make(making, options);
    if (status == NULL && tried) {
        char text[300];
        struct rd_out line = rd_out(text, sizeof text);
        rd_put(&line, "onnxruntime session is created without the plan's values: ");
        rd_put(&line, problem);
        rd_complain(text);
    }
    return status;
}

typedef rd_status (*from_file)(const void *, const void *, const void *, void *);
typedef rd_status (*from_array)(const void *, const void *, size_t, const void *, void *);
typedef rd_status (*from_file_shared)(const void *, const void *, const void *, const void *, void *);
typedef rd_status (*from_array_shared)(const void *, const void *, size_t, const void *, const void *, void *);

static rd_status make_from_file(const struct making *m, const void *options)
{
    return ((from_file)(uintptr_t)m->function)(m->environment, m->a, options, m->out);
}

static rd_status make_from_array(const struct making *m, const void *options)
{
    return ((from_array)(uintptr_t)m->function)(m->environment, m->a, m->b, options, m->out);
}

static rd_status make_from_file_shared(const struct making *m, const void *options)
{
    return ((from_file_shared)(uintptr_t)m->function)(m->environment, m->a, options, m->c, m->out);
}

static rd_status make_from_array_shared(const struct making *m, const void *options)
{
    return ((from_array_shared)(uintptr_t)m->function)(m->environment, m->a, m->b, options, m->c, m->out);
}

static rd_status create_session(const void *env, const void *path, const void *options, void *out)
{
    struct making making = {make_from_file, rd_real[SLOT_CreateSession], env, path, 0, NULL, out};
    return create(&making, options);
}

static rd_status create_session_from_array(const void *env, const void *data, size_t size, const void *options,
                                           void *out)
{
    struct making making = {make_from_array, rd_real[SLOT_CreateSessionFromArray], env, data, size, NULL, out};
    return create(&making, options);
}

static rd_status create_session_shared(const void *env, const void *path, const void *options, const void *weights,
                                       void *out)
{
    struct making making = {make_from_file_shared, rd_real[SLOT_CreateSessionWithPrepackedWeightsContainer], env, path,
                            0, weights, out};
    return create(&making, options);
}

static rd_status create_session_from_array_shared(const void *env, const void *data, size_t size, const void *options,
                                                  const void *weights, void *out)
{
    struct making making = {make_from_array_shared,
                            rd_real[SLOT_CreateSessionFromArrayWithPrepackedWeightsContainer], env, data, size, weights,
                            out};
    return create(&making, options);
}

/* ---- the model editor's table ---- */

static const void *editor_table[EDITOR_Slots];
static const void *const *real_editor;

static rd_status editor_from_model(const void *env, const void *model, const void *options, void *out)
{
    struct making making = {make_from_file, real_editor[EDITOR_CreateSessionFromModel], env, model, 0, NULL, out};
    return create(&making, options);
}

static rd_status editor_session(const void *env, const void *path, const void *options, void *out)
{
    struct making making = {make_from_file, real_editor[EDITOR_CreateModelEditorSession], env, path, 0, NULL, out};
    return create(&making, options);
}

static rd_status editor_session_from_array(const void *env, const void *data, size_t size, const void *options,
                                           void *out)
{
    struct making making = {make_from_array, real_editor[EDITOR_CreateModelEditorSessionFromArray], env, data, size,
                            NULL, out};
    return create(&making, options);
}

static const void *get_model_editor(void)
{
    const void *const *real = RD_REAL(GetModelEditorApi, const void *const *(*)(void))();
    /* A newer runtime's table may be longer, and who asks may know that: only the known length is copied. */
    if (real == NULL || rd_runtime.minor > 24 || rd_readable(real) < sizeof editor_table) {
        return real;
    }
    const void *table[EDITOR_Slots];
    for (int i = 0; i < EDITOR_Slots; i++) {
        table[i] = real[i];
    }
    table[EDITOR_CreateSessionFromModel] = (const void *)editor_from_model;
    table[EDITOR_CreateModelEditorSession] = (const void *)editor_session;
    table[EDITOR_CreateModelEditorSessionFromArray] = (const void *)editor_session_from_array;
    real_editor = real;
    for (int i = 0; i < EDITOR_Slots; i++) {
        __atomic_store_n(&editor_table[i], table[i], __ATOMIC_RELEASE);
    }
    return editor_table;
}

/* ---- arena shrinkage ---- */

typedef rd_status (*run_function)(void *, const void *, const void *, const void *, size_t, const void *, size_t,
                                  void *);
static void *shrinking;

static rd_status run_and_shrink(void *session, const void *options, const void *input_names, const void *inputs,
                                size_t input_count, const void *output_names, size_t output_count, void *outputs)
{
    /* Run options of the code's own are not touched: they may be shared by several threads. */
    return RD_REAL(Run, run_function)(session, options != NULL ? options : shrinking, input_names, inputs, input_count,
                                      output_names, output_count, outputs);
}

static bool make_shrinking(void)
{
    void *options = NULL;
    if (!rd_ok(RD_REAL(CreateRunOptions, rd_on)((void *)&options), NULL, 0)) {
        return false;
    }
    if (!rd_ok(RD_REAL(AddRunConfigEntry, rd_on_entry)(options, "memory.enable_memory_arena_shrinkage", "cpu:0"), NULL,
               0)) {
        RD_REAL(ReleaseRunOptions, rd_release)(options);
        return false;
    }
    shrinking = options;
    return true;
}

void rd_session_wrap(const void **table)
{
    table[SLOT_CreateSession] = (const void *)create_session;
    table[SLOT_CreateSessionFromArray] = (const void *)create_session_from_array;
    table[SLOT_CreateSessionWithPrepackedWeightsContainer] = (const void *)create_session_shared;
    table[SLOT_CreateSessionFromArrayWithPrepackedWeightsContainer] = (const void *)create_session_from_array_shared;
    if (rd_runtime.minor >= 22) {
        table[SLOT_GetModelEditorApi] = (const void *)get_model_editor;
    }
    if (rd_plan_get(&rd_runtime.plan, RD_SHRINK, 0) != 0 && make_shrinking()) {
        table[SLOT_Run] = (const void *)run_and_shrink;
    }
}
