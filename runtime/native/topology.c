/* Which CPUs each worker of a pool goes to: a port of runtime/raddle/placement.py and of the part of sysfs.py that it
 * needs. Read only where the CPUs are the exclusive ones that the plan expects, and once for the same CPUs. */
#include "raddle.h"

#define MAX_CORES 1024
#define MAX_NUMA_NODES 256
#define CPU_FOLDER "/sys/devices/system/cpu/cpu"
#define NODE_FOLDER "/sys/devices/system/node/"

struct core {
    struct rd_cpus cpus;
    int lowest;
    int numa; /* index into numa, -1 unknown */
    int l3;   /* index into l3, -1 unknown */
};

/* CPUs that share something. */
struct group {
    struct rd_cpus cpus;
    uint64_t id;
    unsigned size; /* how many of the process's CPUs are in it */
};

struct machine {
    struct core core[MAX_CORES];
    struct group numa[MAX_NUMA_NODES];
    struct group l3[MAX_CORES];
    int order[MAX_CORES];
    int cores, numa_nodes, l3_domains;
    char text[65536];
};

static bool read_path(struct machine *machine, const char *root, const char *folder, int64_t number, const char *name,
                      struct rd_text *text)
{
    char path[512];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, root);
    rd_put(&out, folder);
    if (number >= 0) {
        rd_put_number(&out, number);
    }
    rd_put(&out, name);
    long length = rd_read_file(path, machine->text, sizeof machine->text);
    while (length > 0 && machine->text[length - 1] == '\n') {
        length--;
    }
    *text = (struct rd_text){machine->text, length < 0 ? 0 : (size_t)length};
    return length > 0;
}

static bool read_set(struct machine *machine, const char *root, const char *folder, int64_t number, const char *name,
                     struct rd_cpus *set)
{
    struct rd_text text;
    return read_path(machine, root, folder, number, name, &text) && rd_cpus_parse(text, set);
}

static void keep_only(struct rd_cpus *set, const struct rd_cpus *other)
{
    for (unsigned i = 0; i < RD_MAX_CPUS / 64; i++) {
        set->word[i] &= other->word[i];
    }
}

static bool overlap(const struct rd_cpus *one, const struct rd_cpus *other)
{
    for (unsigned i = 0; i < RD_MAX_CPUS / 64; i++) {
        if ((one->word[i] & other->word[i]) != 0) {
            return true;
        }
    }
    return false;
}

static void add_group(struct group *group, uint64_t id, const struct rd_cpus *cpus)
{
    keep_only(&group->cpus, cpus);
    group->id = id;
    group->size = rd_cpus_count(&group->cpus);
}

static void read_numa_nodes(struct machine *machine, const char *root, const struct rd_cpus *cpus)
{
    struct rd_cpus nodes;
    if (!read_set(machine, root, NODE_FOLDER, -1, "online", &nodes)) {
        return;
    }
    for (int node = rd_cpus_next(&nodes, -1); node >= 0 && machine->numa_nodes < MAX_NUMA_NODES;
         node = rd_cpus_next(&nodes, node)) {
        struct group *group = &machine->numa[machine->numa_nodes];
        if (read_set(machine, root, NODE_FOLDER "node", node, "/cpulist", &group->cpus)) {
            add_group(group, (uint64_t)node, cpus);
            machine->numa_nodes++;
        }
    }
}

/* The domain of the CPU's cache of level 3; -1 where it has none. */
static int l3_of(struct machine *machine, const char *root, int cpu, const struct rd_cpus *cpus)
{
    for (int i = 0; i < machine->l3_domains; i++) {
        if (rd_cpus_has(&machine->l3[i].cpus, cpu)) {
            return i;
        }
    }
    for (char index = '3'; index >= '0' && machine->l3_domains < MAX_CORES; index--) {
        char level[] = "/cache/index?/level", shared[] = "/cache/index?/shared_cpu_list", id[] = "/cache/index?/id";
        level[12] = shared[12] = id[12] = index;
        struct rd_text text;
        uint64_t number;
        struct group *group = &machine->l3[machine->l3_domains];
        if (!read_path(machine, root, CPU_FOLDER, cpu, level, &text) || !rd_text_is(text, "3")
            || !read_set(machine, root, CPU_FOLDER, cpu, shared, &group->cpus)) {
            continue;
        }
        rd_cpus_add(&group->cpus, cpu);
        if (!read_path(machine, root, CPU_FOLDER, cpu, id, &text) || !rd_number(text, &number)) {
            number = (uint64_t)cpu;
        }
        add_group(group, number, cpus);
        return machine->l3_domains++;
    }
    return -1;
}

static void read_cores(struct machine *machine, const char *root, const struct rd_cpus *cpus)
{
    struct rd_cpus done = {{0}};
    for (int cpu = rd_cpus_next(cpus, -1); cpu >= 0 && machine->cores < MAX_CORES; cpu = rd_cpus_next(cpus, cpu)) {
        if (rd_cpus_has(&done, cpu)) {
            continue;
        }
        struct core *core = &machine->core[machine->cores];
        if (!read_set(machine, root, CPU_FOLDER, cpu, "/topology/core_cpus_list", &core->cpus)
            && !read_set(machine, root, CPU_FOLDER, cpu, "/topology/thread_siblings_list", &core->cpus)) {
            __builtin_memset(&core->cpus, 0, sizeof core->cpus);
        }
        rd_cpus_add(&core->cpus, cpu);
        keep_only(&core->cpus, cpus);
        for (unsigned i = 0; i < RD_MAX_CPUS / 64; i++) {
            core->cpus.word[i] &= ~done.word[i];
            done.word[i] |= core->cpus.word[i];
        }
        core->lowest = cpu;
        core->l3 = l3_of(machine, root, cpu, cpus);
        core->numa = -1;
        for (int i = 0; i < machine->numa_nodes && core->numa < 0; i++) {
            core->numa = overlap(&machine->numa[i].cpus, &core->cpus) ? i : -1;
        }
        machine->cores++;
    }
}

/* Whether the group comes first: most of the set, then the lower id; a core in none comes last. */
static int compare_groups(const struct group *groups, int one, int other)
{
    if (one == other) {
        return 0;
    }
    if (one < 0 || other < 0) {
        return one < 0 ? 1 : -1;
    }
    if (groups[one].size != groups[other].size) {
        return groups[one].size > groups[other].size ? -1 : 1;
    }
    return groups[one].id < groups[other].id ? -1 : groups[one].id > groups[other].id;
}

static bool comes_first(const struct machine *machine, int one, int other)
{
    const struct core *left = &machine->core[one], *right = &machine->core[other];
    int order = compare_groups(machine->numa, left->numa, right->numa);
    if (order == 0) {
        order = compare_groups(machine->l3, left->l3, right->l3);
    }
    return order != 0 ? order < 0 : left->lowest < right->lowest;
}

static void sort_cores(struct machine *machine)
{
    for (int i = 0; i < machine->cores; i++) {
        int at = i;
        for (; at > 0 && comes_first(machine, i, machine->order[at - 1]); at--) {
            machine->order[at] = machine->order[at - 1];
        }
        machine->order[at] = i;
    }
}

/* The nth place for a thread: cores in order, or, where all threads of a core are wanted, first one CPU of each core,
 * then their siblings. */
static bool place(const struct machine *machine, int nth, bool whole_cores, struct rd_cpus *set,
                  const struct core **core)
{
    if (whole_cores) {
        *core = &machine->core[machine->order[nth]];
        *set = (*core)->cpus;
        return true;
    }
    for (int depth = 0; depth < RD_MAX_CPUS; depth++) {
        bool any = false;
        for (int i = 0; i < machine->cores; i++) {
            *core = &machine->core[machine->order[i]];
            int cpu = -1;
            for (int k = 0; k <= depth; k++) {
                cpu = rd_cpus_next(&(*core)->cpus, cpu);
                if (cpu < 0) {
                    break;
                }
            }
            if (cpu < 0) {
                continue;
            }
            any = true;
            if (nth-- == 0) {
                __builtin_memset(set, 0, sizeof *set);
                rd_cpus_add(set, cpu);
                return true;
            }
        }
        if (!any) {
            break;
        }
    }
    return false;
}

bool rd_affinity_groups(const char *root, const struct rd_cpus *cpus, int threads, int affinity, struct rd_cpus *group)
{
    if (threads < 2 || affinity == RD_AFF_NONE || (unsigned)threads > rd_cpus_count(cpus)) {
        return false;
    }
    struct machine *machine = rd_map(sizeof *machine);
    if (machine == NULL) {
        return false;
    }
    read_numa_nodes(machine, root, cpus);
    read_cores(machine, root, cpus);
    sort_cores(machine);
    bool placed = true;
    /* The first place is left to the caller, who is never pinned. */
    for (int i = 1; i < threads && placed; i++) {
        const struct core *core;
        placed = place(machine, i, threads <= machine->cores, &group[i - 1], &core);
        if (placed && affinity == RD_AFF_NUMA) {
            group[i - 1] = core->numa < 0 ? *cpus : machine->numa[core->numa].cpus;
        }
    }
    rd_unmap(machine, sizeof *machine);
    return placed;
}
