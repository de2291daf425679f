/* real.h - templates over the carrier type: a body file is included once per type after `#define REAL float`; R(name)
 * is then name_float. */
#ifndef AMPC_REAL_H
#define AMPC_REAL_H

#define REAL_PASTE_(a, b) a##_##b
#define REAL_PASTE(a, b) REAL_PASTE_(a, b)
#define R(name) REAL_PASTE(name, REAL)

#endif
