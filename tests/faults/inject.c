/* inject.c - preloaded into a program; counts the program's calls that can fail, or makes one of them fail.
 *
 * Counts calls made by the programs and the small libraries they consist of (`ours`), including calls that
 * the C library makes for them (an allocation inside fopen). Calls that oneDNN, libgomp and the dynamic
 * linker make for their own purposes are not counted. Environment:
 *   AMPC_FAULT=count     nothing fails; records one letter per call: m for memory, f for files
 *   AMPC_FAULT=N         the N-th call fails, once;  N+: that call and all later ones
 *   AMPC_FAULT=disturb   every call is interrupted once, and reads and writes transfer half of what they could
 *   AMPC_FAULT_RECORD    file for the letters, or for the function that failed and its callers
 *
 * The programs must be single-threaded for the N-th call to be the same in every run. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

enum { FRAMES = 24 };
static const char *const ours[] = {"/ampc",  "/libampc",   "/libjansson", "/libprotobuf-c", "/libzip",
                                   "/libz.", "/libxxhash", "/libcsv",     "/libpng",        "/libjpeg"};
static const char *const passed_through[] = {"/libc.", "/libfaults"};

static struct {
    bool on, disturb, persistent;
    uint64_t calls, fail_at;
    const char *record;
} state;
static char kinds[1 << 20]; /* one per call so far */
static __thread int busy __attribute__((tls_model("initial-exec")));
static __thread bool interrupted __attribute__((tls_model("initial-exec")));

static void record(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void record(const char *format, ...)
{
    static char text[sizeof kinds];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!state.record || n < 0) return;
    long fd = syscall(SYS_openat, AT_FDCWD, state.record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || syscall(SYS_write, fd, text, n) != n) return;
    syscall(SYS_close, fd);
}

__attribute__((constructor)) static void begin(void)
{
    void *frames[2];
    const char *fault = getenv("AMPC_FAULT");
    state.record = getenv("AMPC_FAULT_RECORD");
    busy++;
    backtrace(frames, 2); /* loads the unwinder */
    busy--;
    if (!fault) return;
    state.disturb = strcmp(fault, "disturb") == 0;
    state.fail_at = strtoull(fault, NULL, 10);
    state.persistent = strchr(fault, '+') != NULL;
    state.on = true;
}

__attribute__((destructor)) static void end(void)
{
    if (!state.on || state.fail_at) return;
    state.on = false;
    record("%s", kinds);
}

static bool is_one_of(const char *object, const char *const *names, size_t n)
{
    const char *slash = strrchr(object, '/');
    for (size_t i = 0; slash && i < n; i++)
        if (strncmp(slash, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* Returns whether the call is ours, which the first frame outside the C library determines. */
static bool is_counted(const void *caller)
{
    Dl_info info;
    void *frames[FRAMES];
    int n = 1;
    frames[0] = (void *)(uintptr_t)caller;
    for (int i = 0; i < n; i++) {
        if (!dladdr(frames[i], &info)) return false;
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s%s", strchr(info.dli_fname, '/') ? "" : "/", info.dli_fname);
        if (is_one_of(path, ours, sizeof ours / sizeof *ours)) return true;
        if (!is_one_of(path, passed_through, sizeof passed_through / sizeof *passed_through)) return false;
        if (i == 0) n = backtrace(frames, FRAMES);
    }
    return false;
}

static void record_frames(const char *function)
{
    Dl_info info;
    void *frames[FRAMES];
    int n = backtrace(frames, FRAMES);
    record("%s", function);
    for (int i = 0; i < n; i++)
        if (dladdr(frames[i], &info))
            record(" %s+%#lx", info.dli_fname, (unsigned long)((char *)frames[i] - (char *)info.dli_fbase));
    record("\n");
}

/* Counts a call and returns whether it has to fail. */
static bool fails(const char *function, const void *caller, bool allocation)
{
    if (!state.on || busy) return false;
    int before = errno;
    bool now = false;
    busy++;
    if (is_counted(caller)) {
        if (state.calls < sizeof kinds - 1) kinds[state.calls] = allocation ? 'm' : 'f';
        state.calls++;
        now = state.fail_at && (state.persistent ? state.calls >= state.fail_at : state.calls == state.fail_at);
        if (now && state.calls == state.fail_at) record_frames(function);
        if (state.disturb && !allocation) now = interrupted = !interrupted;
    }
    busy--;
    errno = before;
    return now;
}

#define CALLER __builtin_return_address(0)
#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name)
{
    busy++;
    void *f = dlsym(RTLD_NEXT, name);
    busy--;
    return f;
}

/* ---- memory ---- */

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t n) { return fails("malloc", CALLER, true) ? no_memory() : __libc_malloc(n); }
void *calloc(size_t count, size_t n) { return fails("calloc", CALLER, true) ? no_memory() : __libc_calloc(count, n); }
void *realloc(void *p, size_t n) { return fails("realloc", CALLER, true) ? no_memory() : __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { return fails("memalign", CALLER, true) ? no_memory() : __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n)
{
    return fails("aligned_alloc", CALLER, true) ? no_memory() : __libc_memalign(a, n);
}
int posix_memalign(void **out, size_t a, size_t n)
{
    if (fails("posix_memalign", CALLER, true)) return ENOMEM;
    *out = __libc_memalign(a, n);
    return *out ? 0 : ENOMEM;
}

/* ---- calls that fail as a whole: FAILING(type, name, parameters, arguments, value, errno) ---- */

#define FAILING(type, name, parameters, arguments, value, code) \
    type name parameters \
    { \
        static __typeof__(&name) next; \
        if (!next) next = REAL(name); \
        if (!fails(#name, CALLER, (code) == ENOMEM)) return next arguments; \
        errno = state.disturb ? EINTR : (code); \
        return value; \
    }
/* The same for calls that are not documented to be interruptible, or that the C library makes. */
#define LASTING(type, name, parameters, arguments, value, code) \
    type name parameters \
    { \
        static __typeof__(&name) next; \
        if (!next) next = REAL(name); \
        if (state.disturb || !fails(#name, CALLER, (code) == ENOMEM)) return next arguments; \
        errno = (code); \
        return value; \
    }

FAILING(int, fsync, (int fd), (fd), -1, EIO)
FAILING(int, ftruncate, (int fd, off_t n), (fd, n), -1, EIO)
FAILING(int, flock, (int fd, int op), (fd, op), -1, ENOLCK)
LASTING(int, rename, (const char *from, const char *to), (from, to), -1, EIO)
LASTING(int, link, (const char *from, const char *to), (from, to), -1, EIO)
LASTING(int, unlink, (const char *path), (path), -1, EACCES)
LASTING(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags), -1, EACCES)
LASTING(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, EACCES)
LASTING(int, stat, (const char *path, struct stat *st), (path, st), -1, EACCES)
LASTING(int, fstat, (int fd, struct stat *st), (fd, st), -1, EIO)
LASTING(char *, realpath, (const char *path, char *out), (path, out), NULL, EACCES)
LASTING(DIR *, opendir, (const char *path), (path), NULL, EMFILE)
LASTING(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset), (at, n, prot, flags, fd, offset),
        MAP_FAILED, ENOMEM)
LASTING(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
LASTING(FILE *, fopen64, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
LASTING(int, fflush, (FILE * f), (f), EOF, EIO)

/* ---- opening: the mode argument exists only with O_CREAT ---- */

#define MODE(flags) \
    va_list args; \
    va_start(args, flags); \
    mode_t mode = (flags) & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0; \
    va_end(args)
#define OPENING(name, parameters, arguments) \
    int name parameters \
    { \
        MODE(flags); \
        static __typeof__(&name) next; \
        if (!next) next = REAL(name); \
        if (!fails(#name, CALLER, false)) return next arguments; \
        errno = state.disturb ? EINTR : EMFILE; \
        return -1; \
    }
OPENING(open, (const char *path, int flags, ...), (path, flags, mode))
OPENING(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENING(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))

long syscall(long number, ...)
{
    static __typeof__(&syscall) next;
    if (!next) next = REAL(syscall);
    va_list args;
    va_start(args, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(args, long);
    va_end(args);
    if (number != SYS_openat2 || state.disturb || !fails("openat2", CALLER, false))
        return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    errno = EMFILE;
    return -1;
}

/* A failed close still closes the descriptor. */
int close(int fd)
{
    static __typeof__(&close) next;
    if (!next) next = REAL(close);
    bool failed = fails("close", CALLER, false);
    int result = next(fd);
    if (!failed) return result;
    errno = state.disturb ? EINTR : EIO;
    return -1;
}

int fclose(FILE *f)
{
    static __typeof__(&fclose) next;
    if (!next) next = REAL(fclose);
    bool failed = !state.disturb && fails("fclose", CALLER, false);
    int result = next(f);
    if (!failed) return result;
    errno = EIO;
    return EOF;
}

/* ---- data transfer: a failing write writes half of the bytes ---- */

#define MOVING(name, parameters, n, whole, half, code, spoils) \
    ssize_t name parameters \
    { \
        static __typeof__(&name) next; \
        if (!next) next = REAL(name); \
        if (!fails(#name, CALLER, false)) return (state.disturb && !busy && (n) > 1) ? next half : next whole; \
        if ((spoils) && !state.disturb && next half < 0) return -1; \
        errno = state.disturb ? EINTR : (code); \
        return -1; \
    }
MOVING(read, (int fd, void *p, size_t n), n, (fd, p, n), (fd, p, n / 2), EIO, false)
MOVING(pread, (int fd, void *p, size_t n, off_t at), n, (fd, p, n, at), (fd, p, n / 2, at), EIO, false)
MOVING(pread64, (int fd, void *p, size_t n, off_t at), n, (fd, p, n, at), (fd, p, n / 2, at), EIO, false)
MOVING(write, (int fd, const void *p, size_t n), n, (fd, p, n), (fd, p, n / 2), ENOSPC, true)
MOVING(pwrite, (int fd, const void *p, size_t n, off_t at), n, (fd, p, n, at), (fd, p, n / 2, at), ENOSPC, true)

/* stdio's internal reads and writes cannot be interposed, so the stdio functions themselves fail. */
static void spoil(FILE *f)
{
    f->_flags |= 0x20; /* the error flag that ferror tests */
    errno = EIO;
}

size_t fread(void *p, size_t size, size_t n, FILE *f)
{
    static __typeof__(&fread) next;
    if (!next) next = REAL(fread);
    if (state.disturb || !fails("fread", CALLER, false)) return next(p, size, n, f);
    spoil(f);
    return 0;
}

ssize_t getline(char **text, size_t *n, FILE *f)
{
    static __typeof__(&getline) next;
    if (!next) next = REAL(getline);
    if (state.disturb || !fails("getline", CALLER, false)) return next(text, n, f);
    spoil(f);
    return -1;
}

char *fgets(char *text, int n, FILE *f)
{
    static __typeof__(&fgets) next;
    if (!next) next = REAL(fgets);
    if (state.disturb || !fails("fgets", CALLER, false)) return next(text, n, f);
    spoil(f);
    return NULL;
}
