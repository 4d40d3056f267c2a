/* Reads cores, NUMA nodes, caches of level 3 and GPUs as sysfs.py and pci.py do, for a process's CPUs. The kernel's
 * sets are the facts; its numbers only name NUMA nodes and caches. What can't be read is unknown. */
#include "machine.h"

#define NODE_FOLDER "/sys/devices/system/node"
#define PCI_FOLDER "/sys/bus/pci/devices/"
#define MAX_PCI_DEVICES 4096

bool rd_machine_text(struct rd_machine *machine, const char *folder, int number, const char *name,
                     struct rd_text *text)
{
    char path[512];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, machine->root);
    rd_put(&out, folder);
    if (number >= 0) {
        rd_put_number(&out, number);
    }
    rd_put(&out, name);
    long length = rd_read_file(path, machine->text, sizeof machine->text);
    while (length > 0 && (machine->text[length - 1] == '\n' || machine->text[length - 1] == ' ')) {
        length--;
    }
    *text = (struct rd_text){machine->text, length < 0 ? 0 : (size_t)length};
    return length >= 0;
}

bool rd_machine_cpus(struct rd_machine *machine, const char *folder, int number, const char *name,
                     struct rd_cpus *set)
{
    struct rd_text text;
    return rd_machine_text(machine, folder, number, name, &text) && rd_cpus_parse(text, set);
}

static bool read_mask(struct rd_machine *machine, const char *folder, int number, const char *name,
                      struct rd_cpus *set)
{
    struct rd_text text;
    return rd_machine_text(machine, folder, number, name, &text) && rd_cpus_parse_mask(text, set);
}

/* ---- sets that CPUs claim to be in ---- */

static bool first_set(struct rd_machine *machine, int cpu, const char *const lists[2], const char *const masks[2],
                      struct rd_cpus *set)
{
    for (int i = 0; i < 2; i++) {
        if (rd_machine_cpus(machine, RD_CPU_FOLDER "/cpu", cpu, lists[i], set) && rd_cpus_count(set) > 0) {
            return true;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (read_mask(machine, RD_CPU_FOLDER "/cpu", cpu, masks[i], set) && rd_cpus_count(set) > 0) {
            return true;
        }
    }
    return false;
}

static bool core_of(struct rd_machine *machine, int cpu, struct rd_cpus *set)
{
    static const char *const lists[] = {"/topology/core_cpus_list", "/topology/thread_siblings_list"};
    static const char *const masks[] = {"/topology/core_cpus", "/topology/thread_siblings"};
    return first_set(machine, cpu, lists, masks, set);
}

static bool socket_of(struct rd_machine *machine, int cpu, struct rd_cpus *set)
{
    static const char *const lists[] = {"/topology/package_cpus_list", "/topology/core_siblings_list"};
    static const char *const masks[] = {"/topology/package_cpus", "/topology/core_siblings"};
    return first_set(machine, cpu, lists, masks, set);
}

/* The number of the CPU's cache of level 3, usually the fourth; -1 where it has none. */
static int l3_index(struct rd_machine *machine, int cpu)
{
    for (int try = 0; try < 10; try++) {
        char level[] = "/cache/index?/level";
        struct rd_text text;
        int index = try == 0 ? 3 : try - (try <= 3);
        level[12] = (char)('0' + index);
        if (rd_machine_text(machine, RD_CPU_FOLDER "/cpu", cpu, level, &text) && rd_text_is(text, "3")) {
            return index;
        }
    }
    return -1;
}

/* The set that shares it; one CPU of each core speaks for it. */
static bool l3_of(struct rd_machine *machine, int cpu, struct rd_cpus *set)
{
    char list[] = "/cache/index?/shared_cpu_list", mask[] = "/cache/index?/shared_cpu_map";
    int index = rd_cpus_has(&machine->speakers, cpu) ? l3_index(machine, cpu) : -1;
    list[12] = mask[12] = (char)('0' + index);
    return index >= 0
           && ((rd_machine_cpus(machine, RD_CPU_FOLDER "/cpu", cpu, list, set) && rd_cpus_count(set) > 0)
               || (read_mask(machine, RD_CPU_FOLDER "/cpu", cpu, mask, set) && rd_cpus_count(set) > 0));
}

/* Disjoint groups, sorted by lowest CPU: two CPUs are together when neither denies it. Taken CPUs leave `rest`. */
static int partition(struct rd_machine *machine, bool (*claim_of)(struct rd_machine *, int, struct rd_cpus *),
                     struct rd_group *group, struct rd_cpus *rest)
{
    int groups = 0;
    for (int cpu = rd_cpus_next(&machine->cpus, -1); cpu >= 0; cpu = rd_cpus_next(&machine->cpus, cpu)) {
        struct rd_cpus *claim = &machine->claim[machine->position[cpu]];
        if (claim_of(machine, cpu, claim)) {
            rd_cpus_add(claim, cpu);
            rd_cpus_keep(claim, &machine->cpus);
        } else {
            __builtin_memset(claim, 0, sizeof *claim);
        }
    }
    *rest = machine->cpus;
    for (int cpu = rd_cpus_next(rest, -1); cpu >= 0; cpu = rd_cpus_next(rest, cpu)) {
        struct rd_cpus *set = &group[groups].cpus;
        *set = machine->claim[machine->position[cpu]];
        if (!rd_cpus_has(set, cpu)) {
            continue;
        }
        rd_cpus_keep(set, rest);
        for (int other = rd_cpus_next(set, -1); other >= 0; other = rd_cpus_next(set, other)) {
            const struct rd_cpus *claim = &machine->claim[machine->position[other]];
            if (rd_cpus_has(claim, other) && !rd_cpus_has(claim, cpu)) {
                rd_cpus_remove(set, other);
            }
        }
        rd_cpus_drop(rest, set);
        groups++;
    }
    return groups;
}

int rd_machine_sockets(struct rd_machine *machine)
{
    struct rd_cpus rest;
    return partition(machine, socket_of, machine->socket, &rest);
}

/* Numbers the domains as the kernel does where that tells them apart, else by the lowest CPU of each. */
static void number_l3_domains(struct rd_machine *machine)
{
    bool known = true;
    for (int i = 0; i < machine->l3_domains; i++) {
        struct rd_group *group = &machine->l3[i];
        struct rd_cpus sharing = group->cpus;
        struct rd_text text;
        uint64_t id;
        rd_cpus_keep(&sharing, &machine->speakers);
        int cpu = rd_cpus_next(&sharing, -1);
        char name[] = "/cache/index?/id";
        name[12] = (char)('0' + l3_index(machine, cpu));
        known = known && rd_machine_text(machine, RD_CPU_FOLDER "/cpu", cpu, name, &text) && rd_number(text, &id)
                && id <= INT32_MAX;
        group->id = known ? (int)id : -1;
        for (int other = 0; other < i && known; other++) {
            known = machine->l3[other].id != group->id;
        }
    }
    for (int i = 0; i < machine->l3_domains && !known; i++) {
        struct rd_cpus sharing = machine->l3[i].cpus;
        rd_cpus_keep(&sharing, &machine->speakers);
        l3_of(machine, rd_cpus_next(&sharing, -1), &sharing);
        rd_cpus_keep(&sharing, &machine->online);
        machine->l3[i].id = rd_cpus_next(&sharing, -1);
    }
}

static void read_cores(struct rd_machine *machine)
{
    struct rd_cpus rest;
    machine->cores = partition(machine, core_of, machine->core, &rest);
    /* A CPU that nobody speaks for counts as a core. */
    for (int cpu = rd_cpus_next(&rest, -1); cpu >= 0; cpu = rd_cpus_next(&rest, cpu)) {
        struct rd_cpus *alone = &machine->core[machine->cores++].cpus;
        __builtin_memset(alone, 0, sizeof *alone);
        rd_cpus_add(alone, cpu);
    }
    for (int i = 0; i < machine->cores; i++) {
        rd_cpus_add(&machine->speakers, rd_cpus_next(&machine->core[i].cpus, -1));
    }
    machine->l3_domains = partition(machine, l3_of, machine->l3, &rest);
    number_l3_domains(machine);
}

/* ---- NUMA nodes and GPUs ---- */

/* The numbers n of the folder's entries <prefix>n. */
static void numbers_in(const struct rd_machine *machine, const char *folder, const char *prefix, struct rd_cpus *set)
{
    struct rd_names names;
    size_t length = rd_length(prefix);
    __builtin_memset(set, 0, sizeof *set);
    for (const char *name = rd_names(&names, machine->root, folder); name != NULL; name = rd_names_next(&names)) {
        uint64_t number;
        if (rd_starts(name, prefix) && rd_number(rd_text_of(name + length), &number) && number < RD_MAX_CPUS) {
            rd_cpus_add(set, (int)number);
        }
    }
}

/* The online CPUs of a NUMA node; by its links to them in a tree that has neither list nor mask. */
static bool node_cpus(struct rd_machine *machine, int node, struct rd_cpus *set)
{
    struct rd_cpus mask;
    bool told = rd_machine_cpus(machine, NODE_FOLDER "/node", node, "/cpulist", set);
    if ((!told || rd_cpus_count(set) == 0) && read_mask(machine, NODE_FOLDER "/node", node, "/cpumap", &mask)) {
        *set = mask;
        told = true;
    }
    if (!told) {
        char folder[64];
        struct rd_out out = rd_out(folder, sizeof folder);
        rd_put(&out, NODE_FOLDER "/node");
        rd_put_number(&out, node);
        numbers_in(machine, folder, "cpu", set);
        told = rd_cpus_count(set) > 0;
    }
    rd_cpus_keep(set, &machine->online);
    return told;
}

static void read_numa_nodes(struct rd_machine *machine)
{
    struct rd_cpus nodes, taken = {{0}};
    numbers_in(machine, NODE_FOLDER, "node", &nodes);
    for (int node = rd_cpus_next(&nodes, -1); node >= 0; node = rd_cpus_next(&nodes, node)) {
        /* There is room for one more than there are CPUs. */
        struct rd_group *group = &machine->numa[machine->numa_nodes];
        if (node_cpus(machine, node, &group->cpus) && !rd_cpus_overlap(&group->cpus, &taken)) {
            rd_cpus_join(&taken, &group->cpus);
            rd_cpus_keep(&group->cpus, &machine->cpus);
            group->id = node;
            machine->nodes_known++;
            machine->numa_nodes += rd_cpus_count(&group->cpus) > 0;
        }
    }
}

/* The file of a device on the PCI bus; empty where it can't be read. */
static struct rd_text device_text(struct rd_machine *machine, const char *device, const char *name)
{
    char path[300];
    struct rd_text text;
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, device);
    rd_put(&out, name);
    rd_machine_text(machine, PCI_FOLDER, -1, path, &text);
    return text;
}

static bool is_gpu(struct rd_machine *machine, const char *device)
{
    struct rd_text kind = device_text(machine, device, "/class");
    kind.length = kind.length < 6 ? kind.length : 6;
    bool vga = rd_text_is(kind, "0x0300"), accelerator = rd_text_is(kind, "0x1200");
    if (!vga && !accelerator && !rd_text_is(kind, "0x0302") && !rd_text_is(kind, "0x0380")) {
        return false;
    }
    struct rd_text vendor = device_text(machine, device, "/vendor");
    return rd_text_is(vendor, "0x1002") || (rd_text_is(vendor, "0x10de") && !accelerator)
           || (rd_text_is(vendor, "0x8086") && !accelerator && !vga);
}

static void read_gpus(struct rd_machine *machine)
{
    struct rd_names names;
    int devices = 0;
    for (const char *name = rd_names(&names, machine->root, PCI_FOLDER); name != NULL; name = rd_names_next(&names)) {
        uint64_t node;
        if (devices++ < MAX_PCI_DEVICES && is_gpu(machine, name)
            && rd_number(device_text(machine, name, "/numa_node"), &node)) {
            for (int i = 0; i < machine->numa_nodes; i++) {
                machine->numa[i].gpu |= (uint64_t)machine->numa[i].id == node;
            }
        }
    }
}

struct rd_machine *rd_machine_read(const char *root, const struct rd_plan *plan, const struct rd_cpus *cpus)
{
    size_t count = rd_cpus_count(cpus);
    struct rd_machine *machine;
    size_t size = sizeof *machine
                  + (count + 1) * (4 * sizeof *machine->core + sizeof *machine->seat + sizeof *machine->claim);
    machine = rd_map(size);
    if (machine == NULL) {
        return NULL;
    }
    machine->root = root;
    machine->plan = plan;
    machine->size = size;
    machine->cpus = *cpus;
    machine->core = (void *)(machine + 1);
    machine->numa = machine->core + count + 1;
    machine->l3 = machine->numa + count + 1;
    machine->socket = machine->l3 + count + 1;
    machine->seat = (void *)(machine->socket + count + 1);
    machine->claim = (void *)(machine->seat + count + 1);
    for (int cpu = rd_cpus_next(cpus, -1), at = 0; cpu >= 0; cpu = rd_cpus_next(cpus, cpu), at++) {
        machine->position[cpu] = (uint16_t)at;
    }
    if (!rd_machine_cpus(machine, RD_CPU_FOLDER, -1, "/online", &machine->online)
        || !rd_cpus_overlap(&machine->online, cpus)) {
        machine->online = *cpus;
    }
    read_cores(machine);
    read_numa_nodes(machine);
    if (machine->numa_nodes > 1 && rd_plan_get(plan, RD_GPU, 0) != 0) {
        read_gpus(machine);
    }
    if (!rd_machine_cpus(machine, RD_CPU_FOLDER, -1, "/isolated", &machine->isolated)) {
        __builtin_memset(&machine->isolated, 0, sizeof machine->isolated);
    }
    return machine;
}
