/* ranks.c - one rank of a test of runtime/backend/ranks.h; tests/ranks/run-ranks starts several.
 *
 * usage: ranks sums [ROUNDS [LARGEST]]        random sequences of calls, compared with what one process computes
 *        ranks loop ACTION RANK [TIMEOUT]     a loop of sums, in which a rank does something: kill, stop, exit, leave, none
 *        ranks bytes HOSTS                    all_reduce sends 2 (HOSTS - 1) / HOSTS of the data from each host
 *        ranks time                           rank 0 prints median times of all_reduce */
#include "kernels/ranks.h"
#include "runtime/backend/ranks.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static k_ranks *ranks;

static void print(void *user, diag_level level, const char *message)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", message);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void give_up(int code)
{
    fflush(NULL);
    rt_ranks_close(ranks, (ampc_status)code);
    _exit(code);
}

static void must(ampc_status s)
{
    if (s == AMPC_OK) return;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    fprintf(stderr, "rank %d: error at %ld.%03ld: %s\n", ranks->index, t.tv_sec % 1000, t.tv_nsec / 1000000,
            ranks->error);
    give_up(s);
}

/* ---- what one process computes ---- */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double value_of(uint64_t round, int rank, int64_t i)
{
    return (double)(int64_t)(mix(round * 1000003 + (uint64_t)rank * 7919 + (uint64_t)i * 31) >> 40) / 4096 - 2048;
}

/* Level by level, which is another way to make the additions of a balanced tree. */
static void expected(double *values, int count, ir_dtype t, k_reduced by)
{
    for (; count > 1; count = (count + 1) / 2)
        for (int i = 0; i < count; i += 2) {
            double sum = values[i];
            if (i + 1 < count && by == K_REDUCED_max) sum = fmax(sum, values[i + 1]);
            if (i + 1 < count && by == K_REDUCED_sum) {
                sum = t == IR_f64 ? sum + values[i + 1] : (double)((float)sum + (float)values[i + 1]);
                char rounded[8];
                ir_store_f64(t, rounded, sum);
                sum = ir_load_f64(t, rounded);
            }
            values[i / 2] = sum;
        }
}

static void check_sums(uint64_t round, int64_t n, ir_dtype t, k_reduced by, bool tree, bool staged)
{
    const size_t size = ir_dtype_size(t);
    char *own = malloc((size_t)n * size + 1), *staging = staged ? ranks->stage(ranks, (size_t)n * size) : NULL;
    char *data = staging ? staging : own;
    double *values = malloc((size_t)ranks->count * sizeof *values);
    for (int64_t i = 0; i < n; i++) ir_store_f64(t, data + (size_t)i * size, value_of(round, ranks->index, i));
    must(ranks->all_reduce(ranks, data, n, t, by, tree));
    const int64_t step = n > 4096 ? n / 997 : 1;
    for (int64_t i = 0; i < n; i += step) {
        char stored[8];
        for (int r = 0; r < ranks->count; r++) {
            ir_store_f64(t, stored, value_of(round, r, i));
            values[r] = ir_load_f64(t, stored);
        }
        if (tree || by == K_REDUCED_max || !getenv("AMPC_RANKS_A_NODE")) {
            expected(values, ranks->count, t, by);
            ir_store_f64(t, stored, values[0]);
            if (memcmp(stored, data + (size_t)i * size, size) == 0) continue;
        } else {
            double sum = 0, largest = 0;
            for (int r = 0; r < ranks->count; r++) sum += values[r], largest = fmax(largest, fabs(values[r]));
            values[0] = sum;
            const double error = (t == IR_f64   ? 1e-14
                                  : t == IR_f32 ? 1e-6
                                  : t == IR_f16 ? 1e-3
                                                : 8e-3) *
                                 largest * ranks->count;
            if (fabs(sum - ir_load_f64(t, data + (size_t)i * size)) <= error) continue;
        }
        fprintf(stderr, "rank %d: round %llu: element %lld of %lld %s is %.9g, not %.9g\n", ranks->index,
                (unsigned long long)round, (long long)i, (long long)n, ir_dtype_name(t),
                ir_load_f64(t, data + (size_t)i * size), values[0]);
        give_up(1);
    }
    /* The results are the same on all ranks. */
    uint64_t sum = 0, *sums = calloc((size_t)ranks->count, sizeof *sums);
    for (size_t i = 0; i < (size_t)n * size; i++) sum = sum * 31 + (unsigned char)data[i];
    must(ranks->all_gather(ranks, &sum, sums, sizeof sum));
    for (int r = 0; r < ranks->count; r++)
        if (sums[r] != sum) {
            fprintf(stderr, "rank %d: round %llu: rank %d has another result\n", ranks->index,
                    (unsigned long long)round, r);
            give_up(1);
        }
    free(sums);
    free(values);
    free(own);
}

static void check_copies(uint64_t round, size_t n)
{
    const size_t count = (size_t)ranks->count;
    unsigned char *mine = calloc(n + 1, 1), *all = calloc(n * count + 1, 1);
    for (size_t i = 0; i < n; i++) mine[i] = (unsigned char)mix(round + (size_t)ranks->index * 97 + i);
    must(ranks->all_gather(ranks, mine, all, n));
    for (size_t i = 0; i < n * count; i++)
        if (all[i] != (unsigned char)mix(round + i / n * 97 + i % n))
            fprintf(stderr, "all_gather: byte %zu\n", i), give_up(1);
    const int root = (int)(mix(round) % count);
    must(ranks->broadcast(ranks, mine, n, root));
    for (size_t i = 0; i < n; i++)
        if (mine[i] != (unsigned char)mix(round + (size_t)root * 97 + i))
            fprintf(stderr, "broadcast: byte %zu\n", i), give_up(1);
    free(mine);
    free(all);
}

static void sums(uint64_t rounds, int64_t largest)
{
    static const ir_dtype types[] = {IR_f32, IR_f16, IR_bf16, IR_f64};
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 1024, 4099};
    for (uint64_t i = 0; i < rounds; i++) {
        const uint64_t x = mix(i + 1);
        const int64_t n = i < 56 ? sizes[i % 7] : (int64_t)(mix(x) % (uint64_t)largest);
        check_sums(i, n, types[x % 4], x / 4 % 3 ? K_REDUCED_sum : K_REDUCED_max, x / 16 % 2, x / 32 % 2);
        if (x / 64 % 4 == 0) check_copies(i, (size_t)n);
    }
    check_sums(rounds, largest, IR_f16, K_REDUCED_sum, true, true);
    check_copies(rounds, (size_t)largest);
}

static void loop(const char *action, int rank)
{
    float values[1000] = {0};
    for (int i = 0; i < 1000000; i++) {
        if (i == 100 && ranks->index == rank) {
            struct timespec t;
            clock_gettime(CLOCK_REALTIME, &t);
            fprintf(stderr, "rank %d: %s at %ld.%03ld\n", rank, action, t.tv_sec % 1000, t.tv_nsec / 1000000);
            if (!strcmp(action, "kill")) kill(getpid(), SIGKILL);
            if (!strcmp(action, "stop") && fork()) kill(getpid(), SIGSTOP);
            if (!strcmp(action, "stop")) { /* the child ends a process that its launcher leaves */
                sleep(5);
                kill(getppid(), SIGKILL);
                _exit(0);
            }
            if (!strcmp(action, "exit")) _exit(3);
            if (!strcmp(action, "leave")) give_up(4);
        }
        must(ranks->all_reduce(ranks, values, 1000, IR_f32, K_REDUCED_sum, i % 2));
        if (i > 200 && !strcmp(action, "none")) break;
    }
}

/* Hosts have the same number of ranks. */
static void count_bytes(int hosts)
{
    enum { N = 1 << 20 };
    static float data[N];
    for (int halves = 0; halves < 2; halves++) {
        const ir_dtype type = halves ? IR_f16 : IR_f32;
        const k_ranks_counts before = ranks->counts;
        must(ranks->all_reduce(ranks, data, N, type, K_REDUCED_sum, false));
        const k_ranks_counts now = ranks->counts;
        const int64_t bytes = N * (int64_t)ir_dtype_size(type), a_host = ranks->count / hosts;
        if (now.reductions != before.reductions + 1 || now.reduced != before.reduced + bytes ||
            now.sent - before.sent != 2 * (hosts - 1) * bytes / hosts / a_host ||
            now.messages - before.messages != 2 * (hosts - 1)) {
            fprintf(stderr, "rank %d: %lld bytes in %lld messages\n", ranks->index, (long long)(now.sent - before.sent),
                    (long long)(now.messages - before.messages));
            give_up(1);
        }
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(void)
{
    static const size_t bytes[] = {4 << 10, 1 << 20, 25 << 20};
    static const ir_dtype types[] = {IR_f32, IR_f16};
    for (int b = 0; b < 3; b++)
        for (int t = 0; t < 2; t++) {
            double times[101];
            const int count = b == 2 ? 21 : 101;
            for (int i = 0; i < count; i++) {
                void *data = ranks->stage(ranks, bytes[b]);
                if (!data) data = calloc(1, bytes[b]);
                memset(data, 0, bytes[b]);
                must(ranks->all_reduce(ranks, &(float){0}, 1, IR_f32, K_REDUCED_sum, true));
                const double start = now();
                must(ranks->all_reduce(ranks, data, (int64_t)(bytes[b] / ir_dtype_size(types[t])), types[t],
                                       K_REDUCED_sum, true));
                times[i] = now() - start;
            }
            qsort(times, (size_t)count, sizeof *times, compare);
            if (!ranks->index)
                printf("%8zu bytes %s: %9.1f us\n", bytes[b], ir_dtype_name(types[t]), 1e6 * times[count / 2]);
        }
}

int main(int argc, char **argv)
{
    const char *task = argc > 1 ? argv[1] : "sums";
    const bool loops = !strcmp(task, "loop") && argc > 3;
    diag *d = diag_new(print, NULL);
    const ampc_status status = rt_ranks_open(&(rt_ranks_options){.timeout = loops && argc > 4 ? atof(argv[4]) : 60}, d,
                                             &ranks);
    if (status != AMPC_OK) return status;
    if (!ranks) {
        fprintf(stderr, "one rank\n");
        return 0;
    }
    if (loops) loop(argv[2], atoi(argv[3]));
    else if (!strcmp(task, "bytes")) count_bytes(argc > 2 ? atoi(argv[2]) : 1);
    else if (!strcmp(task, "time")) measure();
    else sums(argc > 2 ? strtoull(argv[2], NULL, 10) : 100, argc > 3 ? atoll(argv[3]) : 100000);
    if (!ranks->index) printf("%d ranks on %s\n", ranks->count, rt_ranks_host(ranks, ranks->count - 1)), fflush(stdout);
    rt_ranks_close(ranks, AMPC_OK);
    diag_free(d);
    return rt_ranks_failed() ? AMPC_DEVICE : 0;
}
