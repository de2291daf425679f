/* console.c - messages and the progress line on standard error. */
#include "tools/console.h"

#include "ir/base/text_buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

console console_open(void)
{
    console c = {.terminal = isatty(STDERR_FILENO) == 1};
    console_set_colour(&c, CONSOLE_AUTO);
    return c;
}

void console_set_colour(console *c, int choice)
{
    const char *no = getenv("NO_COLOR");
    c->colour = choice == CONSOLE_ALWAYS || (choice == CONSOLE_AUTO && c->terminal && !(no && *no));
}

static void print_coloured(const char *message, const char *word, const char *code)
{
    const char *at = strstr(message, word);
    size_t before = at ? (size_t)(at - message) : 0, length = at ? strlen(word) : 0;
    fprintf(stderr, "\033[1m%.*s\033[%sm%.*s\033[0m%s\n", (int)before, message, code, (int)length, message + before,
            message + before + length);
}

static const char *option_name(option_id option)
{
    static const char *const names[] = {
#define COMPILE(name, field, member, ...) [OPTION_##member] = "--" name,
#define COMPILER(name, field, ...) [OPTION_##field] = "--" name,
#define TRAIN COMPILER
#define SESSION COMPILER
#define TOOL COMPILER
#include "ir/base/options.def"
    };
    return names[option];
}

static void use_option(text_buffer *t, const char *option, const diag_remedy *r)
{
    text_add(t, "use %s", option);
    if (r->key) text_add(t, " %s=%s", r->key, r->value);
    else if (r->value) text_add(t, "=%s", r->value);
}

const diag_words console_words = {option_name, use_option};

static void hold(console *c, const char *message)
{
    char *more;
    if (asprintf(&more, "%s%s%s\n", c->held ? c->held : "", c->rank, message) < 0) return;
    free(c->held);
    c->held = more;
}

void console_release(console *c, bool print)
{
    if (c->held && print) fputs(c->held, stderr);
    free(c->held);
    c->held = NULL;
}

void console_message(void *user, diag_level level, const char *message)
{
    static const struct {
        const char *word, *code;
    } styles[] = {{"error:", "1;31"}, {"warning:", "1;35"}, {"remark:", "1;34"}, {"note:", "1;36"}};
    console *c = user;
    if (c->rank) {
        if (level == DIAG_ERROR) hold(c, message);
        return;
    }
    if ((c->quiet && level != DIAG_ERROR) || (level == DIAG_REMARK && !c->verbose)) return;
    console_end_live(c);
    if (c->colour) print_coloured(message, styles[level].word, styles[level].code);
    else fprintf(stderr, "%s\n", message);
}

void console_live(console *c, const char *text)
{
    if (!c->terminal) {
        fprintf(stderr, "%s\n", text);
        return;
    }
    fprintf(stderr, "\r%s\033[K", text);
    fflush(stderr);
    c->live = true;
}

void console_end_live(console *c)
{
    if (!c->live) return;
    fputc('\n', stderr);
    c->live = false;
}

size_t console_columns(void)
{
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
}
