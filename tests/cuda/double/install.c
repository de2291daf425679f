/* install.c - linked into a program, installs the double as its CUDA provider before main begins. */
#include "tests/cuda/double/inner.h"

__attribute__((constructor)) static void install(void) { cuda_api_provide(&double_provider); }
