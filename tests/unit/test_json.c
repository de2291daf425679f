/* test_json.c - each of jansson's allocations fails once while files are read: a good file is never reported as damaged,
 * and the status is AMPC_NO_MEMORY. */
#include "runtime/files/json.h"
#include "runtime/files/safetensors.h"
#include "tests/unit/scratch.h"

static uint64_t calls, fail_at;

static void *failing_malloc(size_t n) { return ++calls == fail_at ? NULL : malloc(n); }

static void fail_call(uint64_t n)
{
    calls = 0;
    fail_at = n;
}

/* Names of many lengths make jansson's buffers grow at many positions. */
static ampc_status write_file(scratch *t, const char *path)
{
    static const float value[4] = {1, 2, 3, 4};
    static const int64_t dims[] = {2, 2};
    char name[80];
    rt_safetensors_writer *w;
    TRY(rt_safetensors_create(t->d, &w));
    ampc_status s = rt_safetensors_put_metadata(w, "schedule", "cosine,warmup=100,end=0.00001");
    for (int i = 0; s == AMPC_OK && i < 8; i++) {
        snprintf(name, sizeof name, "param/%.*s.weight", 7 * i,
                 "encoder/layers/attention/self/output/projection/dense");
        s = rt_safetensors_add(w, name, IR_f32, 2, dims, value);
    }
    if (s == AMPC_OK) return rt_safetensors_commit(w, path, NULL);
    rt_safetensors_discard(w);
    return s;
}

static ampc_status read_file(scratch *t, const char *path)
{
    rt_safetensors *f;
    float value[4];
    TRY(rt_safetensors_open(path, RT_VERIFY_ALL, t->d, &f));
    assert_int_equal(rt_safetensors_count(f), 8);
    ampc_status s = AMPC_OK;
    for (size_t i = 0; s == AMPC_OK && i < 8; i++) s = rt_safetensors_read(f, rt_safetensors_entry(f, i), value);
    rt_safetensors_close(f);
    return s;
}

TEST_SCRATCH(test_reading)
{
    const char *path = scratch_path(t, "a.safetensors");
    assert_int_equal(write_file(t, path), AMPC_OK);
    for (uint64_t n = 1;; n++) {
        fail_call(n);
        ampc_status s = read_file(t, path);
        bool failed = calls >= n;
        fail_call(0);
        if (!failed) break;
        if (s == AMPC_OK) continue;
        assert_int_equal(s, AMPC_NO_MEMORY);
        scratch_expect(t, "out of memory");
    }
}

/* Text that jansson would format differently, valid and invalid. */
TEST(test_text_of_other_writers)
{
    static const char text[] = "{ \"a tensor with a name of some length\" : [1, 2.50, 1e3, \"\\u00e4\"], \"b\": {} }";
    static const char wrong[] = "{ \"a tensor with a name of some length\" : [1, 2.50, 1e3, \"\\u00e4\"], \"b\": }";
    json_error_t e;
    json_t *root;
    for (uint64_t n = 1;; n++) {
        fail_call(n);
        ampc_status s = rt_json_parse(text, sizeof text - 1, false, &e, &root);
        bool failed = calls >= n;
        fail_call(0);
        assert_true(s == AMPC_OK || (failed && s == AMPC_NO_MEMORY && !root));
        if (root) assert_int_equal(json_array_size(json_object_get(root, "a tensor with a name of some length")), 4);
        json_decref(root);
        fail_call(n);
        s = rt_json_parse(wrong, sizeof wrong - 1, false, &e, &root);
        failed = failed || calls >= n;
        fail_call(0);
        assert_true((s == AMPC_REJECTED && *e.text) || (failed && s == AMPC_NO_MEMORY));
        assert_null(root);
        if (!failed) break;
    }
}

/* The lexer's buffer grows at each power of two: tests keys, and the numbers after them, that end there. */
TEST(test_tokens_of_all_lengths)
{
    char text[256], key[80];
    for (int length = 1; length < 70; length++) {
        snprintf(key, sizeof key, "%.*s", length,
                 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
        int n = snprintf(text, sizeof text, "{\"%s\":0.%.*s}", key, length,
                         "123456789012345678901234567890123456789012"
                         "345678901234567890123456789");
        for (uint64_t k = 1, failed = 1; failed; k++) {
            json_error_t e;
            json_t *root;
            fail_call(k);
            ampc_status s = rt_json_parse(text, (size_t)n, false, &e, &root);
            failed = calls >= k;
            fail_call(0);
            assert_true(s == AMPC_OK || (failed && s == AMPC_NO_MEMORY));
            if (s == AMPC_OK) assert_true(json_is_real(json_object_get(root, key)));
            json_decref(root);
        }
    }
}

int main(void)
{
    json_set_alloc_funcs(failing_malloc, free);
    return test_run();
}
