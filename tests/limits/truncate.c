/* truncate.c - preloaded: the model file that AMPC_TRUNCATE names becomes shorter as soon as its size was asked for. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int fstat(int fd, struct stat *st)
{
    static int (*next)(int, struct stat *);
    const char *path = getenv("AMPC_TRUNCATE");
    struct stat named;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "fstat");
    int result = next(fd, st);
    if (result == 0 && path && stat(path, &named) == 0 && named.st_ino == st->st_ino && named.st_dev == st->st_dev)
        result = truncate(path, 4096);
    return result;
}
