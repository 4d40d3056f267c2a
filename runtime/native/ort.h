/* ONNX Runtime as the shim sees it: one runtime per process, its real table, and what the code has set on its objects. */
#ifndef RADDLE_ORT_H
#define RADDLE_ORT_H

#include "raddle.h"
#include "slots.h"

struct rd_api_base {
    const void *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

/* Functions of the table by their shapes. A status is NULL for success and else has to be released. */
typedef void *rd_status;
typedef rd_status (*rd_on)(void *object);
typedef rd_status (*rd_on_number)(void *object, int value);
typedef rd_status (*rd_on_pointer)(void *object, const void *value);
typedef rd_status (*rd_on_entry)(void *object, const char *key, const char *value);
typedef void (*rd_release)(void *object);

extern const void *const *rd_real;
#define RD_REAL(slot, type) ((type)(uintptr_t)rd_real[SLOT_##slot])

/* The minor version of the newest that the tests have run with. */
#define RD_NEWEST_TESTED 32

/* Set once, before the first wrapped function can be called. */
struct rd_runtime {
    struct rd_plan plan;
    bool respect;
    int env_counts[2];    /* intra, inter: counts that the environment sets otherwise than the plan, 0: none */
    int raddle_counts[3]; /* counts that Raddle has put there, 0: none */
    int minor;   /* 23 of 1.23.2 */
    const char *version;
};
extern struct rd_runtime rd_runtime;
/* Releases the status; its message, if any, into `message`. True when it was a success. */
bool rd_ok(rd_status status, char *message, size_t size);
/* How many functions a table of the runtime has: `least`, and on for as long as there are addresses of the runtime's
 * code, or none (a function that this build lacks). Should those of another table follow, they do no harm in a copy. 0
 * where fewer than `least` can be read. */
unsigned rd_table_length(const void *const *real, unsigned least, unsigned most);
/* counts.c: tells the environment's counts that Raddle has put there from those that somebody else has. */
void rd_read_counts(void);
/* current.c: the facts of now, and what the plan comes to with them. */
void rd_resolve_now(struct rd_facts *facts, struct rd_effective *wanted);

/* ---- options.c: what the code has set on an OrtSessionOptions or OrtThreadingOptions ---- */

enum {
    RD_CODE_INTRA = 1,
    RD_CODE_INTER = 2,
    RD_CODE_GRAPH = 4,
    RD_CODE_SPIN = 8,
    RD_CODE_AFFINITY = 16,
    RD_CODE_THREADS = 32,   /* thread functions of its own */
    RD_CODE_NO_POOLS = 64,  /* DisablePerSessionThreads */
    RD_CODE_PARALLEL = 128,
    RD_CODE_GPU = 1024,
    RD_CODE_MODE = 16384,    /* either */
    RD_JAVA_INTER = 8192,   /* the Java package's own SetInterOpNumThreads(1), which every object of it gets */
    RD_HAS_WORKERS = 4096,  /* of a session: threads that a child of fork would not have */
    RD_CODE_UNKNOWN = 2048, /* too many objects to keep track of */
};
/* A switch that the code has set; to what. */
#define RD_CODE_SWITCH(place) (1ULL << (32 + 2 * (place)))
#define RD_CODE_SWITCHED_ON(place) (1ULL << (33 + 2 * (place)))
_Static_assert(RD_SWITCH_COUNT <= 16, "the switches have bits");
struct rd_options {
    const void *object;
    uint64_t code;
    int intra;
    int inter;
};
struct rd_options rd_options_of(const void *object);
/* The count that the code wants: 0 where it has set none, or has copied the one that Raddle has put into the environment,
 * or this machine's where that is above `capacity`. Where that is the code's own after all, it gets no more. */
int rd_code_count(int code, int wanted, int capacity);
/* Keeps a living session that has worker threads, until it is released. */
void rd_session_made(const void *session);
void rd_session_released(const void *session);
/* How many of them live in this process; all are gone in a child of fork. */
int rd_sessions_living(void);
void rd_sessions_forked(void);
/* Notes that the session will compute on a GPU. */
void rd_options_gpu(const void *options);
void rd_options_wrap(const void **table);

/* ---- pool.c ---- */

/* Gives a pool its thread functions: `options` and the slots of the three functions that set them. `planned`: its count
 * is not the code's own. */
bool rd_use_threads(void *options, const int slots[3], int intra, const struct rd_facts *facts,
                    const struct rd_effective *wanted, bool planned, struct rd_pool **pool, const char **because);
/* The CPUs of the pool's workers as ONNX Runtime is told them: ids from 1, a group for each. `every` are those of a worker
 * that has no place of its own. False where the text is cut off. */
bool rd_put_groups(struct rd_out *out, const struct rd_pool *pool, int workers, const struct rd_cpus *every);

/* ---- choice.c and log_line.c: what one session gets ---- */

#define RD_SPINNING_CODE 3
#define RD_AFFINITY_CODE 3

/* A count of 0 is the runtime's default. A reason is NULL or "" where there is none but the plan. */
struct rd_choice {
    struct rd_facts facts;
    struct rd_effective wanted;
    struct rd_options code;
    const void *given; /* the code's own object */
    void *options;     /* the clone */
    int intra;
    int inter;
    bool parallel;
    int spin;
    int spin_us;
    int affinity;
    signed char switches[RD_SWITCH_COUNT]; /* -1: left alone */
    bool shared_arena;
    bool global;
    bool single_thread; /* one intra-op thread that is the plan's, not the code's: ONNX Runtime refuses RunAsync */
    bool code_affinity;
    bool failed;
    struct rd_pool *pool;
    const char *intra_because, *inter_because, *spin_because, *affinity_because;
    char cut[192];
    char copied[2][64]; /* reasons: the code's count is this machine's */
    char message[160]; /* of the first setter that failed */
};

/* Decides, and sets it on a clone; false where the session has to be left alone. To be let go in either case. */
bool rd_choice_make(struct rd_choice *choice, const void *options, const void *environment, bool may_join);
void rd_choice_release(struct rd_choice *choice);
/* Leaves the session's mark, and writes its log line where that is due. */
void rd_choice_announce(const struct rd_choice *choice);

/* ---- session.c, environment.c, providers.c, async.c ---- */

void rd_session_wrap(const void **table);
void rd_environment_wrap(const void **table);
void rd_providers_wrap(const void **table);
void rd_async_wrap(const void **table);
/* Forget what they keep of a runtime that was unloaded. */
void rd_options_drop(void);
void rd_session_drop(void);
void rd_environment_drop(void);
void rd_async_drop(void);
/* Keeps a session that is alone; lets it go once its runs are made. */
void rd_async_made(const void *session);
void rd_async_released(const void *session);
/* True when sessions may use the pools of the environment. */
bool rd_global_pool(void);
/* True when those have one intra-op thread that is the plan's. */
bool rd_global_single_thread(void);
void rd_global_pool_failed(void);
/* True when the environment has a shared arena, made now if need be. */
bool rd_shared_arena(const void *environment);

#endif
