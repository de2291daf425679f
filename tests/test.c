/* test.c - the tests that have registered themselves. */
#include "tests/test.h"

enum { MOST = 128 };
static struct {
    int line;
    struct CMUnitTest test;
} added[MOST];
static size_t count;
static CMFixtureFunction group_setup, group_teardown;

void test_add(const char *name, int line, CMUnitTestFunction run, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    size_t at = count++;
    if (at == MOST) abort();
    for (; at > 0 && added[at - 1].line > line; at--) added[at] = added[at - 1];
    added[at].line = line;
    added[at].test = (struct CMUnitTest){name, run, setup, teardown, NULL};
}

void test_add_group(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    group_setup = setup;
    group_teardown = teardown;
}

int test_run(void)
{
    struct CMUnitTest tests[MOST];
    for (size_t i = 0; i < count; i++) tests[i] = added[i].test;
    return count == 0 ? 1 : _cmocka_run_group_tests("tests", tests, count, group_setup, group_teardown);
}
