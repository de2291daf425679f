/* option_man.c - the manual pages (--help=man), made from the rows of option_table.c. */
#include "tools/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Text as roff: hyphens that are typed, backslashes, and no line that begins like a request. */
static void put(const char *text)
{
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else
            putchar(*text);
    }
}

static void request(const char *name, const char *text)
{
    printf(".%s ", name);
    put(text);
    putchar('\n');
}

static void put_line(const char *text)
{
    put(text);
    putchar('\n');
}

/* "(train, eval)" when the option is not for all of the programs. */
static void put_verbs(const option *row, const option_program *programs, int count)
{
    bool some = false, all = true;
    for (int i = 0; i < count; i++) all &= (row->where & programs[i].bit) != 0;
    for (int i = 0; i < count && !all; i++) {
        if (!(row->where & programs[i].bit)) continue;
        printf("%s%s", some ? ", " : "(", strrchr(programs[i].name, ' ') + 1);
        some = true;
    }
    if (some) puts(")");
}

static void put_option(const option *row, const option_program *programs, int count)
{
    char name[OPTION_TEXT_SIZE];
    options_spell(row, true, name, sizeof name);
    puts(".TP");
    request("B", name);
    put(row->text);
    if (row->initial) {
        fputs(" (default: ", stdout);
        put(row->initial);
        putchar(')');
    }
    puts(row->kind == OPTION_LATER ? "; not supported yet." : ".");
    put_verbs(row, programs, count);
}

static void put_options(const option_program *programs, int count)
{
    unsigned bits = 0;
    for (int i = 0; i < count; i++) bits |= programs[i].bit;
    puts(".SH OPTIONS");
    for (int group = 0; group < GROUP_COUNT; group++) {
        bool begun = false;
        for (const option *row = option_table; row->name; row++) {
            if ((int)row->group != group || !(row->where & bits)) continue;
            if (!begun) request("SS", options_group_name(group));
            begun = true;
            put_option(row, programs, count);
        }
    }
}

static void put_upper(const char *text)
{
    for (; *text; text++) putchar(toupper((unsigned char)*text));
}

void options_man(const char *name, const char *purpose, const option_program *programs, int count)
{
    fputs(".\\\" Made by --help=man.\n.TH ", stdout);
    put_upper(name);
    printf(" 1 \"\" \"ampc " AMPC_VERSION "\" \"User Commands\"\n.SH NAME\n%s \\- ", name);
    put_line(purpose);
    puts(".SH SYNOPSIS\n.nf");
    for (int i = 0; i < count; i++) put_line(programs[i].usage);
    puts(".fi\n.SH DESCRIPTION");
    for (int i = 0; i < count; i++) {
        if (count > 1) {
            puts(".TP");
            request("B", strrchr(programs[i].name, ' ') + 1);
        }
        put_line(programs[i].purpose);
    }
    put_options(programs, count);
    puts(".SH EXAMPLES\n.nf");
    for (int i = 0; i < count; i++)
        for (const char *const *example = programs[i].examples; *example; example++)
            put_line(*example);
    puts(".fi\n.SH EXIT STATUS\n.nf");
    options_print_exit_codes();
    puts(".fi\n.SH SEE ALSO\n.BR ampc (1),\n.BR ampc\\-run (1),\n.BR ampc\\-opt (1)");
}
