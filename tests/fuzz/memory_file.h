/* memory_file.h - presents a fuzzer's bytes as a file with a path, without disk access. */
#ifndef TESTS_MEMORY_FILE_H
#define TESTS_MEMORY_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct memory_file {
    int fd;
    char path[40];
} memory_file;

static inline memory_file memory_file_open(const uint8_t *data, size_t size)
{
    memory_file f = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
    if (f.fd < 0 || (size && write(f.fd, data, size) != (ssize_t)size)) abort();
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

static inline void memory_file_close(memory_file *f) { close(f->fd); }

#endif
