/* driver.c - runs a libFuzzer target as a plain test, on every file of its corpus and on mutations of it.
 *
 * usage: fuzz_NAME [-v] [-mutations=N] [-random=N] [-first=I] FILE_OR_FOLDER..
 *
 * The mutations come from a deterministic generator seeded by the file's content, which makes failures
 * reproducible; -v names each input before it runs. -random adds the inputs of random bytes with numbers I to
 * I+N-1. As with libFuzzer, a target fails by crashing.
 *
 * Below the full tier (tests/tier.h), the mutations and I, 0 without -first, change with AMPC_SEED. */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/tier.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    bool verbose;
    long mutations, random_inputs, first, files, runs;
    uint64_t random;
} driver = {.mutations = 100, .first = -1};

static size_t draw(size_t below) /* xorshift64* */
{
    driver.random ^= driver.random >> 12;
    driver.random ^= driver.random << 25;
    driver.random ^= driver.random >> 27;
    return below ? (size_t)((driver.random * 0x2545f4914f6cdd1du) >> 32) % below : 0;
}

/* Passes a heap copy of the exact size, which lets sanitizers detect reads past its end. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = calloc(size ? size : 1, 1);
    if (!copy) exit(1);
    if (size) memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    driver.runs++;
}

/* Mutates `size` bytes in place in one of five ways. Returns the new size, at most 2 * size. */
static size_t mutate(uint8_t *data, size_t size)
{
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, '\n', '"', '{', '%', '-'};
    if (!size) return 0;
    size_t at = draw(size), n = 1 + draw(size - at < 64 ? size - at : 64);
    switch (draw(5)) {
    case 0: data[at] = (uint8_t)(data[at] ^ 1u << draw(8)); return size;
    case 1: data[at] = edges[draw(sizeof edges)]; return size;
    case 2: return at;
    case 3:
        if (n > size - at) n = size - at;
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    default:
        if (n > size - at) n = size - at;
        memmove(data + at + n, data + at, size - at);
        return size + n;
    }
}

static void run_mutations(const char *path, const uint8_t *data, size_t size)
{
    uint8_t *changed = malloc(size * 2 + 16);
    if (!changed) exit(1);
    for (long i = 0; i < driver.mutations && size; i++) {
        memcpy(changed, data, size);
        size_t n = mutate(changed, size);
        for (size_t more = draw(4); more && n < size; more--) n = mutate(changed, n);
        if (driver.verbose) fprintf(stderr, "%s, mutation %ld (%zu bytes)\n", path, i, n);
        run(changed, n);
    }
    free(changed);
}

static bool run_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    bool read = file && data && fread(data, 1, size, file) == size;
    if (file) fclose(file);
    if (read) {
        driver.random = 0x9e3779b97f4a7c15u ^ size;
        for (size_t i = 0; i < size; i++) driver.random = (driver.random ^ data[i]) * 0x100000001b3u;
        driver.random ^= (uint64_t)tier_first(1) * 0x9e3779b97f4a7c15u;
        driver.random |= 1;
        driver.files++;
        if (driver.verbose) fprintf(stderr, "%s\n", path);
        run(data, size);
        run_mutations(path, data, size);
    } else {
        fprintf(stderr, "%s: cannot be read\n", path);
    }
    free(data);
    return read;
}

/* The bytes of a random input depend only on its number. */
static void run_random(void)
{
    uint8_t data[64];
    printf("random inputs %ld to %ld\n", driver.first, driver.first + driver.random_inputs - 1);
    fflush(stdout); /* before an input crashes the program */
    for (long i = driver.first; i < driver.first + driver.random_inputs; i++) {
        driver.random = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
        const size_t size = 8 + draw(sizeof data - 7);
        for (size_t k = 0; k < size; k++) data[k] = (uint8_t)draw(256);
        if (driver.verbose) fprintf(stderr, "random input %ld (%zu bytes)\n", i, size);
        run(data, size);
    }
}

static bool run_path(const char *path);

static bool run_folder(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    bool good = count >= 0;
    for (int i = 0; i < count; i++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') good = run_path(inner) && good;
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return good;
}

static bool run_path(const char *path)
{
    struct stat status;
    if (stat(path, &status)) {
        fprintf(stderr, "%s: no such file or folder\n", path);
        return false;
    }
    return S_ISDIR(status.st_mode) ? run_folder(path) : run_file(path, (size_t)status.st_size);
}

int main(int count, char **arguments)
{
    bool good = true;
    if (tier_is_reduced()) {
        printf("mutations of seed %zu\n", tier_first(1));
        fflush(stdout);
    }
    run(NULL, 0);
    for (int i = 1; i < count; i++) {
        const char *argument = arguments[i];
        if (strcmp(argument, "-v") == 0) driver.verbose = true;
        else if (strncmp(argument, "-mutations=", 11) == 0) driver.mutations = atol(argument + 11);
        else if (strncmp(argument, "-random=", 8) == 0) driver.random_inputs = atol(argument + 8);
        else if (strncmp(argument, "-first=", 7) == 0) driver.first = atol(argument + 7);
        else good = run_path(argument) && good;
    }
    if (driver.first < 0) driver.first = (long)tier_first((size_t)driver.random_inputs);
    if (driver.random_inputs) run_random();
    good = good && (driver.files > 0 || driver.random_inputs > 0);
    printf("%ld files, %ld runs\n[%s] corpus\n", driver.files, driver.runs, good ? "       OK " : "  FAILED  ");
    return !good;
}
