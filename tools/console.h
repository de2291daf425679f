/* console.h - what the programs write to standard error: messages, coloured on a terminal, and one live line. */
#ifndef AMPC_TOOLS_CONSOLE_H
#define AMPC_TOOLS_CONSOLE_H

#include "ir/diag.h"

typedef enum console_colour { CONSOLE_AUTO, CONSOLE_ALWAYS, CONSOLE_NEVER } console_colour;

typedef struct console {
    bool quiet;   /* errors only */
    bool verbose; /* remarks too */
    bool colour;
    bool terminal; /* standard error is one */
    bool live;     /* its last line is a live line */
} console;

console console_open(void);
/* CONSOLE_AUTO: on a terminal, unless NO_COLOR is set. A console_colour. */
void console_set_colour(console *c, int choice);
/* The sink of a diag; `user` is a console. */
void console_message(void *user, diag_level level, const char *message);
/* Replaces the live line (terminal), or writes a line. */
void console_live(console *c, const char *text);
void console_end_live(console *c);
/* Columns of the terminal; 80 when unknown. */
size_t console_columns(void);

#endif
