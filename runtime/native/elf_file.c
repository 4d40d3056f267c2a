/* Whether a file on disk is a shared object that this process's loader could load. Nothing of the file is trusted. */
#include "raddle.h"
#include "syscalls.h"

#include <elf.h>

/* More objects than any library needs versions of. */
#define MAX_VERSIONED 256

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

/* The place in the file of an address that it will have in memory; 0 where no segment holds it. */
static uint64_t file_offset(const Elf64_Phdr *headers, int count, uint64_t address)
{
    for (int i = 0; i < count; i++) {
        if (headers[i].p_type == PT_LOAD && address >= headers[i].p_vaddr
            && address < headers[i].p_vaddr + headers[i].p_filesz) {
            return address - headers[i].p_vaddr + headers[i].p_offset;
        }
    }
    return 0;
}

struct file {
    const unsigned char *bytes;
    uint64_t size;
    uint64_t strings; /* where its table of strings begins */
    bool (*needs)(const char *name, const char *version);
};

/* The string at an offset of the table; NULL where the file ends before it does. */
static const char *string_at(const struct file *file, uint64_t offset)
{
    if (offset >= file->size - file->strings) {
        return NULL;
    }
    uint64_t end = file->strings + offset;
    while (end < file->size && file->bytes[end] != '\0') {
        end++;
    }
    return end == file->size ? NULL : (const char *)file->bytes + file->strings + offset;
}

static bool holds(const struct file *file, uint64_t at, uint64_t length)
{
    return at % 4 == 0 && at < file->size && length <= file->size - at;
}

/* Whether the versions that it needs of others are there: the loader ends a process that lacks one. */
static bool versions_fit(const struct file *file, uint64_t at)
{
    for (int objects = 0; objects < MAX_VERSIONED; objects++) {
        if (!holds(file, at, sizeof(Elf64_Verneed))) {
            return false;
        }
        const Elf64_Verneed *need = (const Elf64_Verneed *)(const void *)(file->bytes + at);
        const char *name = string_at(file, need->vn_file);
        uint64_t next = at + need->vn_aux;
        for (int i = 0; i < need->vn_cnt; i++) {
            if (!holds(file, next, sizeof(Elf64_Vernaux))) {
                return false;
            }
            const Elf64_Vernaux *one = (const Elf64_Vernaux *)(const void *)(file->bytes + next);
            const char *version = string_at(file, one->vna_name);
            if (name == NULL || version == NULL
                || ((one->vna_flags & VER_FLG_WEAK) == 0 && !file->needs(name, version))) {
                return false;
            }
            next += one->vna_next;
        }
        if (need->vn_next == 0) {
            return true;
        }
        at += need->vn_next;
    }
    return false;
}

/* Whether everything that it needs is there: `size` bytes of the file. Nothing of the file is trusted. */
bool rd_elf_fits(const unsigned char *file, uint64_t size, bool (*needs)(const char *name, const char *version))
{
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)(const void *)file;
    if (size < sizeof *elf || __builtin_memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 || elf->e_type != ET_DYN
        || elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_machine != MACHINE || elf->e_phentsize != sizeof(Elf64_Phdr)
        || elf->e_phoff > size || elf->e_phnum > (size - elf->e_phoff) / sizeof(Elf64_Phdr) || elf->e_phoff % 8 != 0) {
        return false;
    }
    const Elf64_Phdr *headers = (const Elf64_Phdr *)(const void *)(file + elf->e_phoff);
    const Elf64_Phdr *dynamic = NULL;
    for (int i = 0; i < elf->e_phnum; i++) {
        if (headers[i].p_type == PT_DYNAMIC) {
            dynamic = &headers[i];
        }
        if (headers[i].p_type == PT_LOAD
            && (headers[i].p_offset > size || headers[i].p_filesz > size - headers[i].p_offset)) {
            return false;
        }
    }
    if (dynamic == NULL || dynamic->p_offset % 8 != 0 || dynamic->p_offset > size
        || dynamic->p_filesz > size - dynamic->p_offset) {
        return false;
    }
    const Elf64_Dyn *entries = (const Elf64_Dyn *)(const void *)(file + dynamic->p_offset);
    uint64_t count = dynamic->p_filesz / sizeof *entries, versions = 0;
    struct file all = {.bytes = file, .size = size, .needs = needs};
    for (uint64_t i = 0; i < count; i++) {
        if (entries[i].d_tag == DT_STRTAB) {
            all.strings = file_offset(headers, elf->e_phnum, entries[i].d_un.d_ptr);
        }
    }
    if (all.strings == 0 || all.strings >= size) {
        return false;
    }
    for (uint64_t i = 0; i < count && entries[i].d_tag != DT_NULL; i++) {
        if (entries[i].d_tag == DT_VERNEED) {
            versions = entries[i].d_un.d_ptr;
        }
        if (entries[i].d_tag == DT_NEEDED) {
            const char *name = string_at(&all, entries[i].d_un.d_val);
            if (name == NULL || !needs(name, NULL)) {
                return false;
            }
        }
    }
    return versions == 0 || versions_fit(&all, file_offset(headers, elf->e_phnum, versions));
}

bool rd_loadable(const char *path, bool (*needs)(const char *name, const char *version))
{
    uint64_t status[STAT_WORDS] = {0};
    long file = rd_syscall(NR_OPENAT, AT_FDCWD, (long)path, O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    if (rd_failed(file)) {
        return false;
    }
    long failed = rd_syscall(NR_FSTAT, file, (long)status, 0, 0, 0, 0);
    uint64_t size = status[STAT_SIZE];
    long memory = failed || size == 0 ? -1 : rd_syscall(NR_MMAP, 0, (long)size, 1, 2, file, 0);
    rd_syscall(NR_CLOSE, file, 0, 0, 0, 0, 0);
    if (rd_failed(memory)) {
        return false;
    }
    bool fits = rd_elf_fits((const unsigned char *)memory, size, needs);
    rd_unmap((void *)memory, size);
    return fits;
}
