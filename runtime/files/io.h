/* io.h - the system calls for all files that the runtime reads or writes.
 *
 * Each function completes its transfer (short counts, EINTR) or fails with errno. Tests can make any call fail. The
 * functions report nothing to a diag because only the caller knows the purpose of the file. */
#ifndef RT_IO_H
#define RT_IO_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Wraps input_open (ir/base/input_file.h): opens a file that is read. */
ampc_status rt_io_open_input(const char *path, diag *d, int *fd, uint64_t *size);
/* For the files that write: opens `path` with O_CLOEXEC and `flags`. Returns the descriptor, or -1 with errno. */
int rt_io_open(const char *path, int flags, unsigned mode);
/* Wraps beneath_open (ir/base/beneath.h). */
ampc_status rt_io_open_beneath(const char *folder, const char *name, int *fd, const char **why);
/* Treats EINTR as success. */
bool rt_io_close(int fd);
/* Size of a regular file; false with errno (EISDIR or ESPIPE if it is not one). */
bool rt_io_size(int fd, uint64_t *size);
/* Reads exactly n bytes at `offset`; false with errno, ENODATA at end of file. */
bool rt_io_pread(int fd, void *dst, size_t n, uint64_t offset);
bool rt_io_write(int fd, const void *src, size_t n);
bool rt_io_pwrite(int fd, const void *src, size_t n, uint64_t offset);
bool rt_io_fsync(int fd);
bool rt_io_truncate(int fd, uint64_t size);
/* Asks the kernel to start writing these bytes to the disk, so that a later fsync is shorter. Best effort. */
void rt_io_begin_sync(int fd, uint64_t offset, uint64_t n);
bool rt_io_rename(const char *from, const char *to);
/* fsync of the folder that contains `path`. */
bool rt_io_fsync_folder(const char *path);

/* Tests only, per thread: the n-th system call from now on (1: the next) fails with `error`, and all later ones too
 * if `persistent`; a failing write first writes half of its bytes. n = 0 disables this. The removal of temporary
 * files is never made to fail. */
void rt_io_fail(uint64_t n, int error, bool persistent);
/* Number of system calls since the last rt_io_fail. */
uint64_t rt_io_calls(void);

#endif
