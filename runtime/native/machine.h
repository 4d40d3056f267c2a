/* The machine that a process's exclusive CPUs are part of: machine.c reads it from the plan, placement.c decides by it. */
#ifndef RADDLE_MACHINE_H
#define RADDLE_MACHINE_H

#include "raddle.h"

#define RD_MAX_KINDS 16

/* CPUs that share something: a core, a NUMA node, a socket, a cache of level 3, their kind. */
struct rd_group {
    struct rd_cpus cpus;
    int id;   /* its place among all that the plan tells of */
    bool gpu; /* a NUMA node that has a GPU */
    /* Among the CPUs that are placed now: how many, and the group's place among its kind. */
    unsigned size;
    int rank;
};

/* Groups without any of the process's CPUs are only counted. */
struct rd_groups {
    struct rd_group *at;
    int count;
    int total;
};

/* A core's place in the order. */
struct rd_core_slot {
    const struct rd_group *core;
    int numa, l3, lowest;
};

struct rd_machine {
    const struct rd_plan *plan;
    size_t size;
    /* The process's CPUs: groups hold no others, and there is room for as many of each as there are CPUs. */
    struct rd_cpus cpus;
    struct rd_cpus known; /* all that the plan tells of */
    struct rd_cpus isolated;
    struct rd_groups core, numa, l3, socket, kind; /* kinds: the slowest first */
    int slow; /* so many of the kinds are left out together; 0: each is for itself */
    struct rd_core_slot *slot;
    uint16_t position[RD_MAX_CPUS]; /* by a core's place in the plan: its place here, plus one */
};

/* NULL where the plan doesn't tell of the CPUs, contradicts itself, or there is no memory. To be unmapped, `size` bytes. */
struct rd_machine *rd_machine_of(const struct rd_plan *plan, const struct rd_cpus *cpus);

#endif
