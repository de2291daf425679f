/* test_links.c - descriptions of links, and the time of a reduction, with values by hand. */
#include "passes/train/links.h"
#include "tests/unit/scratch.h"

#include <math.h>

static link_model links(int64_t host)
{
    return (link_model){.host = host, .inside = {100e9, 1e-6}, .between = {10e9, 10e-6}, .overlap = true};
}

static void assert_seconds(double seconds, double expected)
{
    if (!(fabs(seconds - expected) <= 1e-9 * expected)) fail_msg("%.12g s instead of %.12g s", seconds, expected);
}

/* ---- the formula --------------------------------------------------------------------------------- */

TEST(test_one_rank_sends_nothing)
{
    const link_model l = links(8);
    assert_true(links_all_reduce(&l, 1, 1e9) == 0 && links_sent(1, 1e9) == 0);
}

/* 8 ranks of a host, 800 MB. Ring: 2 * 7/8 * 800e6 / 100e9 = 14 ms, 14 messages of 1 us. The tree needs 16 ms. */
TEST(test_large_reductions_are_rings)
{
    const link_model l = links(8);
    assert_seconds(links_all_reduce(&l, 8, 800e6), 14.014e-3);
    assert_true(links_sent(8, 800e6) == 1400e6);
}

/* 8 KB: the ring has 14 messages of 1 us, the tree 6, and 2 * 8000 / 100e9 = 0.16 us. */
TEST(test_small_reductions_are_trees)
{
    const link_model l = links(8);
    assert_seconds(links_all_reduce(&l, 8, 8000), 6.16e-6);
}

/* 4 hosts of 8 ranks: 14.014 ms inside; between: 2 * 3/4 * 800e6 / 10e9 = 120 ms, 6 messages of 10 us. */
TEST(test_hosts_reduce_inside_and_between)
{
    const link_model l = links(8);
    assert_int_equal(links_hosts(&l, 32), 4);
    assert_int_equal(links_hosts(&l, 33), 5);
    assert_seconds(links_all_reduce(&l, 32, 800e6), 14.014e-3 + 120.06e-3);
}

/* 512 hosts: a tree of 9 levels, 2 * 8e6 / 10e9 = 1.6 ms and 18 messages; the ring has 1022 messages. */
TEST(test_many_hosts_are_a_tree)
{
    const link_model l = links(1);
    assert_seconds(links_all_reduce(&l, 512, 8e6), 1.78e-3);
}

/* ---- the file ------------------------------------------------------------------------------------ */

static ampc_status load(scratch *t, const char *text, link_model *l)
{
    scratch_write(t, "links", text, strlen(text));
    return links_load(scratch_path(t, "links"), t->d, l);
}

TEST_SCRATCH(test_a_description_is_read)
{
    link_model l;
    assert_int_equal(
        load(t,
             "# two machines\nhost = 4\n inside=450 GB/s 5 us  # one of them\nbetween = 400 Gbit/s 0.01 ms\n\n"
             "overlap = no\nforward = 0.25\r\n",
             &l),
        AMPC_OK);
    assert_int_equal(l.host, 4);
    assert_seconds(l.inside.bandwidth, 450e9);
    assert_seconds(l.inside.latency, 5e-6);
    assert_seconds(l.between.bandwidth, 50e9);
    assert_seconds(l.between.latency, 10e-6);
    assert_true(!l.overlap && l.seconds[IR_FORWARD] == 0.25 && l.seconds[IR_BACKWARD] == 0);
}

static const struct row {
    const char *text, *message;
} refused[] = {
    {"host = 8\nhost", "links:2:1: error: expected 'KEY = VALUE', found 'host'"},
    {"host = 0", "links:1:1: error: host must be an integer from 1 to 65536, not '0'"},
    {"host =", "links:1:1: error: host needs a value"},
    {"host = 8\nhost = 8", "links:2:1: error: host is given twice"},
    {"= 8", "links:1:1: error: a key is missing before '='"},
    {"insde = 1 GB/s 1 us", "links:1:1: error: unknown key 'insde' of a description of links: expected host, inside, "
                            "between, overlap, forward, backward or update; did you mean inside?"},
    {"inside = 1 GB/s",
     "links:1:1: error: inside must be a bandwidth and a latency, such as '450 GB/s 5 us', not '1 GB/s'"},
    {"between = 1 GB 1 us", "not '1 GB 1 us': units are MB/s, GB/s, TB/s, Mbit/s, Gbit/s, Tbit/s, ns, us, ms and s"},
    {"between = 0 GB/s 1 us", "not '0 GB/s 1 us'"},
    {"between = -1 GB/s 1 us", "not '-1 GB/s 1 us'"},
    {"between = 1 GB/s 1 us 2", "not '1 GB/s 1 us 2'"},
    {"between = nan GB/s 1 us", "not 'nan GB/s 1 us'"},
    {"overlap = maybe", "overlap must be no or yes, not 'maybe'"},
    {"update = -1", "update must be a number from 0 to 1000000, not '-1'"},
};

TEST_SCRATCH(test_bad_lines_are_refused)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        link_model l;
        diag_clear(t->d);
        assert_int_equal(load(t, refused[i].text, &l), AMPC_REJECTED);
        if (!strstr(diag_first_error(t->d), refused[i].message))
            fail_msg("'%s' instead of '%s'", diag_first_error(t->d), refused[i].message);
    }
}

TEST_SCRATCH(test_every_bad_line_is_reported)
{
    link_model l;
    assert_int_equal(load(t, "host = 0\nspeed = 1\n", &l), AMPC_REJECTED);
    assert_int_equal(diag_count(t->d, DIAG_ERROR), 2);
}
