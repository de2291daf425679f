/* console.h - messages on standard error, coloured on a terminal, and a progress line that is redrawn in place. */
#ifndef AMPC_TOOLS_CONSOLE_H
#define AMPC_TOOLS_CONSOLE_H

#include "ir/base/diag.h"

typedef enum console_colour { CONSOLE_AUTO, CONSOLE_ALWAYS, CONSOLE_NEVER } console_colour;

typedef struct console {
    bool quiet;   /* errors only */
    bool verbose; /* also remarks */
    bool colour;
    bool terminal; /* standard error is a terminal */
    bool live;     /* the last line on the terminal is the progress line */
    const char
        *rank;  /* "rank 2 on HOST: ", for a rank that prints its errors at the end (console_release); else NULL */
    char *held; /* malloced */
} console;

console console_open(void);
/* `choice` is a console_colour. CONSOLE_AUTO: colours on a terminal, unless NO_COLOR is set. */
void console_set_colour(console *c, int choice);
/* Options in messages are those of the command line. */
extern const diag_words console_words;
/* The message callback of a diag; `user` is a console. */
void console_message(void *user, diag_level level, const char *message);
/* Prints the errors of a rank; false: forgets them. */
void console_release(console *c, bool print);
/* Redraws the progress line on a terminal; otherwise writes a new line. */
void console_live(console *c, const char *text);
void console_end_live(console *c);
/* Width of the terminal; 80 if unknown. */
size_t console_columns(void);

#endif
