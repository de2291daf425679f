/* console.h - messages on standard error, coloured on a terminal, and a progress line that is redrawn in place. */
#ifndef AMPC_TOOLS_CONSOLE_H
#define AMPC_TOOLS_CONSOLE_H

#include "ir/diag.h"

typedef enum console_colour { CONSOLE_AUTO, CONSOLE_ALWAYS, CONSOLE_NEVER } console_colour;

typedef struct console {
    bool quiet;   /* errors only */
    bool verbose; /* remarks too */
    bool colour;
    bool terminal; /* standard error is a terminal */
    bool live;     /* its last line is the progress line */
} console;

console console_open(void);
/* CONSOLE_AUTO: on a terminal, unless NO_COLOR is set. A console_colour. */
void console_set_colour(console *c, int choice);
/* The sink of a diag; `user` is a console. */
void console_message(void *user, diag_level level, const char *message);
/* On a terminal redraws the progress line, otherwise writes a line. */
void console_live(console *c, const char *text);
void console_end_live(console *c);
/* Columns of the terminal; 80 when unknown. */
size_t console_columns(void);

#endif
