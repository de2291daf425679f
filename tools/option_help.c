/* option_help.c - both forms of --help, made from the rows of option_table.c. */
#include "tools/options.h"

#include <stdio.h>
#include <string.h>

static const char *const group_names[GROUP_COUNT] = {"files",   "precision", "training", "shapes",
                                                     "running", "looking",   "general"};

enum { WIDTH = 100, MARGIN = 12, COLUMN = 36 };

const char *options_group_name(int group) { return group_names[group]; }

static bool belongs(const option *row, const option_program *p, int group)
{
    return row->name && (row->where & p->bit) && (int)row->group == group;
}

static bool has_group(const option_program *p, int group)
{
    for (const option *row = option_table; row->name; row++)
        if (belongs(row, p, group)) return true;
    return false;
}

void options_spell(const option *row, bool value, char *text, size_t size)
{
    const char *dash = row->name[1] ? "--" : "-", *between = !row->name[1]  ? " "
                                                             : row->implied ? "[="
                                                                            : "=";
    if (!value || !row->value)
        snprintf(text, size, "%s%s", dash, row->name);
    else
        snprintf(text, size, "%s%s%s%s%s", dash, row->name, between, row->value,
                 row->implied ? "]" : "");
}

/* The options of a group in as few lines as they need. */
static void print_names(const option_program *p, int group)
{
    int column = printf("  %-*s", MARGIN - 2, group_names[group]);
    for (const option *row = option_table; row->name; row++) {
        char text[OPTION_TEXT_SIZE];
        if (!belongs(row, p, group) || row->kind == OPTION_LATER || strcmp(row->name, "h") == 0)
            continue;
        options_spell(row, group == GROUP_FILES || group == GROUP_PRECISION, text, sizeof text);
        if (column + 1 + (int)strlen(text) > WIDTH) column = printf("\n%*s", MARGIN, "") - 1;
        column += printf(" %s", text);
    }
    putchar('\n');
}

static void print_rows(const option_program *p, int group)
{
    printf("\n%s:\n", group_names[group]);
    for (const option *row = option_table; row->name; row++) {
        char text[OPTION_TEXT_SIZE];
        if (!belongs(row, p, group)) continue;
        options_spell(row, true, text, sizeof text);
        bool wide = strlen(text) + 2 >= COLUMN;
        printf("  %-*s%s", COLUMN - 2, text, wide ? "\n" : "");
        if (wide) printf("%*s", COLUMN, "");
        fputs(row->text, stdout);
        if (row->initial) printf(" (default: %s)", row->initial);
        puts(row->kind == OPTION_LATER ? "; not supported yet" : "");
    }
}

void options_print_exit_codes(void)
{
    puts("exit status: 0 ok, 1 input rejected, 2 usage, 3 unsupported, 4 reading or writing "
         "failed,\n"
         "             5 numeric failure, 6 device, 7 out of memory, 128+N signal N");
}

void options_help(const option_program *p, bool all)
{
    printf("usage: %s\n%s\n", p->usage, p->purpose);
    if (!all) putchar('\n');
    for (int group = 0; group < GROUP_COUNT; group++) {
        if (!has_group(p, group)) continue;
        if (all)
            print_rows(p, group);
        else
            print_names(p, group);
    }
    if (*p->examples) puts("\nexamples:");
    for (const char *const *example = p->examples; *example; example++) printf("  %s\n", *example);
    putchar('\n');
    options_print_exit_codes();
    if (!all) printf("'%s --help=all' describes every option.\n", p->name);
}
