/* input_file.h - opens the files that are read: models, modules, data, lists, configuration.
 *
 * Every file to be read is opened here, or in beneath.h if a model or module names it; tools/lint forbids other ways.
 * Only regular files are opened, and opening waits for nothing: a FIFO without a writer, a terminal or a device would
 * block the program or have no end. */
#ifndef AMPC_INPUT_FILE_H
#define AMPC_INPUT_FILE_H

#include "ir/base/diag.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Opens a regular file for reading. On failure *fd is -1; AMPC_IO or AMPC_NO_MEMORY is returned and reported, and errno
 * is 0 if the file could be opened, but is of another type. */
ampc_status input_open(const char *path, diag *d, int *fd, uint64_t *size);

/* Reads a text of at most `most` bytes, 0 < most < SIZE_MAX, from a regular file, or from an anonymous pipe of a shell
 * (/dev/stdin, <(command)) until it is closed. The caller frees *text, which has a zero byte after its end. A longer
 * text is rejected with the message `refusal`; NULL: cut to most + 1 bytes, for the caller to report. Otherwise fails
 * like input_open. */
ampc_status input_read(const char *path, size_t most, const char *refusal, diag *d, char **text, size_t *length);
/* The same for an open stream, such as stdin, whose text is cut; `name` is for messages. */
ampc_status input_read_stream(FILE *f, const char *name, size_t most, diag *d, char **text, size_t *length);
/* Reads exactly n bytes at an offset; false with errno, ENODATA at the end of the file. */
bool input_read_at(int fd, void *dst, size_t n, uint64_t offset);

#endif
