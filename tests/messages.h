/* messages.h - what every message of an error must be like. */
#ifndef TESTS_MESSAGES_H
#define TESTS_MESSAGES_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/diag.h"

#define MESSAGE_NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* Whether a name is said twice in a row: "conv: conv: out of memory", "sqrt: sqrt is not defined for i32". */
static inline bool message_repeats(const char *message)
{
    for (const char *at = message; (at = strstr(at, ": ")); at += 2) {
        size_t n = 0;
        while (at - n > message && at[-(ptrdiff_t)n - 1] && strchr(MESSAGE_NAME, at[-(ptrdiff_t)n - 1])) n++;
        if (n && strncmp(at - n, at + 2, n) == 0 && !(at[2 + n] && strchr(MESSAGE_NAME, at[2 + n]))) return true;
    }
    return false;
}

/* What is wrong with the message of the first error; NULL: nothing, or no error. */
static inline const char *message_complaint(const diag *d)
{
    static char complaint[1024];
    const char *message = diag_first_error(d);
    if (diag_status(d) == AMPC_OK) return NULL;
    if (!message[0]) return "no message";
    snprintf(complaint, sizeof complaint, "a name twice: %s", message);
    return message_repeats(message) ? complaint : NULL;
}

#endif
