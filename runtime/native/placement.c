/* How many threads exclusive CPUs have room for, and where each goes: a port of runtime/raddle/cpus/placement.py, which says
 * why. Asked only where the CPUs are as many as the plan expects to be exclusive, or somebody says that they are. */
#include "machine.h"

static unsigned cpus_within(const struct rd_cpus *one, const struct rd_cpus *other)
{
    struct rd_cpus both = *one;
    rd_cpus_keep(&both, other);
    return rd_cpus_count(&both);
}

static int lowest_within(const struct rd_cpus *one, const struct rd_cpus *other)
{
    struct rd_cpus both = *one;
    rd_cpus_keep(&both, other);
    return rd_cpus_next(&both, -1);
}

/* The lowest CPU of each core in the pool. */
static void one_cpu_each(const struct rd_machine *machine, const struct rd_cpus *pool, struct rd_cpus *units)
{
    __builtin_memset(units, 0, sizeof *units);
    for (int i = 0; i < machine->core.count; i++) {
        rd_cpus_add(units, lowest_within(&machine->core.at[i].cpus, pool));
    }
}

/* ---- kinds of core ---- */

/* The cores that have CPUs in the set. */
static int cores_within(const struct rd_machine *machine, const struct rd_cpus *set)
{
    int cores = 0;
    for (int i = 0; i < machine->core.count; i++) {
        cores += rd_cpus_overlap(&machine->core.at[i].cpus, set);
    }
    return cores;
}

static bool keeps_kinds_apart(const struct rd_machine *machine)
{
    return rd_plan_get(machine->plan, RD_CORE_TYPE, -1) != RD_CORE_TYPE_ANY && machine->kind.total > 1;
}

/* All but the slow kinds, unless these have more than twice as many cores. */
static void leave_slow_kinds(const struct rd_machine *machine, struct rd_cpus *set)
{
    struct rd_cpus slow = {{0}};
    for (int i = 0; i < machine->kind.count && machine->kind.at[i].id < machine->slow; i++) {
        rd_cpus_join(&slow, &machine->kind.at[i].cpus);
    }
    rd_cpus_drop(set, &slow);
    int fast_cores = cores_within(machine, set);
    if (fast_cores == 0 || cores_within(machine, &slow) > 2 * fast_cores) {
        *set = slow;
    }
}

/* The process's CPUs of the kind that the plan wants; all where there is one kind or any will do. */
static void one_kind(const struct rd_machine *machine, struct rd_cpus *set)
{
    int64_t wanted = rd_plan_get(machine->plan, RD_CORE_TYPE, -1);
    int kinds = machine->kind.count, first = 0, most = 0;
    *set = machine->cpus;
    if (!keeps_kinds_apart(machine) || kinds == 0) {
        return;
    }
    if (wanted < 0 && machine->slow > 0) {
        leave_slow_kinds(machine, set);
        return;
    }
    const struct rd_group *found = &machine->kind.at[wanted == RD_CORE_TYPE_EFFICIENT ? 0 : kinds - 1];
    for (int i = kinds - 1; i >= 0 && wanted < 0; i--) {
        int cores = cores_within(machine, &machine->kind.at[i].cpus);
        first = i == kinds - 1 ? cores : first;
        if (cores > 2 * first && cores > most) {
            found = &machine->kind.at[i];
            most = cores;
        }
    }
    *set = found->cpus;
}

/* Which kinds of core the pool has, in words. */
static const char *kinds_of(const struct rd_machine *machine, const struct rd_cpus *pool)
{
    int taken = 0;
    bool has_slowest = false;
    for (int i = 0; i < machine->kind.count && keeps_kinds_apart(machine); i++) {
        bool has = rd_cpus_overlap(&machine->kind.at[i].cpus, pool);
        taken += has;
        has_slowest |= has && machine->kind.at[i].id == 0;
    }
    if (!keeps_kinds_apart(machine) || (taken > 1 && taken == machine->kind.total)) {
        return "";
    }
    return taken < 2 ? " of one type" : has_slowest ? " of the slower types" : " of the faster types";
}

/* ---- how many, and on which CPUs ---- */

/* The pool that the plan wants of the process's CPUs, before the cut to one NUMA node and after it. */
struct placed {
    struct rd_cpus uncut;
    struct rd_cpus pool;
    unsigned units;
    const char *cut; /* to what it was cut, in words; "": not at all */
    const char *kinds; /* which kinds of core the pool has, in words */
};

static bool is_better(const struct rd_group *node, unsigned units, unsigned cpus, const struct rd_group *best,
                      unsigned most, unsigned most_cpus)
{
    if (best == NULL || units != most) {
        return best == NULL || units > most;
    }
    return node->gpu != best->gpu ? node->gpu : cpus > most_cpus;
}

static void place(struct rd_machine *machine, struct placed *placed)
{
    int64_t wanted = rd_plan_get(machine->plan, RD_NUMA, -1);
    unsigned most = 0, most_cpus = 0;
    const struct rd_group *best = NULL;
    struct rd_cpus units;
    one_kind(machine, &placed->uncut);
    placed->pool = units = placed->uncut;
    if (rd_plan_get(machine->plan, RD_SMT, 0) == 0) {
        one_cpu_each(machine, &placed->pool, &units);
    }
    placed->units = rd_cpus_count(&units);
    for (int i = 0; i < machine->numa.count && machine->numa.total > 1; i++) {
        const struct rd_group *node = &machine->numa.at[i];
        unsigned share = cpus_within(&units, &node->cpus), cpus = cpus_within(&placed->pool, &node->cpus);
        if (is_better(node, share, cpus, best, most, most_cpus)) {
            best = node;
            most = share;
            most_cpus = cpus;
        }
    }
    bool cut = wanted != RD_NUMA_ANY && most > 0 && most < placed->units
               && (wanted == RD_NUMA_SINGLE || 4 * most >= 3 * placed->units);
    placed->cut = cut ? " on one NUMA node" : "";
    if (!cut && (most == 0 || most == placed->units) && wanted < 0) {
        /* Several sockets may be told as one NUMA node. */
        for (int i = 0; i < machine->socket.count && !cut; i++) {
            best = &machine->socket.at[i];
            most = cpus_within(&units, &best->cpus);
            cut = most > 0 && most < placed->units && 4 * most >= 3 * placed->units;
        }
        placed->cut = cut ? " on one socket" : "";
    }
    if (cut) {
        rd_cpus_keep(&placed->pool, &best->cpus);
        placed->units = most;
    }
    placed->kinds = kinds_of(machine, &placed->pool);
}

void rd_place(const struct rd_plan *plan, struct rd_facts *facts)
{
    int64_t expected = rd_plan_get(plan, RD_EXCLUSIVE_CPUS, 0);
    struct rd_machine *machine = NULL;
    struct placed placed;
    facts->units = 0;
    if ((expected > 0 && facts->knows_cpus && expected == facts->cpu_count) || facts->owner != NULL) {
        machine = rd_machine_of(plan, &facts->cpus);
    }
    if (machine == NULL) {
        return;
    }
    place(machine, &placed);
    facts->units = placed.units;
    struct rd_out words = rd_out(facts->units_words, sizeof facts->units_words);
    rd_put_number(&words, placed.units);
    rd_put(&words, rd_plan_get(plan, RD_SMT, 0) == 0 ? " physical core" : " CPU");
    rd_put(&words, placed.units != 1 ? "s" : "");
    rd_put(&words, placed.kinds);
    rd_put(&words, placed.cut);
    rd_unmap(machine, machine->size);
}

/* ---- which CPU for which thread ---- */

/* Ranks the groups: most of the pool first, then those with a GPU, then by number. */
static void rank(struct rd_groups *groups, const struct rd_cpus *pool)
{
    const struct rd_group *end = groups->at + groups->count;
    for (struct rd_group *group = groups->at; group < end; group++) {
        group->size = cpus_within(&group->cpus, pool);
    }
    for (struct rd_group *group = groups->at; group < end; group++) {
        group->rank = 0;
        for (const struct rd_group *other = groups->at; other < end; other++) {
            group->rank += other->size != group->size ? other->size > group->size
                           : other->gpu != group->gpu ? other->gpu
                                                      : other->id < group->id;
        }
    }
}

/* The rank of the group that has the CPU; behind all of them where none has. */
static int rank_of(const struct rd_groups *groups, int cpu)
{
    for (const struct rd_group *group = groups->at; group < groups->at + groups->count; group++) {
        if (rd_cpus_has(&group->cpus, cpu)) {
            return group->rank;
        }
    }
    return groups->count;
}

static bool comes_first(const struct rd_core_slot *one, const struct rd_core_slot *other)
{
    if (one->numa != other->numa) {
        return one->numa < other->numa;
    }
    return one->l3 != other->l3 ? one->l3 < other->l3 : one->lowest < other->lowest;
}

/* Puts the cores of the pool in order; how many they are. */
static int order_cores(struct rd_machine *machine, const struct rd_cpus *pool)
{
    int slots = 0;
    rank(&machine->numa, pool);
    rank(&machine->l3, pool);
    for (int i = 0; i < machine->core.count; i++) {
        int lowest = lowest_within(&machine->core.at[i].cpus, pool);
        if (lowest < 0) {
            continue;
        }
        struct rd_core_slot slot = {&machine->core.at[i], rank_of(&machine->numa, lowest),
                                    rank_of(&machine->l3, lowest), lowest};
        int at = slots++;
        for (; at > 0 && comes_first(&slot, &machine->slot[at - 1]); at--) {
            machine->slot[at] = machine->slot[at - 1];
        }
        machine->slot[at] = slot;
    }
    return slots;
}

/* The CPUs of a worker whose place is the unit. */
static void put_group(const struct rd_machine *machine, const struct rd_cpus *pool, int affinity,
                      const struct rd_cpus *unit, struct rd_cpus *group)
{
    *group = *unit;
    /* The scheduler balances no threads between isolated CPUs: each has its own. */
    if (affinity == RD_AFFINITY_CORE || rd_cpus_overlap(unit, &machine->isolated)) {
        return;
    }
    *group = *pool;
    rd_cpus_drop(group, &machine->isolated);
    for (int i = 0; i < machine->numa.count; i++) {
        if (rd_cpus_overlap(&machine->numa.at[i].cpus, unit)) {
            rd_cpus_keep(group, &machine->numa.at[i].cpus);
            return;
        }
    }
}

/* Fills the groups of the pool's threads but the first, which is the caller, who is never pinned. */
static void put_groups(struct rd_machine *machine, const struct rd_cpus *pool, int threads, int affinity,
                       struct rd_cpus *group)
{
    int slots = order_cores(machine, pool), done = 0;
    bool whole_cores = threads <= slots;
    /* Where all threads of a core are wanted: first one CPU of each core, then their siblings. */
    for (int depth = 0; done < threads && depth < RD_MAX_CPUS; depth++) {
        for (int i = 0; i < slots && done < threads; i++) {
            struct rd_cpus unit = machine->slot[i].core->cpus;
            rd_cpus_keep(&unit, pool);
            if (!whole_cores) {
                int cpu = rd_cpus_next(&unit, -1);
                for (int n = 0; n < depth && cpu >= 0; n++) {
                    cpu = rd_cpus_next(&unit, cpu);
                }
                if (cpu < 0) {
                    continue;
                }
                __builtin_memset(&unit, 0, sizeof unit);
                rd_cpus_add(&unit, cpu);
            }
            if (done++ > 0) {
                put_group(machine, pool, affinity, &unit, &group[done - 2]);
            }
        }
    }
}

bool rd_affinity_groups(const struct rd_plan *plan, const struct rd_cpus *cpus, int threads, int affinity,
                        struct rd_cpus *group)
{
    if (threads < 2 || affinity == RD_AFFINITY_NONE || (unsigned)threads > rd_cpus_count(cpus)) {
        return false;
    }
    struct rd_machine *machine = rd_machine_of(plan, cpus);
    if (machine == NULL) {
        return false;
    }
    struct placed placed;
    place(machine, &placed);
    /* A count of a policy's or of the code's own may be above what was placed: the first of these that has room, with a
     * core for each where that can be. */
    const struct rd_cpus *pools[] = {&placed.pool, &placed.uncut, &placed.pool, &placed.uncut, cpus};
    int at = 0;
    for (; at < 4; at++) {
        struct rd_cpus units = *pools[at];
        if (at < 2 && rd_plan_get(plan, RD_SMT, 0) == 0) {
            one_cpu_each(machine, pools[at], &units);
        }
        if (rd_cpus_count(&units) >= (unsigned)threads) {
            break;
        }
    }
    put_groups(machine, pools[at], threads, affinity, group);
    group[threads - 1] = *pools[at];
    rd_unmap(machine, machine->size);
    return true;
}
