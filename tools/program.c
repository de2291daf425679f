/* program.c - program_main: setup and teardown common to all programs, and dispatch to the command that argv names. */
#include "tools/help.h"
#include "tools/run.h"
#include "ir/base/suggest.h"

#include "frontend/recipe.h"
#include "ir/text/text.h"
#include "runtime/api/operators.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/ranks.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- dispatch -------------------------------------------------------------------------------- */

static const command *find_verb(const program *p, const char *verb)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(command_verb(&p->commands[i]), verb) == 0) return &p->commands[i];
    return NULL;
}

static ampc_status unknown_verb(const tool *t, const program *p, const char *verb)
{
    suggestion near = suggest_for(verb);
    for (int i = 0; i < p->count; i++) suggest_candidate(&near, command_verb(&p->commands[i]));
    const char *hint = near.best ? suggestion_hint(&near, "", t->arena)
                                 : arena_printf(t->arena, "; '%s --help' lists all verbs", p->name);
    return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(p->name), "unknown verb '%s'%s", verb, hint);
}

/* Removes the verb from the arguments; options may precede it. Without a verb *out is unchanged. */
static ampc_status parse_verb(tool *t, const program *p, int *argc, char **argv, const command **out)
{
    const int at = options_first_operand(program_commands(p), *argc, argv);
    if (at == *argc) return AMPC_OK;
    *out = find_verb(p, argv[at]);
    if (!*out) return unknown_verb(t, p, argv[at]);
    memmove(argv + at, argv + at + 1, (size_t)(--*argc - at) * sizeof *argv);
    return AMPC_OK;
}

static ampc_status print_version(const program *p)
{
    printf("%s " AMPC_VERSION "\nONNX opsets %d to %d, IR text version %d, devices: %s\n", p->name, ONNX_OPSET_FIRST,
           ONNX_OPSET_LAST, IR_TEXT_VERSION, rt_devices());
    return AMPC_OK;
}

static ampc_status print_passes(void)
{
    for (const pass_info *p = pass_table; p->name; p++) printf("%-12s %s\n", p->name, p->text);
    return AMPC_OK;
}

/* The options of a recipe come first, so that the command line overrides them. */
static ampc_status parse_options(tool *t, int argc, char **argv)
{
    TRY(options_parse(&t->o, t->command, argc, argv, t->diag));
    const char *model = t->o.operands.count ? t->o.operands.items[0] : NULL;
    if (!model || !recipe_detect(model)) return AMPC_OK;
    t->o = options_default(program_table, t->command->bit, t->arena);
    TRY(options_of_recipe(&t->o, t->command, model, t->diag));
    return options_parse(&t->o, t->command, argc, argv, t->diag);
}

/* `argv` excludes the name of the program. */
static ampc_status dispatch(tool *t, const program *p, int argc, char **argv)
{
    command *without_verb = arena_alloc(
        t->arena, sizeof *without_verb); /* without a verb, only --help and --version are accepted */
    *without_verb = (command){.name = p->name, .bit = program_commands(p)};
    t->command = p->count == 1 ? p->commands : without_verb;
    t->o = options_default(program_table, t->command->bit, t->arena);
    if (p->count > 1) TRY(parse_verb(t, p, &argc, argv, &t->command));
    TRY(parse_options(t, argc, argv));
    console_set_colour(&t->console, t->o.colour);
    t->console.quiet = t->o.quiet;
    t->console.verbose = t->o.verbose;
    diag_set_strict(t->diag, t->o.strict);
    if (t->o.version) return print_version(p);
    if (t->o.help) return print_help(p, t->command, (help_form)t->o.help, t->arena);
    if (t->command == without_verb)
        return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(p->name), "no verb; '%s --help' lists all verbs", p->name);
    if (t->o.list_passes) return print_passes();
    TRY(options_check(&t->o, t->command, t->diag));
    TRY(options_check_replaced(&t->o, t->command, t->diag));
    TRY(tool_check_dump(t));
    return t->command->run ? t->command->run(t) : run_in_session(t);
}

/* ---- program_main ------------------------------------------------------------------------------ */

static ampc_status run_guarded(tool *t, const program *p, int argc, char **argv)
{
    jmp_buf guard;
    diag *usual = t->diag;
    if (setjmp(guard)) {
        t->diag = usual; /* a command may have replaced it */
        return diag_error(t->diag, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    }
    arena_set_guard(t->arena, &guard);
    return dispatch(t, p, argc - 1, argv + 1);
}

/* A failed write must be an error (exit status 4), also past the file size limit or into a closed pipe, where the
 * default signal action would end the program. */
static void ignore_signals_of_writes(void)
{
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

static const program *find_program(const char *name)
{
    const program *p = program_table;
    while (strcmp(p->name, name) != 0) p++;
    return p;
}

int program_main(const char *name, int argc, char **argv)
{
    ignore_signals_of_writes();
    custom_ops custom = {0};
    tool t = {.console = console_open(), .weights_dir = ".", .custom = &custom};
    t.diag = diag_new(console_message, &t.console);
    if (t.diag) diag_set_words(t.diag, &console_words);
    t.arena = arena_new(0);
    ampc_status status = t.diag && t.arena ? run_guarded(&t, find_program(name), argc, argv) : AMPC_NO_MEMORY;
    console_end_live(&t.console);
    /* No failure is silent, not even one that had no memory for a message. */
    if (!t.diag) fputs("error: out of memory\n", stderr);
    else if (status == AMPC_NO_MEMORY && diag_status(t.diag) == AMPC_OK)
        diag_error(t.diag, status, DIAG_NOWHERE, "out of memory");
    if (status == AMPC_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = diag_error(t.diag, AMPC_IO, DIAG_NOWHERE, "cannot write to standard output");
    ir_module_free(t.module);
    operators_free(&custom);
    arena_free(t.arena);
    diag_free(t.diag);
    const int code = status == AMPC_OK && t.stopped_by ? 128 + t.stopped_by : (int)status;
    if (!rt_ranks_failed()) return code;
    fflush(NULL);
    _exit(code); /* MPI would wait for the other ranks */
}
