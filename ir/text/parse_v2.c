/* parse_v2.c - what IR text before version 3 (ampc 0.2) wrote otherwise. */
#include "ir/text/parser.h"

ampc_status ir_parse_held(ir_parser *p, ir_storage *s)
{
    static const struct {
        const char *word;
        uint32_t facts;
    } reasons[] = {{"node", IR_TENSOR(node)}, {"name", IR_TENSOR(generated)}, {"declared", IR_TENSOR(buffer)},
                   {"mask", IR_TENSOR(mask)}, {"scale", IR_TENSOR(scale)},    {"setting", IR_TENSOR(setting)},
                   {"read", IR_TENSOR(read)}, {"apart", IR_TENSOR(apart)}};
    if (!ir_accept_word(p, "held")) return AMPC_OK;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (ir_accept_word(p, reasons[i].word)) {
            s->facts = reasons[i].facts;
            return AMPC_OK;
        }
    return ir_fail_expected(p, "node, name, declared, mask, read or apart");
}
