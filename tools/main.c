/* main.c - the main function of all three programs; the build defines which one (AMPC_PROGRAM).
 *
 * All other code is in the library, so it is installed only once. program_main is not part of the API: its symbol
 * version is specific to a release, so a program refuses to start with the library of another release. */
#include "tools/tool.h"

int main(int argc, char **argv) { return program_main(AMPC_PROGRAM, argc, argv); }
