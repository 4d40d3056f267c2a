/* What a session's choice looks like to people: the line on stderr, and its place in the report. */
#include "ort.h"

static const char *const affinities[] = {"none", "numa", "core", "code"};

static void put_part(struct rd_out *line, const char *text, const char *because)
{
    rd_put(line, text);
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
static void put_line(struct rd_out *line, const struct rd_choice *choice)
{
    static const char *const spinning[] = {"off", "", "default", "as in the code"};
    rd_put(line, "onnxruntime ");
    rd_put(line, rd_runtime.version);
    rd_put(line, rd_runtime.minor > RD_NEWEST_TESTED ? " (newer than tested): intra_op=" : ": intra_op=");
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
    put_part(line, spinning[choice->spin], choice->spin_because);
    rd_put(line, ", affinity ");
    put_part(line, affinities[choice->affinity], choice->affinity_because);
}

static void put_key(struct rd_out *json, const char *key)
{
    rd_put(json, json->length > 0 ? ",\"" : "\"");
    rd_put(json, key);
    rd_put(json, "\":");
}

static void put_word(struct rd_out *json, const char *key, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        put_key(json, key);
        rd_put_char(json, '"');
        rd_put(json, value);
        rd_put_char(json, '"');
    }
}

static void put_number(struct rd_out *json, const char *key, int value)
{
    if (value != 0) {
        put_key(json, key);
        rd_put_number(json, value);
    }
}

static void put_switch(struct rd_out *json, const char *key, int value)
{
    if (value >= 0) {
        put_key(json, key);
        rd_put(json, value != 0 ? "true" : "false");
    }
}

void rd_choice_value(struct rd_choice *choice, const char *name, const char *json)
{
    struct rd_out values = {choice->values, sizeof choice->values, rd_length(choice->values)};
    put_key(&values, name);
    rd_put(&values, json);
}

void rd_choice_report(const struct rd_choice *choice, const void *session, uint64_t took_us)
{
    static const char *const spins[] = {"never", "bounded", "always", "code"};
    char effective[960], because[800], text[720], groups[512];
    struct rd_out values = rd_out(effective, sizeof effective), reasons = rd_out(because, sizeof because);
    put_number(&values, "intra", choice->intra);
    put_number(&values, "inter", choice->inter);
    put_word(&values, "mode", choice->parallel ? "parallel" : "sequential");
    put_word(&values, "spin", spins[choice->spin]);
    put_number(&values, "spinUs", choice->spin_us);
    put_word(&values, "affinity", affinities[choice->affinity]);
    struct rd_out list = rd_out(groups, sizeof groups);
    if (choice->pool != NULL && choice->pool->placed > 0
        && rd_put_groups(&list, choice->pool, choice->pool->placed, NULL)) {
        put_word(&values, "affinityGroups", groups);
    }
    if (choice->values[0] != '\0') {
        rd_put_char(&values, ',');
        rd_put(&values, choice->values);
    }
    put_switch(&values, "sharedArena",
               rd_plan_get(&rd_runtime.plan, RD_SHARED_ARENA, 0) != 0 ? choice->shared_arena : -1);
    put_switch(&values, "globalPool", rd_plan_get(&rd_runtime.plan, RD_GLOBAL, 0) != 0 ? choice->global : -1);
    put_word(&reasons, "intra", choice->intra_because);
    put_word(&reasons, "inter", choice->inter_because);
    put_word(&reasons, "mode", choice->mode_because);
    put_word(&reasons, "spin", choice->spin_because);
    put_word(&reasons, "affinity", choice->affinity_because);
    put_word(&reasons, "globalPool", choice->pool_because);
    if (rd_plan_get(&rd_runtime.plan, RD_OBSERVE, RD_OBSERVE_SESSIONS) != RD_OBSERVE_NONE) {
        rd_record(session, rd_runtime.version, &choice->facts, effective, because, took_us);
    }
    struct rd_out line = rd_out(text, sizeof text);
    put_line(&line, choice);
    rd_name_mapping(text);
    if (choice->facts.first_worker && rd_announce(text)) {
        line = rd_out(text, sizeof text);
        if (rd_allocator_missing(&rd_runtime.plan, &line)) {
            rd_complain(text);
        }
    }
}
