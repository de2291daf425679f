/* main.c - each of the three programs: which one, the build says (AMPC_PROGRAM).
 *
 * All that they do is in the library, so that it is on the disk once. The symbol is not part of the API: its version
 * is that of one release, and a program refuses to start with the library of another. */
#include "tools/tool.h"

int main(int argc, char **argv) { return AMPC_PROGRAM(argc, argv); }
