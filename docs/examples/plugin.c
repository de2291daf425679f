/* plugin.c - the operator of scaled_tanh.h as a plug-in for the programs:
 *
 *     cc -O2 -shared -fPIC plugin.c -o libplugin.so -lm $(pkg-config --cflags --libs ampc)
 *     ampc-run train custom.onnx --operators=libplugin.so --loss=mse --data=synthetic */
#include "scaled_tanh.h"

AMPC_PLUGIN(&scaled_tanh)
