/* test.h - a test is written in one place: TEST(name) { .. } is a function that the program runs by itself, in the order of
 * the lines of its file. main is in tests/main.c, for programs that have no other. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void test_add(const char *name, int line, CMUnitTestFunction run, CMFixtureFunction setup, CMFixtureFunction teardown);
/* The set-up and the end of all tests together, whose state is that of each. */
void test_add_group(CMFixtureFunction setup, CMFixtureFunction teardown);
/* Runs the tests, and returns the number of those that failed. */
int test_run(void);

#define TEST_ADD(name, setup, teardown) \
    __attribute__((constructor)) static void name##_add(void) \
    { \
        test_add(#name, __LINE__, name##_run, setup, teardown); \
    }
/* A test without a state. */
#define TEST(name) \
    static void name(void); \
    static void name##_run(void **state_) \
    { \
        (void)state_; \
        name(); \
    } \
    TEST_ADD(name, NULL, NULL) \
    static void name(void)
/* A test whose `parameter`, such as `scratch *t`, is what the set-up made; a fixture has a macro of its own for it. */
#define TEST_WITH(setup, teardown, parameter, name) \
    static void name(parameter); \
    static void name##_run(void **state_) { name(*state_); } \
    TEST_ADD(name, setup, teardown) \
    static void name(__attribute__((unused)) parameter)
#define TEST_GROUP(setup, teardown) \
    __attribute__((constructor)) static void add_group(void) { test_add_group(setup, teardown); }

#endif
