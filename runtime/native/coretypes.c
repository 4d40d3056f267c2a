/* Which kinds of core a machine has, by the kernel's own word: a port of runtime/raddle/coretypes.py, which says why.
 * Kinds of near speed are one here, whatever their design. */
#include "machine.h"

/* x86: perf's PMUs of a hybrid machine. True where there is any of them. */
static bool by_pmu(struct rd_machine *machine, int *kinds)
{
    static const char *const folders[] = {"/sys/devices/cpu_core", "/sys/devices/cpu_atom",
                                          "/sys/devices/cpu_lowpower"};
    struct rd_kind *fast = &machine->kind[0], *slow = &machine->kind[1];
    for (int i = 0; i < 3; i++) {
        struct rd_cpus set;
        if (rd_machine_cpus(machine, folders[i], -1, "/cpus", &set)) {
            rd_cpus_keep(&set, &machine->online);
            rd_cpus_join(i == 0 ? &fast->cpus : &slow->cpus, &set);
        }
    }
    rd_cpus_drop(&slow->cpus, &fast->cpus);
    fast->speed = 2;
    slow->speed = 1;
    bool has_fast = rd_cpus_count(&fast->cpus) > 0, has_slow = rd_cpus_count(&slow->cpus) > 0;
    *kinds = has_fast && has_slow ? 2 : 0;
    return has_fast || has_slow;
}

static bool number_of(struct rd_machine *machine, int cpu, const char *name, uint64_t *number)
{
    struct rd_text text;
    return rd_machine_text(machine, RD_CPU_FOLDER "/cpu", cpu, name, &text) && rd_number(text, number);
}

/* Arm and RISC-V: the kernel's capacity of each CPU; those of at least seven eighths of the highest are one kind, and so
 * on with the rest. */
static int by_capacity(struct rd_machine *machine)
{
    int told = 0, kinds = 0;
    for (int cpu = rd_cpus_next(&machine->online, -1); cpu >= 0; cpu = rd_cpus_next(&machine->online, cpu)) {
        uint64_t capacity;
        if (number_of(machine, cpu, "/cpu_capacity", &capacity)) {
            machine->capacity[cpu] = capacity < UINT32_MAX ? (uint32_t)capacity + 1 : UINT32_MAX;
            told++;
        } else if (told == 0) {
            break;
        }
    }
    while (told > 0) {
        if (kinds == RD_MAX_KINDS) {
            return 0;
        }
        struct rd_kind *kind = &machine->kind[kinds++];
        kind->speed = 0;
        for (int cpu = 0; cpu < RD_MAX_CPUS; cpu++) {
            uint64_t capacity = machine->capacity[cpu];
            kind->speed = capacity > kind->speed + 1 ? capacity - 1 : kind->speed;
        }
        for (int cpu = 0; cpu < RD_MAX_CPUS; cpu++) {
            uint64_t capacity = machine->capacity[cpu];
            if (capacity > 0 && 8 * (capacity - 1) >= 7 * kind->speed) {
                machine->capacity[cpu] = 0;
                rd_cpus_add(&kind->cpus, cpu);
                told--;
            }
        }
    }
    return kinds;
}

#if defined(__x86_64__)
/* The sizes of the CPU's caches of level 1, "48K|32K"; false where one is unknown. */
static bool caches_of(struct rd_machine *machine, int cpu, char *to, size_t size)
{
    struct rd_out out = rd_out(to, size);
    struct rd_text text;
    for (char index = '0'; index <= '1'; index++) {
        char name[] = "/cache/index?/size";
        name[12] = index;
        if (!rd_machine_text(machine, RD_CPU_FOLDER "/cpu", cpu, name, &text)) {
            return false;
        }
        rd_put_text(&out, text);
        rd_put_char(&out, '|');
    }
    return true;
}

/* x86 without any PMU: two kinds where CPUs differ in frequency and have two shapes of caches. */
static int by_caches(struct rd_machine *machine)
{
    struct rd_names names;
    char shape[2][64], own[64];
    int kinds = 0;
    uint64_t khz, least = UINT64_MAX, most = 0;
    if (rd_names(&names, machine->root, "/sys/devices/cpu") != NULL) {
        rd_names_end(&names);
        return 0;
    }
    for (int cpu = rd_cpus_next(&machine->online, -1); cpu >= 0; cpu = rd_cpus_next(&machine->online, cpu)) {
        if (!number_of(machine, cpu, "/cpufreq/cpuinfo_max_freq", &khz) || khz < 1000) {
            return 0;
        }
        least = khz / 1000 < least ? khz / 1000 : least;
        most = khz / 1000 > most ? khz / 1000 : most;
    }
    if (least >= most) {
        return 0;
    }
    for (int cpu = rd_cpus_next(&machine->online, -1); cpu >= 0; cpu = rd_cpus_next(&machine->online, cpu)) {
        if (!caches_of(machine, cpu, own, sizeof own)) {
            return 0;
        }
        int kind = 0;
        while (kind < kinds && !rd_same(shape[kind], own)) {
            kind++;
        }
        if (kind == 2 || !number_of(machine, cpu, "/cpufreq/cpuinfo_max_freq", &khz)) {
            return 0;
        }
        struct rd_kind *found = &machine->kind[kind];
        if (kind == kinds) {
            kinds++;
            __builtin_memcpy(shape[kind], own, sizeof own);
            found->speed = 0;
        }
        found->speed = khz / 1000 > found->speed ? khz / 1000 : found->speed;
        rd_cpus_add(&found->cpus, cpu);
    }
    return machine->kind[0].speed != machine->kind[1].speed ? kinds : 0;
}
#endif

/* The cores that have CPUs in the set. */
static int cores_within(const struct rd_machine *machine, const struct rd_cpus *set)
{
    int cores = 0;
    for (int i = 0; i < machine->cores; i++) {
        cores += rd_cpus_overlap(&machine->core[i].cpus, set);
    }
    return cores;
}

int rd_one_kind(struct rd_machine *machine, struct rd_cpus *set)
{
    int64_t wanted = rd_plan_get(machine->plan, RD_CTYPE, -1);
    int kinds = 0;
    *set = machine->cpus;
    if (wanted == RD_CTYPE_ANY) {
        return 0;
    }
    if (!by_pmu(machine, &kinds)) {
        kinds = by_capacity(machine);
#if defined(__x86_64__)
        if (kinds == 0) {
            kinds = by_caches(machine);
        }
#endif
    }
    if (kinds < 2) {
        return 0;
    }
    const struct rd_kind *slowest = &machine->kind[0], *found = NULL;
    for (const struct rd_kind *kind = machine->kind; kind < machine->kind + kinds; kind++) {
        slowest = kind->speed < slowest->speed ? kind : slowest;
        if ((found == NULL || (kind->speed < found->speed) == (wanted == RD_CTYPE_EFFICIENT))
            && rd_cpus_overlap(&kind->cpus, &machine->cpus)) {
            found = kind;
        }
    }
    if (wanted >= 0) {
        if (found != NULL) {
            rd_cpus_keep(set, &found->cpus);
        }
        return kinds;
    }
    /* All but the slowest: Arm clusters come in many small kinds. But a slow kind of more than twice as many cores. */
    struct rd_cpus slow = machine->cpus;
    rd_cpus_keep(&slow, &slowest->cpus);
    rd_cpus_drop(set, &slow);
    int fast_cores = cores_within(machine, set);
    if (fast_cores == 0 || cores_within(machine, &slow) > 2 * fast_cores) {
        *set = slow;
    }
    return kinds;
}
