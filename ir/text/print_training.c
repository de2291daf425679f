/* print_training.c - the text of what a module knows of its training: see parse_training.c. */
#include "ir/text/text.h"

const char *ir_print_decision(const ir_storage *s, arena *a)
{
    const char *text = "";
    for (int i = 0; i < IR_TENSOR_FACT_COUNT; i++)
        if (s->facts & 1U << i) text = arena_printf(a, "%s%s%s", text, *text ? ", " : " facts(", ir_tensor_facts[i]);
    if (*text) text = arena_printf(a, "%s)", text);
    return s->rule ? arena_printf(a, "%s by %s", text, ir_rules[s->rule].word) : text;
}
