/* How a session's pools wait for work: the entries that follow from spin=, the plan's own under the runtime's keys, and
 * the code's. */
#include "ort.h"

#define BOUNDED_SPIN_SINCE 26

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
    choice->spin = rd_same(allow, "0") || rd_same(duration, "0") ? RD_SPIN_NEVER
                   : bounded                                     ? RD_SPIN_BOUNDED
                                                                 : RD_SPIN_ALWAYS;
    uint64_t us = 0;
    choice->spin_us = choice->spin == RD_SPIN_BOUNDED && rd_number(rd_text_of(duration), &us) ? (int)us : 0;
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
                                planned == RD_SPIN_NEVER     ? "0"
                                : planned == RD_SPIN_BOUNDED ? "1"
                                                             : NULL,
                                allow, sizeof allow);
    bool set_duration = newer && pool_value(duration_key, planned == RD_SPIN_BOUNDED ? us : NULL, duration,
                                            sizeof duration);
    bool set_backoff = newer && pool_value(backoff_key, NULL, backoff, sizeof backoff);
    if (!set_allow && !set_duration && !set_backoff) {
        return;
    }
    bool code_allow = rd_code_has(choice, rd_plan_key(allow_key));
    bool code_duration = newer && rd_code_has(choice, rd_plan_key(duration_key));
    if (rd_runtime.respect && (code_allow || code_duration)) {
        choice->spin = RD_SPIN_CODE;
        choice->spin_because = "set in the code";
        set_allow = set_duration = false;
    } else {
        say_spinning(choice, set_allow ? allow : "", set_duration ? duration : "");
    }
    /* Allowed is the runtime's default: written only over another value of the code's. */
    if (set_allow && (code_allow || !rd_same(allow, "1"))) {
        rd_choice_entry(choice, rd_plan_key(allow_key), allow);
    }
    if (set_duration) {
        rd_choice_entry(choice, rd_plan_key(duration_key), duration);
    }
    if (set_backoff && !(rd_runtime.respect && rd_code_has(choice, rd_plan_key(backoff_key)))) {
        rd_choice_entry(choice, rd_plan_key(backoff_key), backoff);
    }
}

void rd_choose_spinning(struct rd_choice *choice)
{
    bool intra = choice->intra != 1, inter = choice->parallel && choice->inter != 1;
    rd_resolve_spinning(&rd_runtime.plan, &choice->facts, choice->intra, choice->inter, choice->parallel,
                        &choice->wanted);
    int planned = choice->wanted.spin;
    choice->spin_because = choice->wanted.spin_because;
    if (!intra && !inter) {
        planned = RD_SPIN_NEVER;
        choice->spin_because = "no worker threads";
    } else if (planned != RD_SPIN_NEVER && (choice->code.code & RD_CODE_GPU) != 0 &&
               rd_plan_get(&rd_runtime.plan, RD_SPIN, -1) == RD_SPIN_BOUNDED) {
        /* Its workers wait for a GPU most of the time; the count stays, since the provider may fall back to the CPU. */
        planned = RD_SPIN_NEVER;
        choice->spin_because = "planned bounded, stopped: the session asks for a GPU";
    } else if (planned == RD_SPIN_BOUNDED && rd_runtime.minor < BOUNDED_SPIN_SINCE) {
        planned = RD_SPIN_NEVER;
        choice->spin_because = "planned bounded, which onnxruntime can since 1.26";
    }
    choice->spin = planned < 0 ? RD_SPIN_ALWAYS : planned;
    if (intra) {
        spin_of_pool(choice, true, planned);
    }
    if (inter) {
        spin_of_pool(choice, false, planned);
    }
}
