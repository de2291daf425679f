/* fact_rules.c - which facts about a tensor hold it constant. */
#include "passes/train/params.h"

/* The first one that applies decides. */
static const params_rule rules[] = {
    {IR_RULE_read, .needs = IR_TENSOR(read), .always = true, .firm = true},
    {IR_RULE_setting, .needs = IR_TENSOR(setting), .always = true},
    {IR_RULE_apart, .needs = IR_TENSOR(apart), .firm = true},
    {IR_RULE_scale, .needs = IR_TENSOR(scale)},
    {IR_RULE_declared, .needs = IR_TENSOR(buffer)},
    {IR_RULE_name, .needs = IR_TENSOR(generated), .unless = IR_TENSOR(parameter), .single = true},
    {IR_RULE_node, .needs = IR_TENSOR(node)},
    {IR_RULE_mask, .needs = IR_TENSOR(mask)},
};

const params_rule *params_fact_rule(const ir_storage *s)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const params_rule *r = &rules[i];
        if ((s->facts & r->needs) && !(s->facts & r->unless) && (!r->single || params_is_single(s))) return r;
    }
    return NULL;
}

bool params_rule_is_general(const ir_storage *s, const params_rule *r)
{
    return r->always || s->facts & IR_TENSOR(unused) || (s->facts & IR_TENSOR(numbered) && params_is_single(s));
}
