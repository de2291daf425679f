/* help.c - --help and --help=all. */
#include "tools/help.h"

#include "ir/ops/settings.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 100, MARGIN = 13, COLUMN = 36 };

static bool is_in(const option *row, const command *c, int group)
{
    return option_applies(row, c->bit) && (int)row->group == group;
}

static bool has_group(const command *c, int group)
{
    for (const option *row = option_table; row->name; row++)
        if (is_in(row, c, group)) return true;
    return false;
}

/* Prints the names of a group's options, wrapped to the line width. */
static void print_names(const command *c, int group, arena *a)
{
    const char *title = option_group_names[group];
    int column = printf("  %c%-*s", tolower((unsigned char)*title), MARGIN - 3, title + 1);
    for (const option *row = option_table; row->name; row++) {
        if (!is_in(row, c, group)) continue;
        const char *text = option_synopsis(row, false, a);
        if (column + 1 + (int)strlen(text) > WIDTH) column = printf("\n%*s", MARGIN, "") - 1;
        column += printf(" %s", text);
    }
    putchar('\n');
}

/* "axis=N   the axis of the classes (an integer from -8 to 7)" */
static void print_keys(const option *row)
{
    char form[SETTING_TEXT_SIZE], notes[SETTING_TEXT_SIZE];
    const setting *key;
    for (int i = 0; row->keys && (key = row->keys(i)); i++) {
        printf("      %-*s %s", COLUMN - 7, setting_form(key, form), key->help);
        if (*setting_notes(key, notes)) printf(" (%s)", notes);
        putchar('\n');
    }
}

static void print_rows(const command *c, int group, arena *a)
{
    printf("\n%s:\n", option_group_names[group]);
    for (const option *row = option_table; row->name; row++) {
        if (!is_in(row, c, group)) continue;
        const char *text = option_synopsis(row, true, a);
        const bool wide = strlen(text) + 2 >= COLUMN;
        printf("  %-*s%s", COLUMN - 2, text, wide ? "\n" : "");
        if (wide) printf("%*s", COLUMN, "");
        fputs(option_text(row, row->help, a), stdout);
        if (row->initial) printf(" (default: %s)", row->initial);
        putchar('\n');
        print_keys(row);
    }
}

static void print_examples(const command *c, int count)
{
    for (int i = 0; i < count && c->examples[i].line; i++)
        printf("  %-58s # %s\n", c->examples[i].line, c->examples[i].purpose);
}

static void print_exit_statuses(void)
{
    puts("\nExit status:");
#define PRINT_STATUS(name, code, sentence) puts("  " #code "  " sentence);
    AMPC_STATUS_MAP(PRINT_STATUS)
#undef PRINT_STATUS
}

static void print_command(const command *c, bool all, arena *a)
{
    printf("usage: %s %s\n%s\n", c->name, c->operands, c->purpose);
    if (!all) putchar('\n');
    for (int group = 0; group < GROUP_COUNT; group++) {
        if (!has_group(c, group)) continue;
        if (all) print_rows(c, group, a);
        else print_names(c, group, a);
    }
    puts(all ? "\nExamples:" : "\nexamples:");
    print_examples(c, INT_MAX);
    if (all) print_exit_statuses();
    else printf("\n'%s --help=all' describes every option and the exit status.\n", c->name);
}

static void print_overview(const program *p)
{
    printf("usage: %s VERB MODEL [OPTION]...\n%s: %s. Verbs:\n\n", p->name, p->name, p->purpose);
    for (int i = 0; i < p->count; i++) printf("  %-8s %s\n", command_verb(&p->commands[i]), p->commands[i].purpose);
    puts("\nexamples:");
    for (int i = 0; i < p->count; i++) print_examples(&p->commands[i], 1);
    printf("\n'%s VERB --help' lists the options of a verb.\n", p->name);
}

ampc_status print_help(const program *p, const command *c, help_form form, arena *a)
{
    switch (form) {
    case HELP_MAN: print_man_page(p, a); break;
    case HELP_BASH: print_bash_completion(p, a); break;
    case HELP_ZSH: print_zsh_completion(p, a); break;
    case HELP_FISH: print_fish_completion(p, a); break;
    default:
        if (c->operands) print_command(c, form == HELP_ALL, a);
        else print_overview(p);
    }
    return AMPC_OK;
}
