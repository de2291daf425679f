/* decisions.h - why a tensor of the model is trained or not: the facts of the importer, the decision of pass params. */
#ifndef AMPC_DECISIONS_H
#define AMPC_DECISIONS_H

typedef enum ir_tensor_fact {
#define FACT(word, sentence) IR_TENSOR_##word,
#include "ir/graph/decisions.def"
    IR_TENSOR_FACT_COUNT
} ir_tensor_fact;

/* The fact as a bit of ir_storage.facts. */
#define IR_TENSOR(word) (1U << IR_TENSOR_##word)

typedef enum ir_outcome { IR_TRAINED, IR_FROZEN, IR_HELD, IR_CONSTANT, IR_BUFFER } ir_outcome;

typedef enum ir_rule {
#define RULE(word, outcome, sentence) IR_RULE_##word,
#include "ir/graph/decisions.def"
    IR_RULE_COUNT
} ir_rule;

typedef struct ir_rule_info {
    const char *word;
    ir_outcome outcome;
    const char *sentence;
} ir_rule_info;

extern const char *const ir_tensor_facts[IR_TENSOR_FACT_COUNT + 1]; /* their words, and NULL */
extern const ir_rule_info ir_rules[IR_RULE_COUNT];
extern const char *const ir_outcomes[]; /* "held constant" */

#endif
