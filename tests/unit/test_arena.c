/* test_arena.c - arenas, growable arrays, maps, interning and checked arithmetic, also when memory runs out. */
#include "ir/base/arena.h"
#include "ir/base/text_buffer.h"
#include "tests/test.h"

TEST(test_alloc_is_aligned_and_zeroed)
{
    arena *a = arena_new(0);
    static const size_t sizes[] = {0, 1, 7, 16, 17, 4096, 40000, 70000, 3 << 20, 5, 64 << 10};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = arena_alloc(a, sizes[i]);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(p[k], 0);
        if (sizes[i]) memset(p, 0xee, sizes[i]);
    }
    assert_true(arena_used(a) >= (3 << 20));
    arena_free(a);
    arena_free(NULL);
}

TEST(test_small_allocations_continue_after_a_large_one)
{
    arena *a = arena_new(0);
    char *first = arena_alloc(a, 16);
    arena_alloc(a, 10 << 20);
    char *second = arena_alloc(a, 16);
    assert_in_range((uintptr_t)second, (uintptr_t)first + 16, (uintptr_t)first + 64);
    arena_free(a);
}

TEST(test_strings)
{
    arena *a = arena_new(0);
    assert_string_equal(arena_strdup(a, "matmul"), "matmul");
    assert_string_equal(arena_strdup(a, ""), "");
    assert_string_equal(arena_strndup(a, "matmul", 3), "mat");
    assert_string_equal(arena_strndup(a, "mm", 30), "mm");
    assert_string_equal(arena_printf(a, "%s.%d", "w", 12), "w.12");
    arena_free(a);
}

TEST(test_cleared_is_empty_and_zeroed)
{
    arena *a = arena_new(8 << 20);
    for (int round = 0; round < 20; round++) {
        const char *name = arena_intern(a, "name");
        assert_string_equal(name, "name");
        for (size_t size = 1; size < 1 << 20; size = size * 3 + 1) {
            unsigned char *p = arena_alloc(a, size);
            for (size_t k = 0; k < size; k++) assert_int_equal(p[k], 0);
            memset(p, 0xee, size);
        }
        arena_clear(a);
        assert_int_equal(arena_used(a), 0);
    }
    arena_free(a);
    a = arena_new(0);
    arena_clear(a);
    arena_free(a);
}

TEST(test_vec_grows_and_keeps_its_items)
{
    arena *a = arena_new(0);
    VEC(int) v = {0};
    for (int i = 0; i < 10000; i++) vec_push(a, &v, i * 3);
    assert_int_equal(v.count, 10000);
    for (int i = 0; i < 10000; i++) assert_int_equal(v.items[i], i * 3);
    arena_free(a);
}

TEST(test_map_and_interning)
{
    arena *a = arena_new(0);
    strmap *m = strmap_new(a);
    static int values[1000];
    char key[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "tensor_%d", i);
        assert_null(strmap_get(m, key));
        strmap_put(m, key, &values[i]);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "tensor_%d", i);
        assert_ptr_equal(strmap_get(m, key), &values[i]);
    }
    strmap_put(m, "tensor_7", &values[8]);
    assert_ptr_equal(strmap_get(m, "tensor_7"), &values[8]);
    assert_null(strmap_get(m, ""));
    strmap_put(m, "", &values[1]);
    assert_ptr_equal(strmap_get(m, ""), &values[1]);

    strcpy(key, "name");
    const char *one = arena_intern(a, key);
    assert_ptr_not_equal(one, key);
    assert_ptr_equal(arena_intern(a, "name"), one);
    assert_ptr_not_equal(arena_intern(a, "other"), one);
    arena_free(a);
}

/* Runs `body` on the arena. Returns true if it ran out of memory. */
static bool runs_out(arena *a, void (*subgraph)(arena *))
{
    jmp_buf guard;
    jmp_buf *before = arena_set_guard(a, &guard);
    if (setjmp(guard)) {
        arena_set_guard(a, before);
        return true;
    }
    subgraph(a);
    arena_set_guard(a, before);
    return false;
}

static void alloc_a_lot(arena *a)
{
    for (int i = 0; i < 100; i++) arena_alloc(a, 1000);
}

static void alloc_overflowing_array(arena *a) { arena_array(a, SIZE_MAX / 2, 3); }

static void alloc_impossible(arena *a) { arena_alloc(a, SIZE_MAX - 5); }

TEST(test_limit)
{
    arena *a = arena_new(50000);
    assert_true(runs_out(a, alloc_a_lot));
    assert_in_range(arena_used(a), 48000, 50000);
    arena_free(a);
    a = arena_new(200000);
    assert_false(runs_out(a, alloc_a_lot));
    arena_free(a);
}

TEST(test_overflow_counts_as_out_of_memory)
{
    arena *a = arena_new(0);
    assert_true(runs_out(a, alloc_overflowing_array));
    assert_true(runs_out(a, alloc_impossible));
    assert_false(runs_out(a, alloc_a_lot));
    arena_free(a);
}

static void use_everything(arena *a)
{
    VEC(char *) v = {0};
    strmap *m = strmap_new(a);
    for (int i = 0; i < 20; i++) {
        char *name = arena_printf(a, "n%d", i);
        vec_push(a, &v, name);
        strmap_put(m, name, name);
        arena_intern(a, name);
    }
}

/* Whichever allocation fails, the guard is reached, nothing leaks, and the arena stays usable. */
TEST(test_fail_the_nth_allocation)
{
    uint64_t n = 1;
    for (bool failed = true; failed; n++) {
        arena *a = arena_new(0);
        arena_fail_after(a, n);
        failed = runs_out(a, use_everything);
        if (failed) assert_false(runs_out(a, use_everything));
        arena_free(a);
    }
    assert_in_range(n, 70, 200);
}

TEST(test_guards_nest)
{
    jmp_buf outer;
    arena *a = arena_new(0);
    assert_null(arena_set_guard(a, &outer));
    assert_true(runs_out(a, alloc_impossible));
    assert_ptr_equal(arena_set_guard(a, NULL), &outer);
    arena_free(a);
}

TEST(test_checked_arithmetic)
{
    static const struct {
        int64_t a, b, product, sum; /* product, sum: -1 for overflow */
    } rows[] = {
        {0, 0, 0, 0},
        {3, 4, 12, 7},
        {INT64_MAX, 1, INT64_MAX, -1},
        {INT64_MAX, 2, -1, -1},
        {INT64_C(1) << 32, INT64_C(1) << 31, -1, (INT64_C(1) << 32) + (INT64_C(1) << 31)},
        {INT64_C(1) << 31, INT64_C(1) << 31, INT64_C(1) << 62, INT64_C(1) << 32},
        {INT64_MAX, 0, 0, INT64_MAX},
        {-1, 1, -1, -1},
        {1, -1, -1, -1},
        {INT64_MIN, 0, -1, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t got = 0;
        assert_int_equal(checked_mul(rows[i].a, rows[i].b, &got), rows[i].product >= 0);
        if (rows[i].product >= 0) assert_int_equal(got, rows[i].product);
        assert_int_equal(checked_add(rows[i].a, rows[i].b, &got), rows[i].sum >= 0);
        if (rows[i].sum >= 0) assert_int_equal(got, rows[i].sum);
    }
}

/* In memory, in an arena and in arrays of every size. */
TEST(test_text)
{
    char array[32];
    const char *const expected = "a=1, b\xc3\xa4, c";
    text_buffer all[] = {{0}, {.arena = arena_new(0)}};
    for (size_t i = 0; i < 2 + sizeof array; i++) {
        text_buffer t = i < 2 ? all[i] : text_in(array, i - 1);
        text_add(&t, "a=%d", 1);
        text_add_item(&t, ", ", "b\xc3\xa4");
        text_add_bytes(&t, ", c!", 3);
        assert_int_equal(t.failed, i >= 2 && i - 1 <= strlen(expected));
        assert_int_equal(t.length, t.failed ? i - 2 : strlen(expected));
        assert_memory_equal(t.data, expected, t.length);
        assert_int_equal(t.data[t.length], 0);
        if (i == 0) free(text_finish(&t));
    }
    arena_free(all[1].arena);
}
