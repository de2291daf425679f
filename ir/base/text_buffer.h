/* text_buffer.h - text that grows in memory or fills an array. Every write is checked: after one that fails, or that an
 * array cuts off, `failed` is set and later calls do nothing.
 *
 *     text_buffer t = {0};              in an array: text_buffer t = TEXT_IN(array);
 *     text_add(&t, "%d", 3);
 *     char *text = text_finish(&t);       in an arena: text_buffer t = {.arena = a}; */
#ifndef AMPC_TEXT_BUFFER_H
#define AMPC_TEXT_BUFFER_H

#include "ir/base/arena.h"

typedef struct text_buffer {
    char *data; /* with a zero byte after its end; NULL: nothing was added yet */
    size_t length, capacity;
    struct arena *arena; /* NULL: data is malloced */
    bool fixed;          /* data is an array of the caller */
    bool failed;
} text_buffer;

/* A buffer for an array of at least one byte, which becomes empty. */
text_buffer text_in(char *array, size_t size);
#define TEXT_IN(array) text_in((array), sizeof(array))

void text_add(text_buffer *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_put(text_buffer *t, const char *text);
void text_add_bytes(text_buffer *t, const void *bytes, size_t n);
/* Adds an item of a list, after `separator` unless it is the first text. */
void text_add_item(text_buffer *t, const char *separator, const char *item);

/* Returns the text, which the caller frees unless it is in an arena, and empties t; NULL: memory was exhausted, or
 * nothing was added. */
char *text_finish(text_buffer *t);

#endif
