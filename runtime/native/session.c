/* Sessions: each is made with a clone of its options that has the plan's values. The code's own object is never
 * changed. Where the clone may be why the session can't be made, it is made as it would have been without Raddle. */
#include "ort.h"

/* Of enum OrtErrorCode, what no options could mend: no such file, no model in it, no protocol buffer, no valid graph,
 * loading that the code itself has cancelled. */
#define MODELS_ERRORS (1U << 3 | 1U << 4 | 1U << 7 | 1U << 10 | 1U << 12)

/* Whether it is the model that the session can't be made of: then it can't be without the plan's values either. */
static bool is_models(rd_status status)
{
    unsigned code = (unsigned)RD_REAL(GetErrorCode, int (*)(const void *))(status);
    /* How ONNX Runtime begins to tell of a file that it couldn't read in; options come to effect behind that. */
    return (code < 32 && (MODELS_ERRORS >> code & 1) != 0)
           || rd_starts(RD_REAL(GetErrorMessage, const char *(*)(const void *))(status), "Load model from ");
}

/* One session about to be made: `make` calls the real function with the options that it is given. */
struct session_call {
    rd_status (*make)(const struct session_call *call, const void *options);
    const void *function;
    const void *environment;
    const void *a;
    size_t b;
    const void *c;
    void *out;
};

static rd_status create(const struct session_call *call, const void *options)
{
    struct rd_choice choice;
    char problem[160];
    rd_status status;
    bool tried = false;
    problem[0] = '\0';
    /* With the environment's pools, with pools of its own, as the code has it. */
    for (int attempt = 0; attempt < 2; attempt++) {
        if (rd_choice_make(&choice, options, call->environment, attempt == 0)) {
            rd_pool_enter(choice.pool, &choice.facts);
            status = call->make(call, choice.options);
            rd_pool_leave(choice.pool);
            if (status == NULL) {
                if (attempt > 0) {
                    rd_global_pool_failed();
                }
                if (!choice.global && choice.intra != 1) {
                    rd_session_made(*(void **)call->out);
                }
                if (choice.single_thread) {
                    rd_async_made(*(void **)call->out);
                }
                rd_choice_announce(&choice);
                rd_choice_release(&choice);
                return NULL;
            }
            if (is_models(status)) {
                rd_choice_release(&choice);
                return status;
            }
            rd_ok(status, problem, sizeof problem);
            tried = true;
        } else if (choice.message[0] != '\0') {
            struct rd_out out = rd_out(problem, sizeof problem);
            rd_put(&out, choice.message);
            tried = true;
        }
        rd_choice_release(&choice);
        if (!choice.global || (choice.code.code & RD_CODE_NO_POOLS) != 0) {
            break;
        }
    }
    status = call->make(call, options);
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

static rd_status make_from_file(const struct session_call *m, const void *options)
{
    return ((from_file)(uintptr_t)m->function)(m->environment, m->a, options, m->out);
}

static rd_status make_from_array(const struct session_call *m, const void *options)
{
    return ((from_array)(uintptr_t)m->function)(m->environment, m->a, m->b, options, m->out);
}

static rd_status make_from_file_shared(const struct session_call *m, const void *options)
{
    return ((from_file_shared)(uintptr_t)m->function)(m->environment, m->a, options, m->c, m->out);
}

static rd_status make_from_array_shared(const struct session_call *m, const void *options)
{
    return ((from_array_shared)(uintptr_t)m->function)(m->environment, m->a, m->b, options, m->c, m->out);
}

static rd_status create_session(const void *env, const void *path, const void *options, void *out)
{
    struct session_call call = {make_from_file, rd_real[SLOT_CreateSession], env, path, 0, NULL, out};
    return create(&call, options);
}

static rd_status create_session_from_array(const void *env, const void *data, size_t size, const void *options,
                                           void *out)
{
    struct session_call call = {make_from_array, rd_real[SLOT_CreateSessionFromArray], env, data, size, NULL, out};
    return create(&call, options);
}

static rd_status create_session_shared(const void *env, const void *path, const void *options, const void *weights,
                                       void *out)
{
    struct session_call call = {make_from_file_shared, rd_real[SLOT_CreateSessionWithPrepackedWeightsContainer], env,
                                path, 0, weights, out};
    return create(&call, options);
}

static rd_status create_session_from_array_shared(const void *env, const void *data, size_t size, const void *options,
                                                  const void *weights, void *out)
{
    struct session_call call = {make_from_array_shared,
                                rd_real[SLOT_CreateSessionFromArrayWithPrepackedWeightsContainer], env, data, size,
                                weights, out};
    return create(&call, options);
}

static void release_session(void *session)
{
    rd_session_released(session);
    rd_async_released(session);
    RD_REAL(ReleaseSession, rd_release)(session);
}

/* ---- the model editor's table ---- */

#define MAX_EDITOR_SLOTS 128

static const void *editor_table[MAX_EDITOR_SLOTS];
static const void *const *real_editor;

static rd_status editor_from_model(const void *env, const void *model, const void *options, void *out)
{
    struct session_call call = {make_from_file, real_editor[EDITOR_CreateSessionFromModel], env, model, 0, NULL, out};
    return create(&call, options);
}

static rd_status editor_session(const void *env, const void *path, const void *options, void *out)
{
    struct session_call call = {make_from_file, real_editor[EDITOR_CreateModelEditorSession], env, path, 0, NULL, out};
    return create(&call, options);
}

static rd_status editor_session_from_array(const void *env, const void *data, size_t size, const void *options,
                                           void *out)
{
    struct session_call call = {make_from_array, real_editor[EDITOR_CreateModelEditorSessionFromArray], env, data,
                                size, NULL, out};
    return create(&call, options);
}

static const void *get_model_editor(void)
{
    const void *const *real = RD_REAL(GetModelEditorApi, const void *const *(*)(void))();
    unsigned length = real == NULL ? 0 : rd_table_length(real, EDITOR_Slots, MAX_EDITOR_SLOTS);
    if (length == 0) {
        return real;
    }
    const void *table[MAX_EDITOR_SLOTS];
    for (unsigned i = 0; i < length; i++) {
        table[i] = real[i];
    }
    table[EDITOR_CreateSessionFromModel] = (const void *)editor_from_model;
    table[EDITOR_CreateModelEditorSession] = (const void *)editor_session;
    table[EDITOR_CreateModelEditorSessionFromArray] = (const void *)editor_session_from_array;
    real_editor = real;
    /* Another thread may be here too: both write the same. */
    for (unsigned i = 0; i < length; i++) {
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

void rd_session_drop(void)
{
    shrinking = NULL;
    real_editor = NULL;
}

void rd_session_wrap(const void **table)
{
    table[SLOT_CreateSession] = (const void *)create_session;
    table[SLOT_CreateSessionFromArray] = (const void *)create_session_from_array;
    table[SLOT_CreateSessionWithPrepackedWeightsContainer] = (const void *)create_session_shared;
    table[SLOT_CreateSessionFromArrayWithPrepackedWeightsContainer] = (const void *)create_session_from_array_shared;
    table[SLOT_ReleaseSession] = (const void *)release_session;
    if (rd_runtime.minor >= 22) {
        table[SLOT_GetModelEditorApi] = (const void *)get_model_editor;
    }
    if (rd_plan_get(&rd_runtime.plan, RD_ARENA_SHRINKAGE, 0) != 0 && make_shrinking()) {
        table[SLOT_Run] = (const void *)run_and_shrink;
    }
}
