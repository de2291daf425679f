/* main.c - the main function of all three programs; the build defines which one (AMPC_PROGRAM).
 *
 * Everything else is in the library, so that its code is on disk once. The symbol is not part of the API: its version
 * is that of one release, and a program refuses to start with the library of another. */
#include "tools/tool.h"

int main(int argc, char **argv) { return program_main(AMPC_PROGRAM, argc, argv); }
