/* real.h - templates over the carrier type in C: a body file is included once per type after
 * `#define REAL float`; R(name) is then name_float. */
#ifndef KERNELS_REAL_H
#define KERNELS_REAL_H

#define K_PASTE_(a, b) a##_##b
#define K_PASTE(a, b) K_PASTE_(a, b)
#define R(name) K_PASTE(name, REAL)

#endif
