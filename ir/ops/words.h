/* words.h - the vocabularies of attributes as numbers, for host and device code. The value of a ONE_OF attribute is the
 * position of its word: IR_WORD(pad, reflect) is 1. */
#ifndef AMPC_WORDS_H
#define AMPC_WORDS_H

#define WORDS(set) \
    enum ir_words_##set \
    {
#define WORD(set, word) IR_WORD(set, word),
#define IR_WORD(set, word) IR_WORD_##set##_##word
/* clang-format off */
#define END };
/* clang-format on */
#include "ir/ops/words.def"

#endif
