/* A pattern that nobody chose: sizes, lifetimes, phases, threads and what follows are
 * drawn from the seed alone. Used by patterns.c; described in the output by main.c. */
#ifndef BENCH_RETURN_GENERATE_H
#define BENCH_RETURN_GENERATE_H

#include <stdio.h>

#include "return/patterns.h"

void draw_generated(struct plan *plan);
void burst_generated(struct worker *worker);

/* Writes what was drawn as a JSON array, one object a phase. */
void print_generated(const struct generated *generated, FILE *out);

#endif
