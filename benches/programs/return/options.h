/* The command line of `return`: what main.c runs and how long it watches. */
#ifndef BENCH_RETURN_OPTIONS_H
#define BENCH_RETURN_OPTIONS_H

#include <stdbool.h>

#include "return/patterns.h"

enum { SAMPLES_MOST = 4096 };

struct options {
    double rest_s;
    double every_s;
    const char *refuse;
    bool refuse_late; /* by the program itself, when the allocator already runs */
    bool stacks; /* counted against the allocator */
};

/* Names of enum afterwards. */
enum { AFTERWARDS = 4 };
extern const char *const afterwards_names[AFTERWARDS];

/* Settles the plan and the options, or ends the program with the usage. */
void options_parse(int argc, char **argv, struct plan *plan, struct options *options);

#endif
