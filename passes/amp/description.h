/* description.h - reads descriptions, of devices (device.h) and of consumers (consumer.h): lines "KEY = VALUE", and
 * comments that start with '#'. */
#ifndef AMPC_DESCRIPTION_H
#define AMPC_DESCRIPTION_H

#include "ir/base/diag.h"

/* Stores a line in what `user` points to. Returns false if the key is unknown or the value is invalid. */
typedef bool description_set(void *user, const char *key, const char *value, int line);

typedef struct description {
    const char *what; /* "device": named in messages */
    description_set *set;
    void *user;
} description;

/* Reads a file or, if it is not NULL, `text` with the name `file`. Every wrong line is reported with its number. */
ampc_status description_read(const char *file, const char *text, const description *of, diag *d);

#endif
