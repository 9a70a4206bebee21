/* SPDX-License-Identifier: Apache-2.0
 *
 * The symbols of a perf.data file for those who do not find them in it: an ELF shared
 * object, without code, with a symbol for each function at the address that view_perf.c
 * gives it. hotspot reads it.
 *
 *     header | program header | symbols | names | names of sections | sections
 */
#include "utf8.h"
#include "view_perf.h"

#include <elf.h>
#include <string.h>

enum { TEXT = 1, SYMBOLS, NAMES, SECTION_NAMES, SECTIONS };
static const char section_names[] = "\0.text\0.symtab\0.strtab\0.shstrtab";
static const uint32_t section_name_at[SECTIONS] = {0, 1, 7, 15, 23};

static const char *name_of(const struct ember_profile *profile, uint32_t function)
{
    const char *name = function < EMBER_PERF_PSEUDO_FUNCTIONS
                           ? ember_perf_pseudo_name(function)
                           : profile->functions[function - EMBER_PERF_PSEUDO_FUNCTIONS].text;
    return name[0] ? name : "?";
}

static size_t cut(const char *name)
{
    return ember_utf8_prefix(name, strlen(name), EMBER_PERF_MOST_NAME);
}

static void write_program_header(struct ember_sink *sink, uint64_t image_size)
{
    Elf64_Phdr load = {
        .p_type = PT_LOAD,
        .p_flags = PF_R | PF_X,
        .p_filesz = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr),
        .p_memsz = image_size,
        .p_align = EMBER_PERF_TEXT,
    };
    ember_sink_bytes(sink, &load, sizeof load);
}

static void write_symbols(struct ember_sink *sink, const struct ember_profile *profile,
                          uint32_t count)
{
    Elf64_Sym symbol = {0};
    uint64_t name_at = 1;
    ember_sink_bytes(sink, &symbol, sizeof symbol);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = name_of(profile, i);
        symbol = (Elf64_Sym){
            .st_name = (uint32_t)name_at,
            .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
            .st_shndx = TEXT,
            .st_value = ember_perf_address(i) - EMBER_PERF_BASE,
            .st_size = EMBER_PERF_FUNCTION_SIZE,
        };
        ember_sink_bytes(sink, &symbol, sizeof symbol);
        name_at += ember_utf8_written_size(name, cut(name)) + 1;
    }
}

static void write_names(struct ember_sink *sink, const struct ember_profile *profile,
                        uint32_t count)
{
    ember_sink_bytes(sink, "", 1);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = name_of(profile, i);
        ember_utf8_write(sink, name, cut(name));
        ember_sink_bytes(sink, "", 1);
    }
}

/* Bytes since `begin`, at a multiple of 8 from now on. */
static uint64_t align(struct ember_sink *sink, size_t begin)
{
    static const char zeros[8];
    ember_sink_bytes(sink, zeros, -(sink->size - begin) % 8);
    return sink->size - begin;
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    uint32_t count = EMBER_PERF_PSEUDO_FUNCTIONS + profile->function_count;
    size_t begin = sink->size;
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_phoff = sizeof header,
        .e_ehsize = sizeof header,
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = 1,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = SECTIONS,
        .e_shstrndx = SECTION_NAMES,
    };
    Elf64_Shdr sections[SECTIONS] = {
        [TEXT] = {.sh_type = SHT_NOBITS,
                  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                  .sh_addr = EMBER_PERF_TEXT,
                  .sh_offset = EMBER_PERF_TEXT,
                  .sh_size = (uint64_t)count * EMBER_PERF_FUNCTION_SIZE,
                  .sh_addralign = 16},
        [SYMBOLS] = {.sh_type = SHT_SYMTAB,
                     .sh_link = NAMES,
                     .sh_info = 1,
                     .sh_addralign = 8,
                     .sh_entsize = sizeof(Elf64_Sym)},
        [NAMES] = {.sh_type = SHT_STRTAB, .sh_addralign = 1},
        [SECTION_NAMES] = {.sh_type = SHT_STRTAB, .sh_addralign = 1},
    };
    (void)options;
    ember_sink_bytes(sink, &header, sizeof header);
    write_program_header(sink, ember_perf_image_size(profile));
    sections[SYMBOLS].sh_offset = align(sink, begin);
    write_symbols(sink, profile, count);
    sections[NAMES].sh_offset = align(sink, begin);
    write_names(sink, profile, count);
    sections[SECTION_NAMES].sh_offset = align(sink, begin);
    ember_sink_bytes(sink, section_names, sizeof section_names);
    header.e_shoff = align(sink, begin);
    sections[SYMBOLS].sh_size = (count + 1) * sizeof(Elf64_Sym);
    sections[NAMES].sh_size = sections[SECTION_NAMES].sh_offset - sections[NAMES].sh_offset;
    sections[SECTION_NAMES].sh_size = sizeof section_names;
    for (int i = 0; i < SECTIONS; i++)
        sections[i].sh_name = section_name_at[i];
    ember_sink_bytes(sink, sections, sizeof sections);
    if (!sink->failed)
        memcpy(sink->data + begin, &header, sizeof header);
}

const struct ember_view ember_view_perf_symbols = {
    .name = "perf_symbols",
    .extension = "perf.symbols",
    .write = write_view,
};
