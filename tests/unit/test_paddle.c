/* test_paddle.c - the PaddlePaddle profiles compared with PaddlePaddle's own pass: for small programs, the number of
 * inserted casts and the type of every node's first result. The programs come from PaddlePaddle's tests or were run
 * through its pass; tests/paddle/compare.py does the same with random programs.
 *
 * Casts already in the model are not counted; graph outputs are not restored to f32. */
#include "tests/unit/paddle.h"
#include "tests/unit/scratch.h"

#define CONV "{strides=[1,1], pads=[0,0,0,0], dilations=[1,1]}"
#define CONV_SAME "{strides=[1,1], pads=[1,1,1,1], dilations=[1,1]}"
#define BN_PARAMS(id) \
    "param @scale" id " : f32[4] = zero\nparam @bias" id " : f32[4] = zero\nstate @mean" id \
    " : f32[4] = zero\nstate @var" id " : f32[4] = zero\n"
#define BN(id, x, shape) \
    "  %bn" id ", %m" id ", %v" id ", %sm" id ", %sv" id " = batch_norm " x ", @scale" id ", @bias" id ", @mean" id \
    ", @var" id " {training=true} : f32" shape ", f32[4], f32[4], f32[4], f32[4] !BatchNormalization \"bn" id "\"\n"
#define MEAN(x) "  %mean = reduce_mean " x " {axes=[0,1], keepdims=false} : f32[] !ReduceMean \"mean\"\n"

static const program black_first = {"param @w : f32[4,4] = zero\n", "@x : f32[4,4]",
                                    "  %m = matmul @x, @w, _ : f32[4,4] !MatMul \"m\"\n"
                                    "  %e = exp @x : f32[4,4] !Exp \"e\"\n"
                                    "  %add = add %e, %m : f32[4,4] !Add \"add\"\n"
                                    "  output \"y\" = %add\n"};

static const program conv_cast_linear = {
    "param @w : f32[6,1,3,3] = zero\nparam @b : f32[6] = zero\nparam @w2 : f32[96,4] = zero\nparam @b2 : "
    "f32[4] = zero\n",
    "@x : f32[2,1,6,6]",
    "  %conv = conv @x, @w, _ " CONV " : f32[2,6,4,4] !Conv \"conv\"\n"
    "  %r = reshape @b {shape=[1,6,1,1]} : f32[1,6,1,1] !Reshape \"reshape\"\n"
    "  %a = add %conv, %r : f32[2,6,4,4] !Add \"add\"\n"
    "  %u = cast %a {to=f32} : f32[2,6,4,4] !Cast \"cast\"\n"
    "  %e = relu %u : f32[2,6,4,4] !Relu \"relu\"\n"
    "  %f = reshape %e {shape=[2,96]} : f32[2,96] !Flatten \"flatten\"\n"
    "  %m = matmul %f, @w2, _ : f32[2,4] !MatMul \"matmul\"\n"
    "  %d = add %m, @b2 : f32[2,4] !Add \"bias\"\n"
    "  %s = softmax %d : f32[2,4] !Softmax \"softmax\"\n" MEAN("%s") "  output \"y\" = %mean\n"};

/* A scalar factor of the model is an attribute at every level. */
static const program scaled = {"param @k : f32[] = 2\n", "@x : f32[4,4]",
                               "  %s = mul @x, @k : f32[4,4] !Mul \"s\"\n"
                               "  %m = matmul %s, @x, _ : f32[4,4] !MatMul \"m\"\n"
                               "  output \"y\" = %m\n"};

static const program shared_casts = {"param @w : f32[4,4] = zero\n", "@x : f32[4,4]",
                                     "  %a = matmul @x, @w, _ : f32[4,4] !MatMul \"a\"\n"
                                     "  %b = matmul @x, @w, _ : f32[4,4] !MatMul \"b\"\n"
                                     "  %add = add %a, %b : f32[4,4] !Add \"add\"\n"
                                     "  %e = exp %add : f32[4,4] !Exp \"exp\"\n"
                                     "  %l = log %add : f32[4,4] !Log \"log\"\n"
                                     "  %s = sub %e, %l : f32[4,4] !Sub \"sub\"\n"
                                     "  output \"y\" = %s\n"};

static const program user_casts = {"param @w : f32[4,4] = zero\nparam @w2 : f32[4,4] = zero\n", "@x : f32[4,4]",
                                   "  %a = matmul @x, @w, _ : f32[4,4] !MatMul \"a\"\n"
                                   "  %c = cast %a {to=f32} : f32[4,4] !Cast \"cast\"\n"
                                   "  %r = relu %c : f32[4,4] !Relu \"relu\"\n"
                                   "  %b = matmul %r, @w2, _ : f32[4,4] !MatMul \"b\"\n"
                                   "  %i = cast %b {to=i64} : i64[4,4] !Cast \"int\"\n"
                                   "  output \"y\" = %i\n"};

static const program conv_bn = {"param @w : f32[4,4,3,3] = zero\n" BN_PARAMS("1"), "@x : f32[2,4,8,8]",
                                "  %c = conv @x, @w, _ " CONV " : f32[2,4,6,6] !Conv \"conv\"\n" BN(
                                    "1", "%c", "[2,4,6,6]") "  %r = relu %bn1 : f32[2,4,6,6] !Relu \"relu\"\n"
                                                            "  %p, %i = max_pool %r {kernel=[2,2], strides=[2,2], "
                                                            "pads=[0,0,0,0], dilations=[1,1]} : f32[2,4,3,3], "
                                                            "i64[2,4,3,3] !MaxPool \"pool\"\n"
                                                            "  output \"y\" = %p\n  output \"m\" = %m1\n"};

static const program residual = {
    "param @w1 : f32[4,4,3,3] = zero\nparam @w2 : f32[4,4,3,3] = zero\nparam @fw : f32[64,5] = zero\n"
    "param @fb : f32[5] = zero\n" BN_PARAMS("1") BN_PARAMS("2"),
    "@x : f32[2,4,8,8], @label : i64[2]",
    "  %c1 = conv @x, @w1, _ " CONV_SAME " : f32[2,4,8,8] !Conv \"conv1\"\n" BN(
        "1", "%c1", "[2,4,8,8]") "  %r1 = relu %bn1 : f32[2,4,8,8] !Relu \"relu1\"\n"
                                 "  %c2 = conv %r1, @w2, _ " CONV_SAME " : f32[2,4,8,8] !Conv \"conv2\"\n" BN(
                                     "2", "%c2",
                                     "[2,4,8,8]") "  %a = add %bn2, %r1 : f32[2,4,8,8] !Add \"residual\"\n"
                                                  "  %r2 = relu %a : f32[2,4,8,8] !Relu \"relu2\"\n"
                                                  "  %p, %i = max_pool %r2 {kernel=[2,2], strides=[2,2], "
                                                  "pads=[0,0,0,0], dilations=[1,1]} : f32[2,4,4,4], "
                                                  "i64[2,4,4,4] !MaxPool \"pool\"\n"
                                                  "  %f = reshape %p {shape=[2,64]} : f32[2,64] !Flatten \"flatten\"\n"
                                                  "  %m = matmul %f, @fw, _ : f32[2,5] !MatMul \"fc\"\n"
                                                  "  %d = add %m, @fb : f32[2,5] !Add \"bias\"\n"
                                                  "  %loss, %lse, %lp = softmax_cross_entropy %d, @label, _ "
                                                  "{reduction=\"none\"} : f32[2], f32[2], f32[2,5] "
                                                  "!SoftmaxCrossEntropyLoss \"ce\"\n"
                                                  "  %mean = reduce_mean %loss {axes=[0], keepdims=false} : f32[] "
                                                  "!ReduceMean \"mean\"\n"
                                                  "  output \"y\" = %mean\n"};

#define LN(id, x, p) \
    "  %" id ", %" id "m, %" id "r = layer_norm " x ", @" p "s, @" p \
    "b : f32[8,16], f32[8,1], f32[8,1] !LayerNormalization \"" id "\"\n"
#define LINEAR(id, x, w) LINEAR_OF(id, x, w, "[8,16]")
#define LINEAR_OF(id, x, w, shape) \
    "  %" id "m = matmul " x ", @" w ", _ : f32" shape " !MatMul \"" id "m\"\n" \
    "  %" id " = add %" id "m, @" w "b : f32" shape " !Add \"" id "\"\n"
#define LINEAR_PARAMS(w) "param @" w " : f32[16,16] = zero\nparam @" w "b : f32[16] = zero\n"
#define HEADS(id, x, perm, shape) \
    "  %" id "r = reshape " x " {shape=[8,4,4]} : f32[8,4,4] !Reshape \"" id "r\"\n" \
    "  %" id " = transpose %" id "r {perm=" perm "} : f32" shape " !Transpose \"" id "\"\n"

static const program transformer = {
    "param @ns : f32[16] = zero\nparam @nb : f32[16] = zero\nparam @os : f32[16] = zero\nparam @ob : f32[16] = "
    "zero\n" LINEAR_PARAMS("wq") LINEAR_PARAMS("wk") LINEAR_PARAMS("wv") LINEAR_PARAMS("wo") LINEAR_PARAMS("wf")
        LINEAR_PARAMS("wg") "const @quarter : f32[] = 0.25\nstate @rng : i64[2] = [0, 0]\n",
    "@x : f32[8,16], @mask : f32[1,8,8]",
    LN("ln1", "@x", "n") LINEAR("q", "%ln1", "wq") LINEAR("k", "%ln1", "wk") LINEAR("v", "%ln1", "wv")
        HEADS("qh", "%q", "[1,0,2]", "[4,8,4]") HEADS("kh", "%k", "[1,2,0]", "[4,4,8]") HEADS(
            "vh", "%v", "[1,0,2]",
            "[4,8,4]") "  %qk = matmul %qh, %kh, _ : f32[4,8,8] !MatMul \"qk\"\n"
                       "  %sc = mul %qk, @quarter : f32[4,8,8] !Mul \"scale\"\n"
                       "  %ma = add %sc, @mask : f32[4,8,8] !Add \"masked\"\n"
                       "  %sm = softmax %ma : f32[4,8,8] !Softmax \"softmax\"\n"
                       "  %dr, %dm = dropout %sm, @rng : f32[4,8,8], bool[4,8,8] !Dropout \"dropout\"\n"
                       "  %av = matmul %dr, %vh, _ : f32[4,8,4] !MatMul \"av\"\n"
                       "  %at = transpose %av {perm=[1,0,2]} : f32[8,4,4] !Transpose \"at\"\n"
                       "  %ar = reshape %at {shape=[8,16]} : f32[8,16] !Reshape \"ar\"\n" LINEAR(
                           "o", "%ar", "wo") "  %r1 = add @x, %o : f32[8,16] !Add \"residual1\"\n" LN("ln2", "%r1", "o")
                           LINEAR("f", "%ln2", "wf") "  %ge = gelu %f : f32[8,16] !Gelu \"gelu\"\n" LINEAR(
                               "g", "%ge", "wg") "  %r2 = add %r1, %g : f32[8,16] !Add \"residual2\"\n"
                                                 "  output \"y\" = %r2\n"};

static const program mlp = {
    LINEAR_PARAMS("w0") LINEAR_PARAMS("w1") "state @rng : i64[2] = [0, 0]\n", "@x : f32[8,16]",
    LINEAR("a", "@x", "w0") "  %r0 = relu %a : f32[8,16] !Relu \"relu0\"\n" LINEAR(
        "b", "%r0", "w1") "  %r1 = relu %b : f32[8,16] !Relu \"relu1\"\n"
                          "  %dr, %dm = dropout %r1, @rng : f32[8,16], bool[8,16] !Dropout \"dropout\"\n" MEAN(
                              "%dr") "  output \"y\" = %mean\n"};

/* In PaddlePaddle's test, the guard contains the nodes not named outside/... */
static const program guarded = {
    "param @w : f32[4,1,3,3] = zero\nparam @b : f32[4] = zero\nparam @fw : f32[36,10] = zero\n"
    "param @fb : f32[10] = zero\n" BN_PARAMS("1"),
    "@x : f32[2,1,8,8]",
    "  %c = conv @x, @w, _ " CONV " : f32[2,4,6,6] !Conv \"conv\"\n"
    "  %br = reshape @b {shape=[1,4,1,1]} : f32[1,4,1,1] !Reshape \"reshape\"\n"
    "  %ca = add %c, %br : f32[2,4,6,6] !Add \"add\"\n" BN(
        "1", "%ca",
        "[2,4,6,6]") "  %r = relu %bn1 : f32[2,4,6,6] !Relu \"relu\"\n"
                     "  %p, %i = max_pool %r {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} : "
                     "f32[2,4,3,3], "
                     "i64[2,4,3,3] !MaxPool \"outside/pool\"\n"
                     "  %f = reshape %p {shape=[2,36]} : f32[2,36] !Flatten \"outside/flatten\"\n"
                     "  %m = matmul %f, @fw, _ : f32[2,10] !MatMul \"outside/fc\"\n"
                     "  %d = add %m, @fb : f32[2,10] !Add \"outside/bias\"\n"
                     "  %mean = reduce_mean %d {axes=[0,1], keepdims=false} : f32[] !ReduceMean \"outside/mean\"\n"
                     "  output \"y\" = %mean\n"};

static const program low_input = {
    "param @w : f32[4,1,3,3] = zero\nparam @fw : f32[6,4] = zero\nparam @fb : f32[4] = zero\n",
    "@x : f32[2,1,8,8], @noise : f16[2,4,6,6]",
    "  %c = conv @x, @w, _ " CONV " : f32[2,4,6,6] !Conv \"conv\"\n"
    "  %n = cast @noise : f32[2,4,6,6] !Cast \"cast\"\n"
    "  %a = add %c, %n : f32[2,4,6,6] !Add \"add\"\n"
    "  %m = matmul %a, @fw, _ : f32[2,4,6,4] !MatMul \"fc\"\n"
    "  %d = add %m, @fb : f32[2,4,6,4] !Add \"bias\"\n"
    "  %mean = reduce_mean %d {axes=[0,1,2,3], keepdims=false} : f32[] !ReduceMean \"mean\"\n"
    "  output \"y\" = %mean\n"};

static const program scale_norm = {
    "param @s : f32[4] = zero\nparam @b : f32[4] = zero\nconst @one : f32[] = 1\n", "@x : f32[4,4]",
    "  %p = add @x, @one : f32[4,4] !Add \"scale0\"\n"
    "  %q = mul %p, @one : f32[4,4] !Mul \"scale1\"\n"
    "  %n, %m, %r = layer_norm %q, @s, @b : f32[4,4], f32[4,1], f32[4,1] !LayerNormalization \"norm\"\n"
    "  %t = mul %n, @one : f32[4,4] !Mul \"scale2\"\n"
    "  output \"y\" = %t\n"};

#define EMBEDDING_BODY(fc) \
    "  %e = gather @emb, @ids : f32[8,16] !Gather \"embedding\"\n" \
    "  %c = cast @two : f32[1] !Cast \"cast\"\n" \
    "  %t = mul %e, %c : f32[8,16] !Mul \"times\"\n" fc \
    "  %dr, %keep = dropout %d, @rng : f32[8,16], bool[8,16] !Dropout \"dropout\"\n" MEAN( \
        "%dr") "  output \"y\" = %mean\n"

static const program embedding = {

    "param @emb : f32[128,16] = zero\n" LINEAR_PARAMS("w") "const @two : i64[1] = [2]\nstate @rng : i64[2] = [0, 0]\n",
    "@ids : i64[8]", EMBEDDING_BODY(LINEAR("d", "%t", "w"))};

static const program tied = {"param @emb : f32[16,16] = zero\nparam @embb : f32[16] = zero\nconst @two : i64[1] = [2]\n"
                             "state @rng : i64[2] = [0, 0]\n",
                             "@ids : i64[8]", EMBEDDING_BODY(LINEAR("d", "%t", "emb"))};

/* conv with bias, relu, linear with bias, softmax, mean: the example in PaddlePaddle's operator statistics. */
static const program documented = {
    "param @w : f32[6,1,3,3] = zero\nparam @b : f32[6] = zero\nparam @w2 : f32[4,4] = zero\nparam @b2 : "
    "f32[4] = zero\n",
    "@x : f32[2,1,6,6]",
    "  %conv = conv @x, @w, _ " CONV " : f32[2,6,4,4] !Conv \"conv\"\n"
    "  %r = reshape @b {shape=[1,6,1,1]} : f32[1,6,1,1] !Reshape \"reshape\"\n"
    "  %a = add %conv, %r : f32[2,6,4,4] !Add \"add\"\n"
    "  %e = relu %a : f32[2,6,4,4] !Relu \"relu\"\n"
    "  %m = matmul %e, @w2, _ : f32[2,6,4,4] !MatMul \"matmul\"\n"
    "  %d = add %m, @b2 : f32[2,6,4,4] !Add \"bias\"\n"
    "  %s = softmax %d : f32[2,6,4,4] !Softmax \"softmax\"\n"
    "  %mean = reduce_mean %s {axes=[0,1,2,3], keepdims=false} : f32[] !ReduceMean \"mean\"\n"
    "  output \"y\" = %mean\n"};

/* Gray nodes without low producers, constants, names, integers computed by an f32 op. */
static const program orphans = {"param @w : f32[4,4] = zero\nconst @limit : f32[4] = zero\n",
                                "@x : f32[4,4], @y : f32[4,4], @learning_rate_0 : f32[1]",
                                "  %a = add @x, @y : f32[4,4] !Add \"orphan\"\n"
                                "  %b = max %a, @limit : f32[4,4] !Max \"limit\"\n"
                                "  %l = mul %b, @learning_rate_0 : f32[4,4] !Mul \"lr\"\n"
                                "  %m = matmul %b, @w, _ : f32[4,4] !MatMul \"m\"\n"
                                "  %q = equal @x, @y : bool[4,4] !Equal \"equal\"\n"
                                "  %k = cast %q : f32[4,4] !Cast \"mask\"\n"
                                "  %g = add %m, %k : f32[4,4] !Add \"after\"\n"
                                "  output \"y\" = %g\n  output \"l\" = %l\n"};

/* Operators that are white, black or gray depending on a condition. */
static const program conditions = {
    "param @w5 : f32[2,2,3,3,3] = zero\nparam @wd : f32[4,1,3,3] = zero\nparam @wg : f32[4,2,3,3] = zero\n"
    "param @w : f32[4,4,3,3] = zero\nconst @two : f32[] = 2\nconst @three : f32[] = 3\nconst @zero : f32[] = "
    "0\n"
    "const @six : f32[] = 6\nconst @powers : f32[4,6,6] = zero\n",
    "@x : f32[2,4,8,8], @v : f32[2,2,8,8,8]",
    "  %c3 = conv @v, @w5, _ {strides=[1,1,1], pads=[0,0,0,0,0,0], dilations=[1,1,1]} : f32[2,2,6,6,6] !Conv "
    "\"conv3d\"\n"
    "  %cd = conv @x, @wd, _ {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=4} : f32[2,4,6,6] !Conv "
    "\"depthwise\"\n"
    "  %cg = conv @x, @wg, _ {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=2} : f32[2,4,6,6] !Conv "
    "\"grouped\"\n"
    "  %p, %i = max_pool %cg {kernel=[1,1], strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} : f32[2,4,6,6], "
    "i64[2,4,6,6] !MaxPool \"pool\"\n"
    "  %q, %j = max_pool %cd {kernel=[1,1], strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} : f32[2,4,6,6], "
    "i64[2,4,6,6] !MaxPool \"pool with index\"\n"
    "  %s = mul %cg, %cg : f32[2,4,6,6] !Mul \"square\"\n"
    "  %p2 = pow %cg, @three : f32[2,4,6,6] !Pow \"pow\"\n"
    "  %pt = pow %cg, @powers : f32[2,4,6,6] !Pow \"pow of tensors\"\n"
    "  %r6 = clip %cg, @zero, @six : f32[2,4,6,6] !Clip \"relu6\"\n"
    "  %cl = clip %cg, @zero, @two : f32[2,4,6,6] !Clip \"clip\"\n"
    "  %sl = slice %cg {start=[0,0,0,0], size=[1,4,6,6], step=[1,1,1,1]} : f32[1,4,6,6] !Slice \"slice\"\n"
    "  %st = slice %cg {start=[0,0,0,0], size=[1,2,6,6], step=[1,2,1,1]} : f32[1,2,6,6] !Slice \"strided\"\n"
    "  output \"c3\" = %c3\n  output \"p\" = %p\n  output \"q\" = %q\n  output \"j\" = %j\n  output \"s\" = "
    "%s\n"
    "  output \"p2\" = %p2\n  output \"pt\" = %pt\n  output \"r6\" = %r6\n  output \"cl\" = %cl\n"
    "  output \"sl\" = %sl\n  output \"st\" = %st\n"};

/* ---- rows -------------------------------------------------------------------------------------------------- */

typedef struct row {
    const char *id;
    const program *program;
    const char *profile;
    pass_level level;
    const char *list; /* text of a list file, or NULL */
    int casts;
    const char *types; /* "node=type, ...": of the first result */
} row;

#define PROMOTE "[rules]\npromote = on\n"

/* clang-format off */
static const row rows[] = {
    {"O-1", &black_first, "paddle-3", PASS_O1, NULL, 3, "m=f16, e=f32, add=f16"},
    {"O-1", &black_first, "paddle-2.4", PASS_O1, NULL, 3, "m=f16, e=f32, add=f32"},
    {"O-1", &black_first, "paddle-1.8", PASS_O1, NULL, 3, "m=f16, e=f32, add=f32"},
    {"O-2", &white_first, "paddle-3", PASS_O1, NULL, 3, "m=f16, e=f32, add=f32"},
    {"O-2", &white_first, "paddle-2.4", PASS_O1, NULL, 3, "m=f16, e=f32, add=f32"},
    {"O-2", &white_first, "paddle-1.8", PASS_O1, NULL, 3, "m=f16, e=f32, add=f32"},
    {"O-3", &conv_cast_linear, "paddle-3", PASS_O1, NULL, 9,
     "conv=f16, reshape=f16, add=f16, cast=f32, relu=f16, flatten=f32, matmul=f16, bias=f16, softmax=f32, mean=f32"},
    {"T3", &conv_cast_linear, "paddle-3", PASS_O1, PROMOTE, 6,
     "conv=f16, reshape=f32, add=f32, cast=f32, relu=f32, flatten=f32, matmul=f16, bias=f32, softmax=f32, mean=f32"},
    {"O-3 O2", &conv_cast_linear, "paddle-3", PASS_O2, NULL, 2,
     "conv=f16, reshape=f16, add=f16, cast=f32, relu=f16, flatten=f16, matmul=f16, bias=f16, softmax=f16, mean=f16"},
    {"T5", &conv_cast_linear, "paddle-3", PASS_O2, PROMOTE, 2,
     "conv=f16, reshape=f16, add=f16, cast=f32, relu=f32, flatten=f32, matmul=f16, bias=f16, softmax=f16, mean=f16"},
    {"O-3", &conv_cast_linear, "paddle-2.4", PASS_O1, NULL, 8,
     "conv=f16, reshape=f32, add=f16, cast=f16, relu=f16, flatten=f32, matmul=f16, bias=f16, softmax=f32, mean=f32"},
    {"O-3", &conv_cast_linear, "paddle-1.8", PASS_O1, NULL, 6,
     "conv=f16, reshape=f32, add=f16, cast=f16, relu=f16, flatten=f16, matmul=f16, bias=f16, softmax=f32, mean=f32"},
    {"scaled O2", &scaled, "paddle-3", PASS_O2, NULL, 1, "s=f16, m=f16"},
    {"scaled O2 promote", &scaled, "paddle-3", PASS_O2, PROMOTE, 2, "s=f32, m=f16"},
    {"O-5", &shared_casts, "paddle-3", PASS_O1, NULL, 3, "a=f16, b=f16, add=f16, exp=f32, log=f32, sub=f32"},
    {"O-5", &shared_casts, "paddle-2.4", PASS_O1, NULL, 3, "a=f16, b=f16, add=f16, exp=f32, log=f32, sub=f32"},
    {"O-6", &user_casts, "paddle-3", PASS_O1, NULL, 4, "a=f16, cast=f32, relu=f16, b=f16, int=i64"},
    {"O-6", &user_casts, "paddle-2.4", PASS_O1, NULL, 3, "a=f16, cast=f16, relu=f16, b=f16, int=i64"},
    {"O-8", &conv_bn, "paddle-3", PASS_O1, NULL, 2, "conv=f16, bn1=f16, relu=f16, pool=f16"},
    {"O-8", &conv_bn, "paddle-1.8", PASS_O1, NULL, 2, "conv=f16, bn1=f16, relu=f16, pool=f16"},
    {"O-8 O2", &conv_bn, "paddle-3", PASS_O2, NULL, 1, "conv=f16, bn1=f16, relu=f16, pool=f16"},
    {"O-10", &residual, "paddle-3", PASS_O1, NULL, 8,
     "conv1=f16, bn1=f16, relu1=f16, conv2=f16, bn2=f16, residual=f16, relu2=f16, pool=f16, flatten=f32, fc=f16, bias=f16, "
     "ce=f32, mean=f32"},
    {"O-10 O2", &residual, "paddle-3", PASS_O2, NULL, 1,
     "conv1=f16, bn1=f16, relu1=f16, conv2=f16, bn2=f16, residual=f16, relu2=f16, pool=f16, flatten=f16, fc=f16, bias=f16, "
     "mean=f16"},
    {"O-10 promote", &residual, "paddle-3", PASS_O1, PROMOTE, 6 - 1,
     "conv1=f16, bn1=f16, relu1=f16, conv2=f16, bn2=f16, residual=f16, relu2=f16, pool=f16, flatten=f16, fc=f16, bias=f32, "
     "ce=f32, mean=f32"},
    {"O-11", &transformer, "paddle-3", PASS_O1, NULL, 21,
     "ln1=f32, q=f16, k=f16, v=f16, qk=f16, scale=f16, masked=f16, softmax=f32, dropout=f32, av=f16, at=f16, ar=f16, o=f16, "
     "residual1=f16, ln2=f32, f=f16, gelu=f32, g=f16, residual2=f16"},
    {"O-11 gelu", &transformer, "paddle-3", PASS_O1, "[white]\nGelu\n", 19, "f=f16, gelu=f16, g=f16, residual2=f16"},
    {"O-11 O2", &transformer, "paddle-3", PASS_O2, NULL, 2,
     "ln1=f16, q=f16, masked=f16, softmax=f16, dropout=f16, residual1=f16, ln2=f16, gelu=f16, residual2=f16"},
    {"O-11 O2 promote", &transformer, "paddle-3", PASS_O2, PROMOTE, 6,
     "ln1=f32, q=f16, scale=f16, masked=f32, softmax=f32, dropout=f32, av=f16, residual1=f32, ln2=f32, f=f16, gelu=f16, "
     "residual2=f32"},
    {"O-12", &mlp, "paddle-3", PASS_O1, NULL, 6, "a=f16, relu0=f16, b=f16, relu1=f16, dropout=f16, mean=f32"},
    {"O-12", &mlp, "paddle-2.4", PASS_O1, NULL, 6, "a=f16, relu0=f16, b=f16, relu1=f16, dropout=f16, mean=f32"},
    {"O-12", &mlp, "paddle-1.8", PASS_O1, NULL, 6, "a=f16, relu0=f16, b=f16, relu1=f16, dropout=f16, mean=f32"},
    {"O-14", &mlp, "paddle-3", PASS_O1, "[tensors]\nw0\n", 4,
     "am=f32, a=f32, relu0=f32, bm=f16, b=f16, relu1=f16, dropout=f16, mean=f32"},
    {"O-16 T9", &guarded, "paddle-3", PASS_O2, "[nodes]\noutside/* = fp32\n", 2,
     "conv=f16, reshape=f16, add=f16, bn1=f16, relu=f16, outside/pool=f32, outside/flatten=f32, outside/fc=f32, "
     "outside/bias=f32, outside/mean=f32"},
    {"T7", &low_input, "paddle-3", PASS_OD, NULL, 7, "conv=f16, cast=f32, add=f32, fc=f16, bias=f32, mean=f32"},
    {"T7 lists", &low_input, "paddle-3", PASS_OD, "[white]\nAdd\n[black]\nConv\n", 7,
     "conv=f16, cast=f32, add=f32, fc=f16, bias=f32, mean=f32"},
    {"T10", &scale_norm, "paddle-3", PASS_O2, NULL, 1, "scale0=f16, scale1=f16, norm=f16, scale2=f16"},
    {"scale", &scale_norm, "paddle-3", PASS_O1, NULL, 2, "scale0=f16, scale1=f16, norm=f32, scale2=f32"},
    {"scale", &scale_norm, "paddle-2.4", PASS_O1, NULL, 0, "scale0=f32, scale1=f32, norm=f32, scale2=f32"},
    {"T11", &embedding, "paddle-3", PASS_O1, "[white]\nMul\n[black]\nReduceMean\n", 5,
     "embedding=f32, cast=f32, times=f16, dm=f16, d=f16, dropout=f16, mean=f32"},
    {"T11 O2", &embedding, "paddle-3", PASS_O2, "[white]\nMul\n[black]\nReduceMean\n", 4,
     "embedding=f32, cast=f32, times=f16, dm=f16, d=f16, dropout=f16, mean=f32"},
    {"T2", &embedding, "paddle-3", PASS_O1, "[white]\nGather\n", 5, "embedding=f16, cast=f32, times=f16, dm=f16, d=f16"},
    {"T16", &tied, "paddle-3", PASS_O2, "[white]\nMul\n", 3,
     "embedding=f32, cast=f32, times=f16, dm=f16, d=f16, dropout=f16, mean=f16"},
    {"1.8 embedding", &embedding, "paddle-1.8", PASS_O1, NULL, 4, "embedding=f32, times=f32, dm=f16, d=f16, mean=f32"},
    {"2.4 embedding O2", &embedding, "paddle-2.4", PASS_O2, NULL, 1,
     "embedding=f32, times=f16, dm=f16, d=f16, dropout=f16, mean=f16"},
    {"statistics", &documented, "paddle-2.4", PASS_O1, NULL, 6,
     "conv=f16, reshape=f32, add=f16, relu=f16, matmul=f16, bias=f16, softmax=f32, mean=f32"},
    {"statistics", &documented, "paddle-3", PASS_O1, NULL, 6,
     "conv=f16, reshape=f16, add=f16, relu=f16, matmul=f16, bias=f16, softmax=f32, mean=f32"},
    {"orphans", &orphans, "paddle-3", PASS_O1, NULL, 6, "orphan=f16, limit=f16, lr=f32, m=f16, mask=f32, after=f16"},
    {"orphans", &orphans, "paddle-2.4", PASS_O1, NULL, 3, "orphan=f32, limit=f32, lr=f32, m=f16, mask=f32, after=f32"},
    {"conditions", &conditions, "paddle-3", PASS_O1, NULL, 5,
     "conv3d=f32, depthwise=f32, grouped=f16, pool=f16, pool with index=f16, square=f32, pow=f32, pow of tensors=f16, "
     "relu6=f16, clip=f32, slice=f16, strided=f32"},
    {"conditions", &conditions, "paddle-2.4", PASS_O1, NULL, 4,
     "conv3d=f32, depthwise=f32, grouped=f16, pool=f16, pool with index=f32, square=f32, pow=f32, pow of tensors=f16, "
     "relu6=f16, clip=f32, slice=f16, strided=f32"},
};
/* clang-format on */

/* ---- running a row ----------------------------------------------------------------------------------------- */

static const char *type_of(const ir_module *m, const char *node, size_t length)
{
    for (const ir_node *n = m->graphs.items[0]->first; n; n = n->next)
        if (n->loc.op && strlen(n->loc.node) == length && strncmp(n->loc.node, node, length) == 0)
            return ir_dtype_name(n->out[0]->type.dtype);
    return "absent";
}

static void check_types(const row *r, const ir_module *m, ir_dtype low)
{
    for (const char *p = r->types; *p; p += strspn(p, ", ")) {
        const char *equals = strchr(p, '=');
        size_t length = strcspn(equals + 1, ",");
        const char *got = type_of(m, p, (size_t)(equals - p));
        const char *want = low == IR_bf16 && strncmp(equals + 1, "f16", 3) == 0 ? "bf16" : NULL;
        bool same = want ? strcmp(got, want) == 0 : strlen(got) == length && strncmp(got, equals + 1, length) == 0;
        if (!same)
            fail_msg("%s, %s, O%d: '%.*s' is %s, not %.*s", r->id, r->profile, (int)r->level, (int)(equals - p), p, got,
                     (int)length, equals + 1);
        p = equals + 1 + length;
    }
}

static void run(scratch *t, const row *r, ir_dtype low)
{
    messages[0] = '\0';
    diag *d = diag_new(collect, NULL);
    ir_module *m = parse(r->program, d);
    arena *a = arena_new(0);
    compile *c;
    compile_options o = compile_options_default();
    const char *list = scratch_path(t, "row.amplist");
    if (r->list) {
        FILE *f = fopen(list, "w");
        assert_non_null(f);
        fputs(r->list, f);
        fclose(f);
        o.lists = (pass_strings){&list, 1};
    }
    o.profile = r->profile;
    o.level = r->level;
    o.low = low;
    o.keep_io_types = false;
    o.pipeline.verify_each = true;
    if (compile_load(&o, a, d, &c) != AMPC_OK || pass_run(m, "amp", c) != AMPC_OK)
        fail_msg("%s, %s: %s", r->id, r->profile, messages);
    check_types(r, m, low);
    if (c->report.casts_inserted != r->casts)
        fail_msg("%s, %s, O%d: %d casts, not %d", r->id, r->profile, (int)r->level, c->report.casts_inserted, r->casts);
    /* and the clean-up passes keep the graph valid */
    static const char *const clean[] = {"fold_casts", "cse", "dce"};
    for (int i = 0; i < 3; i++)
        if (pass_run(m, clean[i], c) != AMPC_OK) fail_msg("%s: %s", r->id, messages);
    ir_module_free(m);
    diag_free(d);
    arena_free(a);
}

static void test_rows(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run(*state, &rows[i], IR_f16);
}

static void test_rows_bf16(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].program != &low_input) run(*state, &rows[i], IR_bf16);
}

/* A target without kernels has the highest priority, even over white entries of the user; profile 1.8 never checks
 * it. */
static void test_unsupported(void **state)
{
    scratch *t = *state;
    FILE *f = fopen(scratch_path(t, "device.txt"), "w");
    assert_non_null(f);
    fputs("# no kernels for\nMatMul\n\nRelu\n", f);
    fclose(f);
    static const char list[] = "[white]\nMatMul\n[rules]\nunsupported = device.txt\n";
    run(t, &(row){"unsupported", &mlp, "paddle-3", PASS_O1, list, 0, "am=f32, a=f32, relu0=f32, relu1=f32"}, IR_f16);
    run(t, &(row){"unsupported", &mlp, "paddle-1.8", PASS_O1, list, 6, "am=f16, a=f16, relu0=f16"}, IR_f16);
    run(t, &(row){"unsupported", &mlp, "paddle-2.4", PASS_O1, list, 6, "am=f16, a=f16, relu0=f16"}, IR_f16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_rows_bf16, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_unsupported, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
