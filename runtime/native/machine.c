/* Reads what the plan tells of the machine: a port of machine_of in runtime/raddle/cpus/machine_part.py, which says how it is
 * written. The plan is untrusted: where anything in it doesn't fit, there is no machine. */
#include "machine.h"

/* The set that the list names, which has to lie within the other. */
static bool parse_within(struct rd_text text, const struct rd_cpus *within, struct rd_cpus *set)
{
    if (!rd_cpus_parse(text, set)) {
        return false;
    }
    struct rd_cpus outside = *set;
    rd_cpus_drop(&outside, within);
    return rd_cpus_next(&outside, -1) < 0;
}

static bool read_groups(struct rd_machine *machine, enum rd_key key, struct rd_groups *groups)
{
    struct rd_cpus left = machine->known;
    struct rd_text rest = rd_plan_list(machine->plan, key);
    for (bool more = rest.length > 0; more;) {
        struct rd_group *group = &groups->at[groups->count];
        if (!parse_within(rd_split(rest, '|', &rest, &more), &left, &group->cpus)) {
            return false;
        }
        rd_cpus_drop(&left, &group->cpus);
        rd_cpus_keep(&group->cpus, &machine->cpus);
        group->id = groups->total++;
        groups->count += rd_cpus_next(&group->cpus, -1) >= 0;
    }
    return true;
}

/* One thread of the core that has this place in the plan. */
static void add_thread(struct rd_machine *machine, int place, int cpu)
{
    if (!rd_cpus_has(&machine->cpus, cpu)) {
        return;
    }
    if (machine->position[place] == 0) {
        machine->position[place] = (uint16_t)++machine->core.count;
    }
    rd_cpus_add(&machine->core.at[machine->position[place] - 1].cpus, cpu);
}

/* First threads of the cores, then second ones in the same order; a CPU that is in none is a core by itself. */
static bool read_cores(struct rd_machine *machine)
{
    struct rd_cpus set, left = machine->known;
    struct rd_text rest = rd_plan_list(machine->plan, RD_CORES);
    bool more = rest.length > 0;
    for (int depth = 0; more; depth++) {
        struct rd_text threads = rd_split(rest, '|', &rest, &more);
        int place = 0;
        for (bool another = true; another;) {
            if (!parse_within(rd_split(threads, ',', &threads, &another), &left, &set)) {
                return false;
            }
            rd_cpus_drop(&left, &set);
            for (int cpu = rd_cpus_next(&set, -1); cpu >= 0; cpu = rd_cpus_next(&set, cpu), place++) {
                if (depth > 0 && place >= machine->core.total) {
                    return false;
                }
                add_thread(machine, place, cpu);
            }
        }
        machine->core.total = depth > 0 ? machine->core.total : place;
    }
    rd_cpus_keep(&left, &machine->cpus);
    for (int cpu = rd_cpus_next(&left, -1); cpu >= 0; cpu = rd_cpus_next(&left, cpu)) {
        rd_cpus_add(&machine->core.at[machine->core.count++].cpus, cpu);
    }
    return true;
}

static bool read_kinds(struct rd_machine *machine)
{
    uint64_t slow = 0;
    struct rd_text text = rd_plan_list(machine->plan, RD_SLOW);
    if (!read_groups(machine, RD_KINDS, &machine->kind) || machine->kind.total > RD_MAX_KINDS) {
        return false;
    }
    if (text.length > 0
        && (text.length > 2 || !rd_number(text, &slow) || slow == 0 || slow > (uint64_t)machine->kind.total)) {
        return false;
    }
    machine->slow = (int)slow;
    return true;
}

static bool read_numa_nodes(struct rd_machine *machine)
{
    struct rd_cpus gpus;
    if (!read_groups(machine, RD_NODES, &machine->numa)
        || !rd_cpus_parse(rd_plan_list(machine->plan, RD_GPU_NODES), &gpus)
        || rd_cpus_next(&gpus, machine->numa.total - 1) >= 0) {
        return false;
    }
    for (int i = 0; i < machine->numa.count; i++) {
        struct rd_group *node = &machine->numa.at[i];
        node->gpu = rd_plan_get(machine->plan, RD_GPU, 0) != 0 && rd_cpus_has(&gpus, node->id);
    }
    return true;
}

static bool read_all(struct rd_machine *machine)
{
    struct rd_cpus whole;
    for (int key = RD_LIST_FIRST; key < RD_KEYS; key++) {
        if (machine->plan->has[key] && rd_plan_list(machine->plan, (enum rd_key)key).length == 0) {
            return false;
        }
    }
    __builtin_memset(&whole, 0xff, sizeof whole);
    if (!parse_within(rd_plan_list(machine->plan, RD_CPUS), &whole, &machine->known)) {
        return false;
    }
    /* Virtual machines number their CPUs otherwise. */
    struct rd_cpus unknown = machine->cpus;
    rd_cpus_drop(&unknown, &machine->known);
    return rd_cpus_next(&unknown, -1) < 0 && read_cores(machine) && read_numa_nodes(machine)
           && read_groups(machine, RD_SOCKETS, &machine->socket) && read_groups(machine, RD_L3, &machine->l3)
           && read_kinds(machine)
           && parse_within(rd_plan_list(machine->plan, RD_ISOLATED), &machine->known, &machine->isolated);
}

struct rd_machine *rd_machine_of(const struct rd_plan *plan, const struct rd_cpus *cpus)
{
    struct rd_machine *machine;
    /* One more of each than there are CPUs: a group that turns out to have none of them. */
    size_t each = rd_cpus_count(cpus) + 1;
    size_t size = sizeof *machine + each * (5 * sizeof *machine->core.at + sizeof *machine->slot);
    if (!plan->has[RD_CPUS] || (machine = rd_map(size)) == NULL) {
        return NULL;
    }
    machine->plan = plan;
    machine->size = size;
    machine->cpus = *cpus;
    struct rd_group *at = (void *)(machine + 1);
    machine->core.at = at;
    machine->numa.at = at + each;
    machine->l3.at = at + 2 * each;
    machine->socket.at = at + 3 * each;
    machine->kind.at = at + 4 * each;
    machine->slot = (void *)(at + 5 * each);
    if (!read_all(machine)) {
        rd_unmap(machine, size);
        return NULL;
    }
    return machine;
}
