/* text.h - declarations shared by the printer, the parser and the verifier of IR text (docs/ir.md). */
#ifndef AMPC_TEXT_H
#define AMPC_TEXT_H

#include "ir/base/text_buffer.h"
#include "ir/graph/ir.h"

#define IR_TEXT_HEAD "ampc-ir"
#define IR_TEXT_VERSION 3         /* parse_v1.c and parse_v2.c read older texts */
#define IR_TEXT_SEALED "sealed"   /* in the first line: the last line holds a checksum */
enum { IR_INLINE_ELEMENTS = 16 }; /* constants with more elements are printed as bytes */

/* Names by enum value. */
extern const char *const ir_phase_names[IR_PHASE_COUNT];
extern const char *const ir_storage_kind_names[]; /* param, state, const */

/* ---- seal.c ---------------------------------------------------------------------------------------------- */

enum { IR_SEAL_DIGITS = 16 };

/* Computes the XXH3-64 of the text before its last line, in hexadecimal. */
void ir_seal(const char *text, size_t length, char out[IR_SEAL_DIGITS + 1]);

/* ---- print.c --------------------------------------------------------------------------------------------- */

/* The line (1-based) of the dump that shows a node, storage or graph; in printing order. */
typedef struct ir_line {
    const void *what;
    int number;
    size_t start, length; /* in the dump, excluding the newline */
} ir_line;

typedef struct ir_dump {
    const char *text;
    VEC(ir_line) lines;
} ir_dump;

ir_dump ir_dump_make(const ir_module *m, arena *a);

/* ---- quote.c --------------------------------------------------------------------------------------------- */

void ir_add_string(text_buffer *t, const char *s);                     /* in quotes */
void ir_add_name(text_buffer *t, const char *sigil, const char *name); /* "%x", in quotes where necessary */
void ir_add_note(text_buffer *t, const char *s, size_t n);             /* on one line */
bool ir_name_is_plain(const char *name);                               /* needs no quotes */

/* ---- print_training.c ------------------------------------------------------------------------------------ */

/* The statements about the training of the module, one per line; `a` is for copies. */
void ir_add_training(text_buffer *t, const ir_module *m, arena *a);
/* " facts(read, numbered) by read", or nothing. */
void ir_add_decision(text_buffer *t, const ir_storage *s);

/* ---- lex.c: text -> tokens ------------------------------------------------------------------------------- */

typedef enum ir_token_kind {
    IR_TOKEN_END,
    IR_TOKEN_WORD,   /* matmul, f32, true, _ */
    IR_TOKEN_NUMBER, /* -1.5e-3: starts with a digit, '-' or '+'; not validated */
    IR_TOKEN_STRING, /* decoded */
    IR_TOKEN_RESULT, /* %name, without the '%' and quotes */
    IR_TOKEN_GLOBAL, /* @name */
    IR_TOKEN_MARK,   /* one of { } ( ) [ ] = : , ! * */
    IR_TOKEN_BAD     /* text holds the error */
} ir_token_kind;

typedef struct ir_token {
    ir_token_kind kind;
    const char *text;  /* in the lexer's arena; for a mark, the character */
    size_t start, end; /* byte offsets in the source */
    size_t line_start; /* offset of the line with `start` */
    int line;          /* 1-based */
} ir_token;

typedef struct ir_lexer {
    arena *arena;
    const char *text;
    size_t length, at, line_start;
    int line;
    ir_token token;   /* the current one */
    const char *note; /* comment that ended the line of the previous token, or NULL */
} ir_lexer;

/* Starts at the first token. The text need not be NUL-terminated and must outlive the lexer. */
ir_lexer ir_lexer_start(const char *text, size_t length, arena *a);
void ir_lexer_next(ir_lexer *l);
/* With '[' as the current token: makes the text up to ',' or ']', outside quotes and parentheses and without blanks,
 * the current token (a WORD, possibly empty; or BAD). The next call of ir_lexer_next returns the ',' or ']'. */
void ir_lexer_next_dim(ir_lexer *l);

#endif
