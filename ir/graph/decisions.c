/* decisions.c - the tables of decisions.def. */
#include "ir/graph/decisions.h"

#include <stddef.h>

const char *const ir_tensor_facts[] = {
#define FACT(word, sentence) #word,
#include "ir/graph/decisions.def"
    NULL};

const ir_rule_info ir_rules[IR_RULE_COUNT] = {
#define RULE(word, outcome, sentence) {#word, IR_##outcome, sentence},
#include "ir/graph/decisions.def"
};

const char *const ir_outcomes[] = {[IR_TRAINED] = "trained",
                                   [IR_FROZEN] = "frozen",
                                   [IR_HELD] = "held constant",
                                   [IR_CONSTANT] = "constant",
                                   [IR_BUFFER] = "buffer"};
