/* parse_training.c - parses what a module knows of its training (docs/ir.md). */
#include "ir/text/parser.h"

static ampc_status parse_facts(ir_parser *p, ir_storage *s)
{
    TRY(ir_need_mark(p, "("));
    do {
        int i = 0;
        while (i < IR_TENSOR_FACT_COUNT && !ir_accept_word(p, ir_tensor_facts[i])) i++;
        if (i == IR_TENSOR_FACT_COUNT) return ir_fail_expected(p, "a fact, such as read");
        s->facts |= 1U << i;
    } while (ir_accept_mark(p, ","));
    return ir_need_mark(p, ")");
}

ampc_status ir_parse_decision(ir_parser *p, ir_storage *s)
{
    if (p->version < 3) return ir_parse_held(p, s);
    if (ir_accept_word(p, "facts")) TRY(parse_facts(p, s));
    if (!ir_accept_word(p, "by")) return AMPC_OK;
    for (int i = 0; i < IR_RULE_COUNT; i++)
        if (ir_accept_word(p, ir_rules[i].word)) {
            s->rule = (ir_rule)i;
            return AMPC_OK;
        }
    return ir_fail_expected(p, "a rule, such as freeze");
}
