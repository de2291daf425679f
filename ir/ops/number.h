/* number.h - elements as text: the numbers in IR text, options, recipes and reports. */
#ifndef AMPC_NUMBER_H
#define AMPC_NUMBER_H

#include "ir/ops/dtype.h"

enum { IR_NUMBER_SIZE = 40 }; /* maximum length of a printed number */

/* Prints v as the shortest text that reads back as the same value of float type t; also inf, -inf, nan. */
void ir_float_print(char out[IR_NUMBER_SIZE], ir_dtype t, double v);
/* Prints one element. Returns false if reading would not restore its bytes (a NaN with a payload, a bool other than 0
 * and 1). */
bool ir_element_print(char out[IR_NUMBER_SIZE], ir_dtype t, const void *p);
/* Parses text that must be exactly one number without blanks, in any locale. Integers must fit in 64 bits. */
bool ir_float_parse(const char *text, double *out);
bool ir_int_parse(const char *text, int64_t *out);
/* Parses one element. Returns false if the text is not one, or is an integer that the type cannot hold. */
bool ir_element_parse(const char *text, ir_dtype t, void *p);

#endif
