/* help.h - help texts, manual pages and completion scripts, generated from the tables of commands and options. */
#ifndef AMPC_TOOLS_HELP_H
#define AMPC_TOOLS_HELP_H

#include "tools/options.h"

/* Prints --help=FORM to standard output for a command, or for all commands of the program if `c` is not one of them. */
ampc_status print_help(const program *p, const command *c, help_form form, arena *a);

void print_man_page(const program *p, arena *a);
void print_bash_completion(const program *p, arena *a);
void print_zsh_completion(const program *p, arena *a);
void print_fish_completion(const program *p, arena *a);

#endif
