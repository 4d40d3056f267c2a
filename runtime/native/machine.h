/* What the kernel tells of a process's CPUs: topology.c and coretypes.c read it, placement.c decides by it. Ports of
 * what placing needs of runtime/raddle/sysfs.py, pci.py and coretypes.py. */
#ifndef RADDLE_MACHINE_H
#define RADDLE_MACHINE_H

#include "raddle.h"

#define RD_CPU_FOLDER "/sys/devices/system/cpu"
#define RD_MAX_KINDS 16

/* CPUs that share something: a core, a NUMA node, a cache of level 3. */
struct rd_group {
    struct rd_cpus cpus;
    int id;   /* of a NUMA node or a cache */
    bool gpu; /* a NUMA node that has a GPU */
    /* Among the CPUs that are placed now: how many, and the group's place among its kind. */
    unsigned size;
    int rank;
};

/* A kind of core. */
struct rd_kind {
    struct rd_cpus cpus;
    uint64_t speed;
};

/* A core's place in the order. */
struct rd_seat {
    const struct rd_group *core;
    int numa, l3, lowest;
};

struct rd_machine {
    const char *root; /* "" for the real /sys */
    const struct rd_plan *plan;
    size_t size;
    /* The process's CPUs: groups hold no others, and there is room for as many of each as there are CPUs. */
    struct rd_cpus cpus;
    struct rd_cpus online; /* the machine's; the process's where that isn't told */
    struct rd_cpus isolated;
    struct rd_cpus speakers; /* the lowest CPU of each core */
    struct rd_group *core, *numa, *l3, *socket;
    struct rd_seat *seat;
    int cores, numa_nodes, l3_domains;
    int nodes_known; /* NUMA nodes of the machine, those without the process's CPUs counted */
    struct rd_cpus *claim; /* what each CPU says of its siblings, by position; empty: nothing */
    uint16_t position[RD_MAX_CPUS];
    uint32_t capacity[RD_MAX_CPUS]; /* the kernel's, plus one; 0: not told */
    struct rd_kind kind[RD_MAX_KINDS];
    char text[65536];
};

/* Everything but the kinds of core; NULL where there is no memory. To be unmapped, `size` bytes. */
struct rd_machine *rd_machine_read(const char *root, const struct rd_plan *plan, const struct rd_cpus *cpus);
/* The text of the file <root><folder><number><name> without white space at its end; a negative number is left out.
 * False where it can't be read. */
bool rd_machine_text(struct rd_machine *machine, const char *folder, int number, const char *name,
                     struct rd_text *text);
/* The set in a list file. */
bool rd_machine_cpus(struct rd_machine *machine, const char *folder, int number, const char *name,
                     struct rd_cpus *set);
/* Reads the sockets, and says how many there are. */
int rd_machine_sockets(struct rd_machine *machine);
/* The machine's CPUs of the kind that the plan wants; all of the process's where there is one kind or any will do. How
 * many kinds there are to keep apart, 0 where that is one or any will do. */
int rd_one_kind(struct rd_machine *machine, struct rd_cpus *set);

#endif
