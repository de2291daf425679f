/* io.h - the system calls of every file that the runtime reads or writes, in one place.
 *
 * Each function finishes its transfer (short counts, EINTR) or fails with errno; each call can be made
 * to fail by a test. None reports to a diag: the caller knows what the file was for. */
#ifndef RT_IO_H
#define RT_IO_H

#include "ir/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* O_CLOEXEC is added. The descriptor, or -1 with errno. */
int rt_io_open(const char *path, int flags, unsigned mode);
/* beneath_open (ir/beneath.h). */
ampc_status rt_io_open_beneath(const char *folder, const char *name, int *fd, const char **why);
/* EINTR counts as closed. */
bool rt_io_close(int fd);
/* Size of a regular file; false with errno (EISDIR, ESPIPE for what is not one). */
bool rt_io_size(int fd, uint64_t *size);
/* Exactly n bytes at offset; false with errno. An end of file before them is ENODATA. */
bool rt_io_pread(int fd, void *dst, size_t n, uint64_t offset);
bool rt_io_write(int fd, const void *src, size_t n);
bool rt_io_pwrite(int fd, const void *src, size_t n, uint64_t offset);
bool rt_io_fsync(int fd);
bool rt_io_truncate(int fd, uint64_t size);
/* The disk may begin with these bytes; a wish, for a shorter fsync later. */
void rt_io_begin_sync(int fd, uint64_t offset, uint64_t n);
bool rt_io_rename(const char *from, const char *to);
/* fsync of the folder that holds `path`. */
bool rt_io_fsync_folder(const char *path);

/* Tests only, per thread: the n-th system call from now on (1: the next) fails with `error`, and when
 * `persistent` all later ones too; a failing write first writes half of its bytes. n = 0 turns it off.
 * Removing a temporary file is never made to fail. */
void rt_io_fail(uint64_t n, int error, bool persistent);
/* System calls counted since the last rt_io_fail. */
uint64_t rt_io_calls(void);

#endif
