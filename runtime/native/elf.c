/* Symbols of the objects that the process has loaded, without dlsym: a plugin that was loaded with RTLD_LOCAL is seen
 * too, symbol versions don't matter, and glibc before 2.34 has dlsym only where libdl is loaded.
 *
 * dl_iterate_phdr is the one function that is asked of the loader. It is a weak reference: without it nothing is found,
 * and everything stays as it is. System V ABI, chapter 5; the GNU hash table by glibc's elf/dl-lookup.c.
 */
#include "raddle.h"

#include <elf.h>

struct object_info {
    Elf64_Addr base;
    const char *name;
    const Elf64_Phdr *headers;
    Elf64_Half count;
};

extern int dl_iterate_phdr(int (*callback)(struct object_info *, size_t, void *), void *data) __attribute__((weak));

/* The tables of one loaded object. */
struct tables {
    const Elf64_Sym *symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
    const Elf64_Half *versions;
    const Elf64_Dyn *dynamic;
};

static bool covers(const struct object_info *object, const void *address, unsigned flags)
{
    for (int i = 0; i < object->count; i++) {
        const Elf64_Phdr *header = &object->headers[i];
        Elf64_Addr start = object->base + header->p_vaddr;
        if (header->p_type == PT_LOAD && (header->p_flags & flags) == flags && (Elf64_Addr)address >= start
            && (Elf64_Addr)address < start + header->p_memsz) {
            return true;
        }
    }
    return false;
}

/* glibc writes addresses into the dynamic section, musl leaves offsets there, as does the kernel's vDSO. */
static const void *at(const struct object_info *object, Elf64_Addr value)
{
    const void *address = (const void *)(value < object->base ? object->base + value : value);
    return covers(object, address, 0) ? address : NULL;
}

static bool read_tables(const struct object_info *object, struct tables *tables)
{
    __builtin_memset(tables, 0, sizeof *tables);
    for (int i = 0; i < object->count; i++) {
        if (object->headers[i].p_type == PT_DYNAMIC) {
            tables->dynamic = at(object, object->base + object->headers[i].p_vaddr);
        }
    }
    if (tables->dynamic == NULL) {
        return false;
    }
    for (const Elf64_Dyn *entry = tables->dynamic; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            tables->symbols = at(object, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            tables->strings = at(object, entry->d_un.d_ptr);
            break;
        case DT_GNU_HASH:
            tables->gnu_hash = at(object, entry->d_un.d_ptr);
            break;
        case DT_HASH:
            tables->hash = at(object, entry->d_un.d_ptr);
            break;
        case DT_VERSYM:
            tables->versions = at(object, entry->d_un.d_ptr);
            break;
        default:
            break;
        }
    }
    return tables->symbols != NULL && tables->strings != NULL;
}

/* A defined function of this name that is not an older version kept for old programs. */
static bool matches(const struct tables *tables, uint32_t index, const char *name)
{
    const Elf64_Sym *symbol = &tables->symbols[index];
    unsigned type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);
    return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 && (type == STT_FUNC || type == STT_NOTYPE)
           && (bind == STB_GLOBAL || bind == STB_WEAK)
           && (tables->versions == NULL || (tables->versions[index] & 0x8000) == 0)
           && rd_same(tables->strings + symbol->st_name, name);
}

static uint32_t find_gnu(const struct tables *tables, const char *name)
{
    const uint32_t *table = tables->gnu_hash;
    uint32_t buckets = table[0], first = table[1], bloom = table[2];
    const uint32_t *bucket = table + 4 + bloom * 2;
    const uint32_t *chain = bucket + buckets;
    uint32_t hash = 5381;
    for (const char *one = name; *one != '\0'; one++) {
        hash = hash * 33 + (unsigned char)*one;
    }
    uint32_t index = buckets == 0 ? 0 : bucket[hash % buckets];
    for (; index >= first && index != 0; index++) {
        uint32_t theirs = chain[index - first];
        if ((theirs | 1) == (hash | 1) && matches(tables, index, name)) {
            return index;
        }
        if ((theirs & 1) != 0) {
            break;
        }
    }
    return 0;
}

static uint32_t find_sysv(const struct tables *tables, const char *name)
{
    const uint32_t *table = tables->hash;
    uint32_t buckets = table[0], count = table[1], hash = 0;
    for (const char *one = name; *one != '\0'; one++) {
        hash = (hash << 4) + (unsigned char)*one;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    uint32_t index = buckets == 0 ? 0 : table[2 + hash % buckets];
    for (uint32_t steps = 0; index != 0 && index < count && steps < count; steps++) {
        if (matches(tables, index, name)) {
            return index;
        }
        index = table[2 + buckets + index];
    }
    return 0;
}

static void *find_in(const struct object_info *object, const char *name)
{
    struct tables tables;
    if (!read_tables(object, &tables)) {
        return NULL;
    }
    uint32_t index = tables.gnu_hash != NULL ? find_gnu(&tables, name)
                     : tables.hash != NULL   ? find_sysv(&tables, name)
                                             : 0;
    if (index == 0) {
        return NULL;
    }
    void *address = (void *)(object->base + tables.symbols[index].st_value);
    return covers(object, address, 0) ? address : NULL;
}

struct search {
    const char *name;
    const void *caller;
    void *first;
    void *linked;
    /* What the caller needs: its own list of names. */
    const Elf64_Dyn *needed;
    const char *strings;
    bool passed;
};

/* The name under which others need this object: its DT_SONAME, else the name of its file. */
static const char *own_name(const struct object_info *object, const struct tables *tables)
{
    for (const Elf64_Dyn *entry = tables->dynamic; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SONAME) {
            return tables->strings + entry->d_un.d_val;
        }
    }
    return rd_base_name(object->name == NULL ? "" : object->name);
}

static bool is_needed(const struct search *search, const char *name)
{
    for (const Elf64_Dyn *entry = search->needed; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_NEEDED && rd_same(rd_base_name(search->strings + entry->d_un.d_val), name)) {
            return true;
        }
    }
    return false;
}

static int find_caller(struct object_info *object, size_t size, void *data)
{
    (void)size;
    struct search *search = data;
    struct tables tables;
    if (!covers(object, search->caller, PF_X) || !read_tables(object, &tables)) {
        return 0;
    }
    search->needed = tables.dynamic;
    search->strings = tables.strings;
    return 1;
}

static int find_symbol(struct object_info *object, size_t size, void *data)
{
    (void)size;
    struct search *search = data;
    struct tables tables;
    bool is_caller = search->caller != NULL && covers(object, search->caller, PF_X);
    search->passed |= is_caller;
    if (covers(object, (const void *)&rd_symbol, PF_X)) {
        return 0;
    }
    void *found = find_in(object, search->name);
    if (found == NULL) {
        return 0;
    }
    if (search->first == NULL) {
        search->first = found;
    }
    bool linked = search->needed != NULL && read_tables(object, &tables)
                  && (is_caller || is_needed(search, own_name(object, &tables)));
    /* Two of one name: the loader puts what an object needs behind it. */
    if (linked && (search->linked == NULL || !search->passed)) {
        search->linked = found;
    }
    return linked && search->passed;
}

void *rd_symbol(const char *name, const void *caller)
{
    if (dl_iterate_phdr == NULL) {
        return NULL;
    }
    struct search search = {.name = name, .caller = caller};
    if (caller != NULL) {
        dl_iterate_phdr(find_caller, &search);
    }
    dl_iterate_phdr(find_symbol, &search);
    return search.linked != NULL ? search.linked : search.first;
}

struct region {
    const void *address;
    size_t readable;
    uintptr_t code_start, code_end;
};

static int look_at(struct object_info *object, size_t size, void *data)
{
    (void)size;
    struct region *region = data;
    for (int i = 0; i < object->count; i++) {
        const Elf64_Phdr *header = &object->headers[i];
        Elf64_Addr start = object->base + header->p_vaddr, end = start + header->p_memsz;
        Elf64_Addr address = (Elf64_Addr)region->address;
        if (header->p_type == PT_LOAD && address >= start && address < end) {
            region->code_start = (header->p_flags & PF_X) != 0 ? start : 0;
            region->code_end = (header->p_flags & PF_X) != 0 ? end : 0;
            region->readable = (header->p_flags & PF_R) != 0 ? end - address : 0;
            return 1;
        }
    }
    return 0;
}

bool rd_code_around(const void *address, uintptr_t *start, uintptr_t *end)
{
    struct region region = {.address = address};
    if (dl_iterate_phdr == NULL || dl_iterate_phdr(look_at, &region) == 0 || region.code_end == 0) {
        return false;
    }
    *start = region.code_start;
    *end = region.code_end;
    return true;
}

size_t rd_readable(const void *address)
{
    struct region region = {.address = address};
    return dl_iterate_phdr != NULL && dl_iterate_phdr(look_at, &region) != 0 ? region.readable : 0;
}

/* libtcmalloc_minimal.so.4 and libmimalloc-secure.so are the same library, built otherwise. */
static bool has_name(const struct object_info *object, const char *wanted)
{
    const char *name = rd_base_name(object->name == NULL ? "" : object->name);
    size_t length = rd_length(wanted);
    return rd_starts(name, wanted)
           && (name[length] == '\0' || name[length] == '.' || name[length] == '_' || name[length] == '-');
}

static int compare_names(struct object_info *object, size_t size, void *data)
{
    (void)size;
    bool found = false;
    for (const char *const *name = data; *name != NULL && !found; name++) {
        found = has_name(object, *name);
    }
    return found;
}

static int look_for_own(struct object_info *object, size_t size, void *data)
{
    (void)size;
    const char **file = data;
    bool own = covers(object, (const void *)&rd_symbol, PF_X);
    if (own) {
        *file = object->name;
    }
    return own || has_name(object, "libc") || has_name(object, "ld-musl");
}

const char *rd_preloaded_from(void)
{
    const char *file = NULL;
    if (dl_iterate_phdr != NULL) {
        dl_iterate_phdr(look_for_own, &file);
    }
    return file;
}

struct export {
    const char *symbol;
    const char *library;
    bool passed; /* the program itself, which is the first */
    void *found;
};

static int look_for_export(struct object_info *object, size_t size, void *data)
{
    (void)size;
    struct export *wanted = data;
    bool asked = !wanted->passed || rd_starts(rd_base_name(object->name == NULL ? "" : object->name), wanted->library);
    wanted->passed = true;
    wanted->found = asked ? find_in(object, wanted->symbol) : NULL;
    return wanted->found != NULL;
}

bool rd_exports(const char *symbol, const char *library)
{
    struct export wanted = {.symbol = symbol, .library = library};
    return dl_iterate_phdr != NULL && dl_iterate_phdr(look_for_export, &wanted) != 0;
}

static uint64_t strings_length(const struct tables *tables)
{
    uint64_t length = 0;
    for (const Elf64_Dyn *entry = tables->dynamic; entry->d_tag != DT_NULL; entry++) {
        length = entry->d_tag == DT_STRSZ ? entry->d_un.d_val : length;
    }
    return length;
}

/* The names of what an object uses of others are in its table of strings, which the loader's and the libc's have too. */
static int look_for_use(struct object_info *object, size_t size, void *data)
{
    (void)size;
    const char *symbol = data, *name = rd_base_name(object->name == NULL ? "" : object->name);
    struct tables tables;
    if (rd_starts(name, "ld-linux") || rd_starts(name, "libc.") || rd_starts(name, "libc-") || rd_starts(name, "libdl")
        || !read_tables(object, &tables)) {
        return 0;
    }
    uint64_t length = strings_length(&tables), needed = rd_length(symbol);
    for (uint64_t i = 0; i + needed < length; i++) {
        if (tables.strings[i] == *symbol && rd_same(tables.strings + i, symbol)) {
            return 1;
        }
    }
    return 0;
}

bool rd_one_uses(const char *symbol)
{
    return dl_iterate_phdr != NULL && dl_iterate_phdr(look_for_use, (void *)(uintptr_t)symbol) != 0;
}

struct versioned {
    const char *name;
    const char *version;
    bool lacks;
};

/* An object names the versions that it defines in its table of strings, among others. */
static int look_for_version(struct object_info *object, size_t size, void *data)
{
    (void)size;
    struct versioned *wanted = data;
    struct tables tables;
    if (!read_tables(object, &tables) || !rd_same(own_name(object, &tables), wanted->name)) {
        return 0;
    }
    uint64_t length = strings_length(&tables), needed = rd_length(wanted->version);
    wanted->lacks = true;
    for (uint64_t i = 0; i + needed < length && wanted->lacks; i++) {
        wanted->lacks = !rd_same(tables.strings + i, wanted->version);
    }
    return 1;
}

bool rd_has_version(const char *name, const char *version)
{
    struct versioned wanted = {name, version, false};
    if (dl_iterate_phdr != NULL) {
        dl_iterate_phdr(look_for_version, &wanted);
    }
    return !wanted.lacks;
}

bool rd_one_is_loaded(const char *const *names)
{
    return dl_iterate_phdr != NULL && dl_iterate_phdr(compare_names, (void *)(uintptr_t)names) != 0;
}

bool rd_is_loaded(const char *name)
{
    const char *names[] = {name, NULL};
    return rd_one_is_loaded(names);
}
