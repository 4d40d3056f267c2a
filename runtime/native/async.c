/* RunAsync of a session that has one thread by the plan: ONNX Runtime itself refuses it without a worker thread.
 *
 * The application would have had workers. So a run that was refused is made by a thread of ours, with the real Run, one
 * after another for each session, as run_async of runtime/raddle/adapters/onnxruntime/run_async.py. The thread is there while its
 * session has runs to make. As ONNX Runtime, it keeps the caller's arrays by their addresses. */
#include "ort.h"
#include "syscalls.h"

#define PR_SET_NAME 15
#define QUEUES 256
#define ASYNC_SINCE 16

typedef void (*callback_function)(void *user_data, void **outputs, size_t output_count, rd_status status);
typedef rd_status (*run_function)(void *, const void *, const void *, const void *, size_t, const void *, size_t,
                                  void **);
typedef rd_status (*async_function)(void *, const void *, const void *, const void *, size_t, const void *, size_t,
                                    void **, callback_function, void *);

struct run {
    struct run *next;
    void *session;
    const void *options;
    const void *input_names;
    const void *inputs;
    size_t input_count;
    const void *output_names;
    size_t output_count;
    void **outputs;
    callback_function callback;
    void *user_data;
};

/* A living session with one thread by the plan, and its runs in their order. */
struct queue {
    const void *session;
    struct run *first;
    struct run *last;
    bool working;
    int worker; /* the thread's number, 0 before it runs */
};

static struct queue queues[QUEUES];
static struct rd_lock lock;
static int queues_pid;

typedef int (*pthread_create_function)(void **thread, const void *attributes, void *(*run)(void *), void *argument);
typedef int (*pthread_detach_function)(void *thread);

static bool enter(void)
{
    if (!rd_try_lock(&lock)) {
        return false;
    }
    int pid = rd_pid();
    if (queues_pid != pid) {
        /* The parent's threads do not exist here. */
        for (int i = 0; i < QUEUES; i++) {
            queues[i].working = false;
            queues[i].first = NULL;
        }
        queues_pid = pid;
    }
    return true;
}

/* In a thread of ours: it is never the one that lives on in a child of fork. */
static void enter_surely(void)
{
    while (!rd_try_lock(&lock)) {
    }
}

static struct queue *queue_of(const void *session)
{
    for (int i = 0; i < QUEUES; i++) {
        if (queues[i].session == session && session != NULL) {
            return &queues[i];
        }
    }
    return NULL;
}

void rd_async_made(const void *session)
{
    if (!enter()) {
        return;
    }
    struct queue *queue = queue_of(session);
    for (int i = 0; i < QUEUES && queue == NULL; i++) {
        if (queues[i].session == NULL && !queues[i].working) {
            queue = &queues[i];
        }
    }
    /* Without one the session keeps ONNX Runtime's own answer. */
    if (queue != NULL) {
        queue->session = session;
    }
    rd_unlock(&lock);
}

void rd_async_released(const void *session)
{
    static const long nap[2] = {0, 200000};
    for (bool wait = true; wait;) {
        if (!enter()) {
            return;
        }
        struct queue *queue = queue_of(session);
        /* ONNX Runtime waits here for its own workers. */
        wait = queue != NULL && queue->working && queue->worker != (int)rd_syscall(NR_GETTID, 0, 0, 0, 0, 0, 0);
        if (queue != NULL && !wait) {
            queue->session = NULL;
            queue->first = NULL;
        }
        rd_unlock(&lock);
        if (wait) {
            rd_syscall(NR_NANOSLEEP, (long)nap, 0, 0, 0, 0, 0);
        }
    }
}

void rd_async_drop(void)
{
    if (enter()) {
        for (int i = 0; i < QUEUES; i++) {
            queues[i].session = NULL;
            queues[i].first = NULL;
        }
        rd_unlock(&lock);
    }
}

static void make(struct run *made)
{
    struct run run = *made;
    rd_unmap(made, sizeof *made);
    rd_status status = RD_REAL(Run, run_function)(run.session, run.options, run.input_names, run.inputs,
                                                  run.input_count, run.output_names, run.output_count, run.outputs);
    /* The array on failure too, as InferenceSession::RunAsync, whatever the header says. The status is the callback's to
     * release. */
    run.callback(run.user_data, run.outputs, status == NULL ? run.output_count : 0, status);
}

static void *work(void *argument)
{
    struct queue *queue = argument;
    rd_syscall(NR_PRCTL, PR_SET_NAME, (long)"ort-async", 0, 0, 0, 0);
    enter_surely();
    queue->worker = (int)rd_syscall(NR_GETTID, 0, 0, 0, 0, 0, 0);
    for (struct run *next; (next = queue->first) != NULL;) {
        queue->first = next->next;
        rd_unlock(&lock);
        make(next);
        enter_surely();
    }
    queue->working = false;
    rd_unlock(&lock);
    return NULL;
}

static bool start(struct queue *queue)
{
    /* pthread_t is a word in both libcs. */
    void *thread = NULL;
    pthread_create_function create = (pthread_create_function)rd_symbol("pthread_create", NULL);
    pthread_detach_function detach = (pthread_detach_function)rd_symbol("pthread_detach", NULL);
    if (create == NULL || detach == NULL || create(&thread, NULL, work, queue) != 0) {
        return false;
    }
    detach(thread);
    return true;
}

/* False where the run isn't one of ours to make, or can't be made. */
static bool enqueue(struct run *run)
{
    if (!enter()) {
        return false;
    }
    struct queue *queue = queue_of(run->session);
    bool queued = queue != NULL;
    if (queued) {
        if (queue->first == NULL) {
            queue->first = run;
        } else {
            queue->last->next = run;
        }
        queue->last = run;
        if (!queue->working) {
            queue->worker = 0;
            queued = queue->working = start(queue);
            queue->first = queued ? run : NULL;
        }
    }
    rd_unlock(&lock);
    return queued;
}

static rd_status run_async(void *session, const void *options, const void *input_names, const void *inputs,
                           size_t input_count, const void *output_names, size_t output_count, void **outputs,
                           callback_function callback, void *user_data)
{
    rd_status status = RD_REAL(RunAsync, async_function)(session, options, input_names, inputs, input_count,
                                                         output_names, output_count, outputs, callback, user_data);
    struct run *run = status == NULL || callback == NULL ? NULL : rd_map(sizeof *run);
    if (run == NULL) {
        return status;
    }
    *run = (struct run){NULL,         session,      options, input_names, inputs,   input_count,
                        output_names, output_count, outputs, callback,    user_data};
    if (!enqueue(run)) {
        rd_unmap(run, sizeof *run);
        return status;
    }
    rd_ok(status, NULL, 0);
    return NULL;
}

void rd_async_wrap(const void **table)
{
    /* Any count may be cut to 1. */
    if (rd_runtime.minor >= ASYNC_SINCE && rd_plan_get(&rd_runtime.plan, RD_INTRA_OP, 0) != 0) {
        table[SLOT_RunAsync] = (const void *)run_async;
    }
}
