/* ampc_opt.c - named passes over the text of a module: the test and debug tool of the compiler.
 *
 * FILE is parsed and verified, each pass runs through the runner of the compiler (which verifies after it), and what
 * results is printed canonically. Nothing is written unless everything succeeded. */
#include "passes/passes.h"
#include "runtime/atomic_file.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: ampc-opt [OPTION].. FILE.ir\n"
    "Runs named passes over the text of a module and prints the result canonically.\n"
    "\n"
    "  FILE.ir             what to read, '-' for standard input\n"
    "  -o FILE             what to write (default '-': standard output)\n"
    "  --pass=NAME,..      passes, run in this order (default: none, only parse and verify)\n"
    "  --no-verify         neither verify the input nor after each pass\n"
    "  --dump-after=NAME   print the module after this pass, or after 'all'\n"
    "  --list-passes       names of the passes, one sentence each\n"
    "  --help, --version\n"
    "\n"
    "exit status: 0 success, 1 text that does not parse or verify, 2 usage, 4 reading or writing failed\n";

typedef struct command {
    const char *input, *output;
    char *passes; /* "cse,dce", changed while it is read; NULL: none */
    pass_options options;
} command;

static void print_message(void *user, diag_level level, const char *message)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", message);
}

static void print_text(void *user, const char *text)
{
    (void)user;
    fputs(text, stderr);
}

static ampc_status run_passes(ir_module *m, const command *c, diag *d)
{
    char *rest = NULL;
    for (char *name = c->passes ? strtok_r(c->passes, ",", &rest) : NULL; name; name = strtok_r(NULL, ",", &rest))
        TRY(pass_run(m, name, &c->options, d));
    return AMPC_OK;
}

static ampc_status write_text(const char *path, const char *text, diag *d)
{
    if (strcmp(path, "-") != 0) return rt_atomic_save(path, text, strlen(text), d);
    if (fputs(text, stdout) >= 0 && fflush(stdout) == 0) return AMPC_OK;
    return diag_error(d, AMPC_IO, DIAG_NOWHERE, "cannot write to standard output");
}

static ampc_status write_module(const ir_module *m, const char *path, diag *d)
{
    jmp_buf guard;
    arena *a = arena_new(0);
    ampc_status status = AMPC_NO_MEMORY;
    if (a && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        status = write_text(path, ir_print(m, a), d);
    } else {
        diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory while printing the module");
    }
    arena_free(a);
    return status;
}

static ampc_status process(ir_module *m, const command *c, diag *d)
{
    if (c->options.verify_each) TRY(ir_verify(m, d));
    TRY(run_passes(m, c, d));
    return write_module(m, c->output, d);
}

static int list_passes(void)
{
    for (const pass_info *p = pass_table; p->name; p++) printf("%-12s %s\n", p->name, p->text);
    return AMPC_OK;
}

/* Returns -1 to go on, otherwise the exit status. */
static int read_command(int argc, char **argv, command *c)
{
    enum { PASS = 256, NO_VERIFY, DUMP_AFTER, LIST_PASSES, HELP, VERSION };
    static const struct option options[] = {
        {"pass", required_argument, NULL, PASS},       {"no-verify", no_argument, NULL, NO_VERIFY},
        {"dump-after", required_argument, NULL, DUMP_AFTER}, {"list-passes", no_argument, NULL, LIST_PASSES},
        {"help", no_argument, NULL, HELP},             {"version", no_argument, NULL, VERSION},
        {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "o:h", options, NULL)) != -1;) {
        switch (option) {
        case 'o': c->output = optarg; break;
        case PASS: c->passes = optarg; break;
        case NO_VERIFY: c->options.verify_each = false; break;
        case DUMP_AFTER: c->options.dump_after = optarg; break;
        case LIST_PASSES: return list_passes();
        case 'h':
        case HELP: fputs(usage, stdout); return AMPC_OK;
        case VERSION: puts("ampc-opt " AMPC_VERSION); return AMPC_OK;
        default: fputs("try 'ampc-opt --help'\n", stderr); return AMPC_USAGE;
        }
    }
    if (optind + 1 == argc) {
        c->input = argv[optind];
        return -1;
    }
    fprintf(stderr, "ampc-opt: %s\ntry 'ampc-opt --help'\n", optind == argc ? "no input" : "more than one input");
    return AMPC_USAGE;
}

int main(int argc, char **argv)
{
    command c = {.output = "-", .options = pass_options_default()};
    c.options.text_out = print_text;
    int done = read_command(argc, argv, &c);
    if (done >= 0) return done;
    diag *d = diag_new(print_message, NULL);
    if (!d) return AMPC_NO_MEMORY;
    ir_module *m = NULL;
    ampc_status status = ir_parse_file(c.input, d, &m);
    if (status == AMPC_OK) status = process(m, &c, d);
    ir_module_free(m);
    diag_free(d);
    return status;
}
