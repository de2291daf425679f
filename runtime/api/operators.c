/* operators.c - registering custom operators: checks of their tables, and plug-ins. */
#include "runtime/api/operators.h"

#include "ir/base/input_file.h"
#include "runtime/api/api.h"
#include "runtime/backend/memory.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- checks ----------------------------------------------------------------------------------- */

/* A table, and how a fault in it is reported. */
typedef struct entry {
    ampc_operator table;
    ir_colour colour;
    diag *d;
    diag_loc loc;
    ampc_status faulty;
} entry;

static bool is_name(const char *s, const char *others)
{
    if (!isalpha((unsigned char)*s)) return false;
    while (isalnum((unsigned char)*s) || (*s && strchr(others, *s))) s++;
    return !*s;
}

static ampc_status check_names(const entry *e)
{
    const ampc_operator *t = &e->table;
    if (!is_name(t->name, "_.")) return diag_error(e->d, e->faulty, e->loc, "not the name of an operator");
    if (strcmp(t->domain, "ai.onnx") == 0)
        return diag_error(e->d, e->faulty, e->loc, "operators of ONNX's own domain cannot be registered");
    if (!is_name(t->domain, "_.-"))
        return diag_error(e->d, e->faulty, e->loc, "'%s' is not the name of a domain", t->domain);
    return t->since >= 0 ? AMPC_OK : diag_error(e->d, e->faulty, e->loc, "since is negative");
}

static ampc_status check_functions(const entry *e)
{
    const ampc_operator *t = &e->table;
    if (!t->infer) return diag_error(e->d, e->faulty, e->loc, "infer is NULL");
    if (!t->forward_cpu && !t->forward_cuda)
        return diag_error(e->d, e->faulty, e->loc, "no device has a forward function");
    if ((t->gradient_cpu && !t->forward_cpu) || (t->gradient_cuda && !t->forward_cuda))
        return diag_error(e->d, e->faulty, e->loc, "a gradient needs the forward function of the same device");
    if (t->gradient_operands && !t->gradient_cpu && !t->gradient_cuda)
        return diag_error(e->d, e->faulty, e->loc, "gradient_operands are set, but no device has a gradient");
    return AMPC_OK;
}

static ampc_status check_precision(entry *e)
{
    const ampc_operator *t = &e->table;
    const unsigned low = 1u << AMPC_F16 | 1u << AMPC_BF16, all = low | 1u << AMPC_F32 | 1u << AMPC_F64;
    int word = t->colour ? ir_words_find(ir_words_colour, t->colour) : (int)IR_BLACK;
    if (word < 0 || word == (int)IR_CLEAR)
        return diag_error(e->d, e->faulty, e->loc, "'%s' is not a colour: expected white, black or gray", t->colour);
    if (t->float_types & ~all) return diag_error(e->d, e->faulty, e->loc, "float_types has bits of other types");
    if (t->float_types && !(t->float_types & 1u << AMPC_F32))
        return diag_error(e->d, e->faulty, e->loc, "float_types must include f32");
    if (word == (int)IR_WHITE && !(t->float_types & low))
        return diag_error(e->d, e->faulty, e->loc, "a white operator must allow f16 or bf16");
    e->colour = (ir_colour)word;
    return AMPC_OK;
}

/* ---- registering ------------------------------------------------------------------------------ */

static void free_operator(custom_op *op)
{
    if (!op) return;
    free((char *)(uintptr_t)op->table.domain);
    free((char *)(uintptr_t)op->table.name);
    free(op);
}

/* Removes what was registered after `last`. */
static void free_until(custom_ops *ops, custom_op *last)
{
    for (custom_op *op = ops->first, *next; op != last; op = next) {
        next = op->next;
        free_operator(op);
    }
    ops->first = last;
}

void operators_free(custom_ops *ops) { free_until(ops, NULL); }

static ampc_status add(custom_ops *ops, const entry *e)
{
    const ampc_operator *t = &e->table;
    custom_op *op = calloc(1, sizeof *op);
    if (!op) return rt_no_memory(e->d);
    *op = (custom_op){.table = *t, .colour = e->colour, .next = ops->first};
    op->table.domain = strdup(t->domain);
    op->table.name = strdup(t->name);
    op->table.colour = NULL;
    if (!op->table.since) op->table.since = 1;
    if (!op->table.float_types) op->table.float_types = 1u << AMPC_F32;
    if (!op->table.domain || !op->table.name) {
        free_operator(op);
        return rt_no_memory(e->d);
    }
    ops->first = op;
    return AMPC_OK;
}

/* Adds the operator of a table with names. */
static ampc_status enter(custom_ops *ops, entry *e)
{
    const ampc_operator *t = &e->table;
    TRY(check_names(e));
    TRY(check_functions(e));
    TRY(check_precision(e));
    const int since = t->since ? t->since : 1;
    const custom_op *before = custom_find(ops, t->domain, t->name, since);
    if (before && before->table.since == since)
        return diag_error(e->d, AMPC_USAGE, e->loc, "operator %s::%s of version %d is registered already", t->domain,
                          t->name, since);
    return add(ops, e);
}

ampc_status operators_register(custom_ops *ops, const ampc_operator *table, diag *d)
{
    entry e = {.d = d, .faulty = AMPC_USAGE};
    TRY(api_options(table, &e.table, sizeof e.table, d));
    if (!e.table.domain) return api_null(d, "ampc_operator_register", "domain");
    if (!e.table.name) return api_null(d, "ampc_operator_register", "name");
    e.loc = diag_named(NULL, DIAG_OPERATOR, e.table.name);
    return enter(ops, &e);
}

ampc_status ampc_operator_register(ampc_context *context, const ampc_operator *table)
{
    diag *d;
    TRY(api_enter(context, &d));
    NEED(table);
    return operators_register(&context->custom, table, d);
}

/* ---- plug-ins --------------------------------------------------------------------------------- */

static const struct machine {
    unsigned code;
    const char *name;
} machines[] = {{EM_X86_64, "x86-64"}, {EM_AARCH64, "aarch64"}, {EM_386, "32-bit x86"}, {EM_ARM, "32-bit ARM"},
                {EM_RISCV, "RISC-V"},  {EM_PPC64, "ppc64"},     {EM_S390, "s390x"}};
#if defined __x86_64__
enum { OWN_MACHINE = EM_X86_64 };
#elif defined __aarch64__
enum { OWN_MACHINE = EM_AARCH64 };
#else
enum { OWN_MACHINE = EM_NONE }; /* the dynamic loader refuses those of others */
#endif

static const char *machine_name(unsigned code)
{
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        if (machines[i].code == code) return machines[i].name;
    return "another machine";
}

/* Whether the file has all that is mapped: the process would end at a page after its end. */
static bool is_complete(int fd, const Elf64_Ehdr *head, uint64_t size)
{
    for (unsigned i = 0; i < head->e_phnum; i++) {
        Elf64_Phdr part;
        if (!input_read_at(fd, &part, sizeof part, head->e_phoff + i * sizeof part)) return false;
        if (part.p_type == PT_LOAD && (part.p_offset > size || part.p_filesz > size - part.p_offset)) return false;
    }
    return true;
}

/* Says what a file is that the dynamic loader would refuse in words of its own. */
static ampc_status check_header(const char *path, diag *d)
{
    Elf64_Ehdr head;
    uint64_t size;
    int fd;
    TRY(input_open(path, d, &fd, &size));
    const bool is_elf = input_read_at(fd, &head, sizeof head, 0) && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0;
    const bool complete = is_elf && (head.e_ident[EI_CLASS] != ELFCLASS64 || is_complete(fd, &head, size));
    close(fd);
    /* Where these are does not depend on the class: all follow the same 16 bytes. */
    if (!is_elf || head.e_type != ET_DYN) return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "not a shared library");
    if (OWN_MACHINE != EM_NONE && head.e_machine != OWN_MACHINE)
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "a shared library for %s; this machine is %s",
                          machine_name(head.e_machine), machine_name(OWN_MACHINE));
    if (!complete) return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "the shared library is truncated");
    return AMPC_OK;
}

static ampc_status refuse_loading(const char *path, const char *given, diag *d)
{
    const char *why = dlerror();
    const size_t n = strlen(given);
    if (!why) why = "unknown reason";
    if (strncmp(why, given, n) == 0 && strncmp(why + n, ": ", 2) == 0) why += n + 2;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "the plug-in cannot be loaded: %s", why);
}

/* Without a slash, the dynamic loader would search its own folders. */
static ampc_status open_library(const char *path, diag *d, void **library)
{
    TRY(check_header(path, d));
    char *given = malloc(strlen(path) + sizeof "./");
    if (!given) return rt_no_memory(d);
    strcpy(given, strchr(path, '/') ? "" : "./");
    strcat(given, path);
    *library = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    const ampc_status status = *library ? AMPC_OK : refuse_loading(path, given, d);
    free(given);
    return status;
}

static ampc_status open_plugin(void *library, const char *path, diag *d, const ampc_plugin **plugin)
{
    const diag_loc loc = DIAG_FILE(path);
    void *symbol = dlsym(library, "ampc_plugin_open");
    ampc_plugin_opener *opener = NULL;
    memcpy(&opener, &symbol, sizeof opener);
    if (!opener)
        return diag_error(
            d, AMPC_REJECTED, loc,
            "not a plug-in with operators: it has no function ampc_plugin_open, which AMPC_PLUGIN defines");
    *plugin = opener();
    if (!*plugin) return diag_error(d, AMPC_REJECTED, loc, "ampc_plugin_open has returned NULL");
    if ((*plugin)->struct_size < sizeof **plugin)
        return diag_error(d, AMPC_REJECTED, loc, "struct_size of the plug-in is not set");
    if ((*plugin)->version != AMPC_PLUGIN_VERSION)
        return diag_error(d, AMPC_UNSUPPORTED, loc,
                          "the plug-in was built for version %d of ampc_operator.h, and this library (%s) has version "
                          "%d; build it again with the header of this library",
                          (*plugin)->version, AMPC_VERSION, AMPC_PLUGIN_VERSION);
    if (!(*plugin)->n_operators || !(*plugin)->operators)
        return diag_error(d, AMPC_REJECTED, loc, "the plug-in has no operators");
    return AMPC_OK;
}

/* Copies the table at `index`, which may be of another version of the struct. */
static ampc_status read_table(const ampc_plugin *p, size_t index, entry *e)
{
    const ampc_operator *from = p->operators[index];
    const size_t size = from ? from->struct_size : 0;
    if (size < sizeof size || size > sizeof *from * 8)
        return diag_error(e->d, e->faulty, e->loc, "struct_size of operator %zu is not set", index);
    for (size_t i = sizeof *from; i < size; i++)
        if (((const char *)from)[i])
            return diag_error(e->d, AMPC_UNSUPPORTED, e->loc,
                              "operator %zu has members that this library (%s) does not know", index, AMPC_VERSION);
    e->table = (ampc_operator){0};
    memcpy(&e->table, from, size < sizeof *from ? size : sizeof *from);
    if (!e->table.domain || !e->table.name)
        return diag_error(e->d, e->faulty, e->loc, "operator %zu has no %s", index,
                          e->table.domain ? "name" : "domain");
    return AMPC_OK;
}

static ampc_status enter_all(custom_ops *ops, const ampc_plugin *p, const char *path, diag *d)
{
    for (size_t i = 0; i < p->n_operators; i++) {
        entry e = {.d = d, .faulty = AMPC_REJECTED, .loc = DIAG_FILE(path)};
        TRY(read_table(p, i, &e));
        e.loc = diag_named(path, DIAG_OPERATOR, e.table.name);
        TRY(enter(ops, &e));
    }
    return AMPC_OK;
}

/* A library that was loaded is not closed: it may have started threads. */
ampc_status operators_load(custom_ops *ops, const char *path, diag *d)
{
    custom_op *last = ops->first;
    const ampc_plugin *plugin = NULL;
    void *library;
    TRY(open_library(path, d, &library));
    ampc_status status = open_plugin(library, path, d, &plugin);
    if (status == AMPC_OK) status = enter_all(ops, plugin, path, d);
    if (status != AMPC_OK) free_until(ops, last);
    return status;
}

ampc_status ampc_operators_load(ampc_context *context, const char *path)
{
    diag *d;
    TRY(api_enter(context, &d));
    NEED(path);
    return operators_load(&context->custom, path, d);
}
