/* Who says that the process's CPUs are the container's own: a port of owner_of in runtime/raddle/process/current.py. */
#include "raddle.h"

#define CLAIM "DRA_CPUSET_"

/* CPUs that several lists name together. */
struct named {
    struct rd_cpus cpus;
    size_t length;
    bool malformed;
};

static void add(struct named *named, struct rd_text list)
{
    struct rd_cpus cpus;
    named->length += list.length;
    named->malformed |= named->length > RD_MAX_OWN_TEXT || !rd_cpus_parse(list, &cpus);
    if (!named->malformed) {
        rd_cpus_join(&named->cpus, &cpus);
    }
}

static bool make_up(const struct named *named, const struct rd_cpus *cpus)
{
    return !named->malformed && __builtin_memcmp(&named->cpus, cpus, sizeof *cpus) == 0;
}

const char *rd_owner_of(const struct rd_cpus *cpus, char *const *environment, struct rd_text resources)
{
    struct named claimed = {0}, exclusive = {0};
    for (; environment != NULL && *environment != NULL; environment++) {
        struct rd_text value, name = rd_split(rd_text_of(*environment), '=', &value, NULL);
        if (name.length >= sizeof CLAIM - 1 && rd_starts(name.at, CLAIM)) {
            add(&claimed, value);
        }
    }
    if (make_up(&claimed, cpus)) {
        return "DRA CPU claim";
    }
    while (resources.length > 0) {
        bool closed;
        struct rd_text value, after, line = rd_split(resources, '\n', &resources, NULL);
        struct rd_text name = rd_split(line, '"', &value, NULL);
        if (rd_text_is(name, "EXCLUSIVE_CPUS=") || rd_text_is(name, "ISOLATED_CPUS=")) {
            add(&exclusive, rd_split(value, '"', &after, &closed));
            exclusive.malformed |= !closed || after.length > 0;
        }
    }
    return make_up(&exclusive, cpus) ? "nri-plugins" : NULL;
}
