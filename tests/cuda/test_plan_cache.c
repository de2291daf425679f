/* test_plan_cache.c - cuDNN plans that are slow to create are cached for all processes. */

#include <glob.h>
#include <unistd.h>

#include "tests/cuda/calls.h"
#include "tests/cuda/double/double.h"
#include "tests/test.h"
#include "tests/tier.h"

enum { PARTS = 4 /* of the failing calls and of the mismatches, below the full tier */ };

/* The result of a preparation and run in a new context. */
typedef struct outcome {
    long made, read; /* plans created by engines, and plans read from disk */
    long calls;      /* in the preparation */
    size_t workspace, bytes;
    char *result;
} outcome;

/* Its gradient uses an engine that compiles. */
static const window_row compiled = {"compiled", 2, 2, 8, 16, 1, {6, 5}, {3, 3}, 1, 1, 1, 1};

static outcome gradient(bool tune, ir_dtype in)
{
    call c;
    open_context(tune);
    call_convolution(&c, IR_OP_conv_grad_weight, &compiled, in, IR_f32);
    call_channels_last(&c);
    double_mark();
    if (call_prepare(&c) != AMPC_OK) fail_msg("%s", call_error);
    outcome o = {.made = double_count("cudnnBackendSetAttribute engine"),
                 .read = double_count("cudnnBackendSetAttribute plan"),
                 .calls = double_count("*"),
                 .workspace = c.workspace,
                 .bytes = k_bytes(&c.out[0])};
    o.result = call_run(&c);
    call_release(&c);
    close_context();
    return o;
}

/* Computes a gradient in f16, expecting its plan to be made by engines or read from disk. The result must equal `expected`,
 * or becomes `expected` if that is NULL. */
static void expect_gradient(bool tune, bool made, bool read, outcome *expected)
{
    outcome o = gradient(tune, IR_f16);
    if ((o.made > 0) != made || (o.read > 0) != read) fail_msg("%ld plans were made, %ld read", o.made, o.read);
    if (expected->result) {
        assert_int_equal(o.workspace, expected->workspace);
        assert_memory_equal(o.result, expected->result, o.bytes);
        free(expected->result);
    }
    *expected = o;
}

#define TEST_PLAN(name) TEST_WITH(make_cache, drop_cache, void *unused, name)

TEST_PLAN(slow_plans_are_cached)
{
    outcome first = {.result = NULL};
    expect_gradient(false, true, false, &first);
    expect_gradient(false, false, true, &first);
    outcome other = gradient(false, IR_bf16); /* another graph */
    assert_true(other.made > 0 && other.read == 0);
    free(other.result);
    free(first.result);
}

/* Finds the only cached plan. */
static void find_cached(char *path, size_t size)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/ampc/plan-*", cache_folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    assert_true(strlen(found.gl_pathv[0]) < size);
    strcpy(path, found.gl_pathv[0]);
    globfree(&found);
}

/* Replaces the cached plan's text, with a valid seal. */
static void replace_cached(const char *path, const char *text)
{
    cuda_cache_key key = {.name = strtoull(strrchr(path, '-') + 1, NULL, 16)};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 16, SEEK_SET), 0); /* after the magic */
    assert_int_equal(fread(&key.inside, sizeof key.inside, 1, f), 1);
    fclose(f);
    size_t bytes;
    char *cached = cuda_cache_find("plan", &key, (size_t)1 << 30, &bytes);
    assert_non_null(cached);
    free(cached);
    cuda_cache_store("plan", &key, text, strlen(text) + 1);
}

static void change_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    const int byte = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(byte ^ 1, f);
    assert_int_equal(fclose(f), 0);
}

static size_t other_version(void) { return CUDNN_VERSION + 1; }

TEST_PLAN(mismatched_plan_is_ignored)
{
    static const long damaged[] = {3, 20, 30, 900}; /* offsets in magic, key, size and text */
    outcome first = {.result = NULL};
    char path[256];
    expect_gradient(false, true, false, &first);
    find_cached(path, sizeof path);
    tier_print_part("mismatches", PARTS);
    size_t n = 0;
    for (; n < sizeof damaged / sizeof *damaged; n++) {
        if (!tier_is_due(n, PARTS)) continue;
        change_byte(path, damaged[n]);
        expect_gradient(false, true, false, &first);
    }
    if (tier_is_due(n++, PARTS)) {
        assert_int_equal(truncate(path, 5000), 0);
        expect_gradient(false, true, false, &first);
    }
    if (tier_is_due(n++, PARTS)) {
        replace_cached(path, "{\"cudnnVersion\": 1}"); /* cuDNN rejects it */
        expect_gradient(false, true, true, &first);
        expect_gradient(false, false, true, &first);
    }
    if (tier_is_due(n++, PARTS)) {
        size_t (*version)(void) = cuda.cudnnGetVersion;
        cuda.cudnnGetVersion = other_version;
        expect_gradient(false, true, false, &first);
        cuda.cudnnGetVersion = version;
    }
    expect_gradient(false, false, true, &first);
    free(first.result);
}

/* Whatever fails while a plan is read, there is an error or the same result. */
TEST_PLAN(reading_a_plan_may_fail)
{
    outcome first = {.result = NULL};
    char left[256];
    int same = 0;
    expect_gradient(false, true, false, &first);
    expect_gradient(false, false, true, &first);
    tier_print_part("failing calls", PARTS);
    for (long n = 1; n <= first.calls; n++) {
        if (!tier_is_due((size_t)n, PARTS)) continue;
        size_t bytes;
        bool by_kernels;
        call_error[0] = 0;
        char *result = result_if_call_fails(n, IR_OP_conv_grad_weight, &compiled, IR_f32, &bytes, &by_kernels);
        if (result) assert_memory_equal(result, first.result, bytes);
        if (!result && !call_error[0]) fail_msg("call %ld failed without a message", n);
        if (double_live(left, sizeof left)) fail_msg("call %ld failed and leaked: %s", n, left);
        same += result != NULL;
        free(result);
    }
    /* Create the descriptor, set it twice, finalise it, query it: one of any four consecutive calls is due. */
    assert_true(same >= (tier_is_reduced() ? 1 : 5));
    free(first.result);
}

/* A context that tunes caches the winner's plan, others that of the first candidate: two files. A different choice has a different
 * plan. */
TEST_PLAN(cached_plan_is_the_chosen_one)
{
    outcome tuned = {.result = NULL}, plain = {.result = NULL};
    char text[4096];
    expect_gradient(true, true, false, &tuned);
    expect_gradient(true, false, true, &tuned);
    expect_gradient(false, true, false, &plain);
    expect_gradient(false, false, true, &plain);
    snprintf(text, sizeof text, "%s", cache_file("r", NULL));
    text[0] = text[0] == '0' ? '1' : '0';
    assert_non_null(cache_file("w", text));
    expect_gradient(true, true, false, &plain);
    expect_gradient(true, false, true, &plain);
    free(tuned.result);
    free(plain.result);
}

TEST_GROUP(no_cache, NULL)
