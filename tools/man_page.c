/* man_page.c - --help=man: the manual page of a program, as man(7) source. */
#include "tools/help.h"

#include "ir/ops/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define REVISED "2026-11-22" /* date of the last change to the pages */

enum { LINE = 78 };

/* Literal text: every hyphen is one that the user types, so it is escaped. */
static const char *literal(const char *text, arena *a)
{
    char *out = arena_alloc(a, 2 * strlen(text) + 1), *at = out;
    for (; *text; text++) {
        if (*text == '-' || *text == '\\') *at++ = '\\';
        *at++ = *text == '\\' ? 'e' : *text;
    }
    *at = 0;
    return out;
}

/* "\fB--dtype\fP=\fIfp16|bf16\fP": names are bold, values italic. */
static void put_synopsis(const char *text, arena *a)
{
    const size_t name = strcspn(text, "[="), value = name + strspn(text + name, "[=");
    const char *end = text[name] == '[' ? "]" : "";
    const int length = (int)(strlen(text) - value - strlen(end));
    printf("\\fB%s\\fP", literal(arena_strndup(a, text, name), a));
    if (text[name])
        printf("%.*s\\fI%s\\fP%s", (int)(value - name), text + name,
               literal(arena_printf(a, "%.*s", length, text + value), a), end);
    putchar('\n');
}

/* In prose, only hyphens at the start of an option are literal. */
static const char *prose(const char *word, size_t length, arena *a)
{
    const char *text = arena_strndup(a, word, length);
    const char *start = text + strspn(text, "'(");
    if (*start == '-') return literal(text, a);
    return *text == '\'' || *text == '.' ? arena_printf(a, "\\&%s", text) : text;
}

/* Fills lines; each '\n' of the text starts a new paragraph. */
static void put_prose(const char *text, arena *a)
{
    size_t column = 0;
    while (*text) {
        const size_t length = strcspn(text, " \n");
        const char *word = prose(text, length, a);
        const bool fits = column + strlen(word) < LINE;
        if (column) putchar(fits ? ' ' : '\n');
        column = (column && fits ? column + 1 : 0) + strlen(word);
        fputs(word, stdout);
        if (text[length] == '\n') {
            puts("\n.PP");
            column = 0;
        }
        text += length + (text[length] != 0);
    }
    putchar('\n');
}

static void put_term(const char *term, const char *text, arena *a)
{
    printf(".TP\n.B %s\n", literal(term, a));
    put_prose(text, a);
}

/* "the text" -> "The text." */
static const char *sentence(const char *text, arena *a)
{
    return arena_printf(a, "%c%s.", toupper((unsigned char)*text), text + 1);
}

static bool has_verbs(const program *p) { return p->count > 1; }

/* "Verbs: train, eval."; "" if every verb has the option. */
static const char *verbs_of(const option *row, const program *p, arena *a)
{
    const char *text = "";
    int count = 0;
    for (int i = 0; i < p->count; i++)
        if (option_applies(row, p->commands[i].bit))
            text = arena_printf(a, "%s%s%s", text, count++ ? ", " : "", command_verb(&p->commands[i]));
    return count == p->count ? "" : arena_printf(a, " Verbs: %s.", text);
}

static void put_option(const option *row, const program *p, arena *a)
{
    const char *initial = row->initial ? arena_printf(a, " (default: %s)", row->initial) : "";
    const char *verbs = has_verbs(p) ? verbs_of(row, p, a) : "";
    puts(".TP");
    put_synopsis(option_synopsis(row, true, a), a);
    put_prose(
        arena_printf(a, "%s%s", sentence(arena_printf(a, "%s%s", option_text(row, row->help, a), initial), a), verbs),
        a);
}

static void put_keys(const option *row, arena *a)
{
    char form[SETTING_TEXT_SIZE], notes[SETTING_TEXT_SIZE];
    const setting *key = row->keys ? row->keys(0) : NULL;
    if (key) puts(".RS");
    for (int i = 0; key; key = row->keys(++i)) {
        printf(".IP \"\\fB%s\\fP\" 4\n", literal(setting_form(key, form), a));
        const char *text = sentence(key->help, a);
        if (*setting_notes(key, notes)) text = arena_printf(a, "%s %s", text, sentence(notes, a));
        put_prose(text, a);
    }
    if (row->keys) puts(".RE");
}

static void put_options(const program *p, arena *a)
{
    puts(".SH OPTIONS\nOptions may precede and follow the operands; a value follows its option after\n"
         "an equals sign or as the next argument.");
    for (int group = 0; group < GROUP_COUNT; group++) {
        bool begun = false;
        for (const option *row = option_table; row->name; row++) {
            if ((int)row->group != group || !option_applies(row, program_commands(p))) continue;
            if (!begun) printf(".SS %s\n", option_group_names[group]);
            begun = true;
            put_option(row, p, a);
            put_keys(row, a);
        }
    }
}

static void put_commands(const program *p, arena *a)
{
    if (has_verbs(p)) puts(".SH VERBS");
    for (int i = 0; i < p->count && has_verbs(p); i++) {
        const command *c = &p->commands[i];
        put_term(arena_printf(a, "%s %s", command_verb(c), c->operands),
                 c->details ? arena_printf(a, "%s %s", c->purpose, c->details) : c->purpose, a);
    }
}

static void put_facts(const char *title, const command_fact *facts, const program *p, arena *a)
{
    printf(".SH %s\n", title);
    for (const command_fact *f = facts; f->name; f++)
        if (f->commands & program_commands(p)) put_term(f->name, f->text, a);
}

static void put_exit_statuses(arena *a)
{
    puts(".SH EXIT STATUS");
#define PUT_STATUS(name, code, text) put_term(#code, sentence(text, a), a);
    AMPC_STATUS_MAP(PUT_STATUS)
#undef PUT_STATUS
    put_term("128+N", "Ended by signal N; ampc-run train saves a checkpoint first.", a);
}

static void put_examples(const program *p, arena *a)
{
    puts(".SH EXAMPLES");
    for (int i = 0; i < p->count; i++)
        for (const command_example *e = p->commands[i].examples; e->line; e++)
            printf("%s%c%s:\n.PP\n.nf\n.RS\n%s\n.RE\n.fi\n", e == p->commands->examples ? "" : ".PP\n",
                   toupper((unsigned char)*e->purpose), e->purpose + 1, literal(e->line, a));
}

static void put_see_also(const program *p, arena *a)
{
    puts(".SH SEE ALSO");
    for (const program *other = program_table; other->name; other++)
        if (other != p) printf(".BR %s (1),\n", literal(other->name, a));
    puts(".BR ampc.amplist (5)");
}

void print_man_page(const program *p, arena *a)
{
    printf(".\\\" Generated by '%s --help=man'.\n.TH ", p->name);
    for (const char *c = p->name; *c; c++) putchar(toupper((unsigned char)*c));
    printf(" 1 " REVISED " \"ampc " AMPC_VERSION "\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.nf\n", literal(p->name, a),
           p->purpose);
    for (int i = 0; i < p->count; i++)
        printf("\\fB%s\\fP %s\n", literal(p->commands[i].name, a), literal(p->commands[i].operands, a));
    puts(".fi\n.SH DESCRIPTION");
    put_prose(p->details, a);
    put_commands(p, a);
    put_options(p, a);
    put_facts("ENVIRONMENT", command_environment, p, a);
    put_facts("FILES", command_files, p, a);
    put_exit_statuses(a);
    put_examples(p, a);
    put_see_also(p, a);
}
