/* test_ops_programs.c - random programs give the bits that their ops give one by one. OPS_PROGRAMS in the environment:
 * how many; OPS_PROGRAM: the seed of the only one. */
#include "tests/ops/programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* How many, and how large: an away device may be one that is imitated. */
enum { PROGRAMS = 2000, PROGRAMS_AWAY = 200, PROGRAMS_BRIEF = 20, MOST = 6000, MOST_AWAY = 3000, MOST_RARELY = 150000 };

static int64_t number(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

static void check_one(uint64_t seed)
{
    ops_program p;
    ops_program_make(&p, seed, ops_on->away ? MOST_AWAY : seed % 50 ? MOST : MOST_RARELY);
    ops_program_expect(&p);
    ops_program_check(&p, 1);
    if (!ops_brief) ops_program_check(&p, 4);
    ops_program_free(&p);
}

static void programs_give_the_bits_of_their_ops(void **state)
{
    (void)state;
    int64_t n = number("OPS_PROGRAMS", ops_brief ? PROGRAMS_BRIEF : ops_on->away ? PROGRAMS_AWAY : PROGRAMS);
    int64_t only = number("OPS_PROGRAM", -1);
    for (int64_t i = 0; i < n && only < 0; i++) check_one((uint64_t)i);
    if (only >= 0) check_one((uint64_t)only);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_give_the_bits_of_their_ops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv) { return ops_main(argc, argv, run); }
