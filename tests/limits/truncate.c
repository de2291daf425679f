/* truncate.c - preloaded; truncates the model file named by AMPC_TRUNCATE as soon as its size has been queried. */
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
