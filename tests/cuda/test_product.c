/* test_product.c - convolutions that become matmuls on CUDA: plans as text. The goldens test their values: MobileNet, EfficientNet
 * and ConvNeXt have such convolutions in each direction, with and without bias. */
#include "tests/unit/plan_text.h"

TEST(a_kernel_of_one_element_is_a_product)
{
    plan_text_expect(
        "cuda",
        "param @w : f16[16,8,1,1] = zero\nparam @b : f16[16] = zero\n"
        "graph @g(@x : f16[N,8,4,4], @dy : f16[N,16,4,4]) {\nforward:\n"
        "  %y = conv @x, @w, @b {strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} : f16[N,16,4,4]\n"
        "  output \"y\" = %y\nbackward:\n"
        "  %dx = conv_grad_input @dy, @w {shape=[N,8,4,4], strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} :"
        " f16[N,8,4,4]\n"
        "  %dw, %db = conv_grad_weight @dy, @x {shape=[16,8,1,1], strides=[1,1], pads=[0,0,0,0],"
        " dilations=[1,1], out=f32} : f32[16,8,1,1], f32[16]\n"
        "  output \"dx\" = %dx\n  output \"dw\" = %dw\n  output \"db\" = %db\n}\n",
        "plan @g N=2: 7 steps\n"
        "   0  transpose            @x\n"
        "        %x' : f16[2,4,4,8]\n"
        "   1  matmul               %x', @w, @b\n"
        "        %y : f16[32,16]\n"
        "   2  transpose            %y\n"
        "        %y' : f16[2,16,4,4]\n"
        "   3  transpose            @dy\n"
        "        %dy' : f16[2,4,4,16]\n"
        "   4  matmul               %dy', @w\n"
        "        %dx : f16[32,8]\n"
        "   5  transpose            %dx\n"
        "        %dx' : f16[2,8,4,4]\n"
        "   6  matmul               %dy', %x', _\n"
        "        %dw : f32[16,8]\n"
        "        %db : f32[16]\n"
        "output \"y\"\n"
        "output \"dx\"\n"
        "output \"dw\"\n"
        "output \"db\"\n");
}

static int products(const char *text)
{
    plan_text t;
    int n = 0;
    plan_text_open(&t, "cuda", text);
    if (plan_text_make(&t, true) != AMPC_OK) fail_msg("%s", diag_first_error(t.d));
    for (int i = 0; i < t.plan->n_steps; i++) n += t.plan->steps[i]->op == IR_OP_matmul;
    plan_text_close(&t);
    return n;
}

#define CONV(type, kernel, attributes) \
    "param @w : " type "[8," kernel "] = zero\n" \
    "graph @g(@x : " type "[N,8,4,4]) {\nforward:\n" \
    "  %y = conv @x, @w, _ {" attributes ", dilations=[1,1]} : " type "[N,8,"

/* Larger kernels, strides or padding, groups; f32, which stays in NCHW. */
TEST(others_stay_convolutions)
{
    const char *const end = "  output \"y\" = %y\n}\n";
    const char *const texts[] = {
        CONV("f16", "8,3,3", "strides=[1,1], pads=[1,1,1,1]") "4,4]\n",
        CONV("f16", "8,1,1", "strides=[2,2], pads=[0,0,0,0]") "2,2]\n",
        CONV("f16", "8,1,1", "strides=[1,1], pads=[1,1,1,1]") "6,6]\n",
        CONV("f16", "1,1,1", "strides=[1,1], pads=[0,0,0,0], group=8") "4,4]\n",
        CONV("f32", "8,1,1", "strides=[1,1], pads=[0,0,0,0]") "4,4]\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *text;
        assert_true(asprintf(&text, "%s%s", texts[i], end) > 0);
        assert_int_equal(products(text), 0);
        free(text);
    }
}
