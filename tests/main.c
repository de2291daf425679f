/* main.c - runs the tests of a program, or those that match a pattern: unit_params 'the_*' */
#include "tests/test.h"

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return test_run();
}
