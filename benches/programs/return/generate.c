/* Everything is drawn before the first thread starts, from a generator of its own, so
 * a seed gives the same phases under every allocator. The ranges are wide on purpose:
 * from one thread to 32, from 8 bytes to 4 MiB, from no survivor to a third. */
#include "return/return.h"

#include <string.h>
#include <time.h>

/* OBJECTS_MOST bounds a phase's time where objects are tiny. */
enum { PHASES_MOST = 6, FIXED_MOST = 6, OBJECTS_MOST = 3000000 };

enum size_kind { RANGE, FIXED, MIXTURE, SIZE_KINDS };
enum lifetime { RANDOM_ORDER, OLDEST_FIRST, WINDOW, LIFETIMES };
static const char *const size_names[] = {"range", "fixed", "mixture"};
static const char *const lifetime_names[] = {"random order", "oldest first", "window"};

struct phase {
    enum size_kind sizes;
    double low_bytes, high_bytes; /* range, and the small ones of a mixture */
    size_t fixed_bytes[FIXED_MOST];
    unsigned fixed_count;
    double large_share; /* of a mixture's objects, up to LARGE_BYTES */
    enum lifetime lifetime;
    double volume; /* requested in all, as a share of the total; a window's own is less */
    double survive;
    int by_neighbour; /* the next thread frees what this one allocated */
    unsigned pause_ms; /* before the phase */
};

struct generated {
    struct phase phases[PHASES_MOST];
    unsigned count;
};

static struct generated drawn;
static const double LARGE_BYTES = 4.0 * 1024 * 1024;

static double between(struct random_state *random, double low, double high)
{
    return low + random_unit(random) * (high - low);
}

static void draw_phase(struct random_state *random, struct phase *phase)
{
    phase->sizes = random_below(random, SIZE_KINDS);
    phase->low_bytes = (double)random_log_uniform(random, 8, 16 << 10);
    phase->high_bytes = phase->low_bytes * (double)random_log_uniform(random, 2, 256);
    phase->fixed_count = 1 + random_below(random, FIXED_MOST);
    for (unsigned i = 0; i < phase->fixed_count; i++)
        phase->fixed_bytes[i] = random_log_uniform(random, 8, 64 << 10);
    phase->large_share = random_unit(random) * 0.01;
    phase->lifetime = random_below(random, LIFETIMES);
    phase->volume = between(random, 0.3, 1.0);
    /* A quarter of the phases leaves nothing, the others between a third and a thousandth. */
    phase->survive = random_below(random, 4) == 0 ? 0 : exp(between(random, log(0.001), log(0.33)));
    phase->by_neighbour = random_below(random, 3) == 0;
    phase->pause_ms = random_below(random, 2) ? random_below(random, 400) : 0;
}

void draw_generated(struct plan *plan)
{
    struct random_state random = random_seeded(plan->seed ^ 0x67656e6572617465u);
    plan->threads = 1u << random_below(&random, 6);
    plan->total_bytes = random_log_uniform(&random, 16 << 20, 256 << 20);
    plan->after = random_below(&random, 4);
    drawn.count = 1 + random_below(&random, PHASES_MOST);
    for (unsigned i = 0; i < drawn.count; i++)
        draw_phase(&random, &drawn.phases[i]);
    plan->generated = &drawn;
}

static size_t size_of(const struct phase *phase, struct random_state *sizes)
{
    if (phase->sizes == FIXED)
        return phase->fixed_bytes[random_below(sizes, phase->fixed_count)];
    if (phase->sizes == MIXTURE && random_unit(sizes) < phase->large_share)
        return random_log_uniform(sizes, phase->high_bytes, LARGE_BYTES);
    return random_log_uniform(sizes, phase->low_bytes, phase->high_bytes);
}

/* Takes one object out of the ledger's present phase: it survives and moves below the
 * mark, or it is freed. */
static size_t decide(struct worker *worker, struct ledger *ledger, size_t index, const struct phase *phase,
                     struct random_state *fates)
{
    struct entry *chosen = &ledger->entries[index];
    size_t freed_bytes = chosen->size_bytes;
    if (random_unit(fates) < phase->survive) {
        struct entry survivor = *chosen;
        *chosen = ledger->entries[ledger->mark];
        ledger->entries[ledger->mark++] = survivor;
    } else {
        worker->wrong_bytes += ledger_free(chosen);
        *chosen = ledger->entries[--ledger->count];
    }
    return freed_bytes;
}

static void allocate_phase(struct worker *worker, struct ledger *ledger, const struct phase *phase,
                           struct random_state *sizes, struct random_state *fates)
{
    size_t quota_bytes = (size_t)(phase->volume * (double)worker->plan->total_bytes / worker->plan->threads);
    size_t window_bytes = phase->lifetime == WINDOW ? quota_bytes / 4 : quota_bytes;
    size_t before = worker->requested_bytes, held = 0, objects_left = OBJECTS_MOST / worker->plan->threads;
    while (worker->requested_bytes - before < quota_bytes && objects_left-- > 0) {
        size_t size_bytes = size_of(phase, sizes);
        while (held + size_bytes > window_bytes && phase->lifetime == WINDOW && ledger->count > ledger->mark) {
            size_t width = ledger->count - ledger->mark;
            held -= decide(worker, ledger, ledger->mark + random_below(fates, (uint32_t)width), phase, fates);
        }
        allocate(worker, ledger, size_bytes);
        held += size_bytes;
    }
}

/* The end of a phase: all that is above the mark is decided, in the phase's order. */
static void end_phase(struct worker *worker, struct ledger *ledger, const struct phase *phase,
                      struct random_state *fates)
{
    if (phase->lifetime == OLDEST_FIRST) {
        for (size_t i = ledger->mark; i < ledger->count; i++)
            if (random_unit(fates) >= phase->survive)
                worker->wrong_bytes += ledger_free(&ledger->entries[i]);
    } else {
        thin(worker, ledger, ledger->mark, phase->survive, fates);
    }
    ledger_squeeze(ledger, ledger->mark);
}

void burst_generated(struct worker *worker)
{
    struct plan *plan = worker->plan;
    struct random_state sizes = generator(worker, 1), fates = generator(worker, 2);
    for (unsigned i = 0; i < plan->generated->count; i++) {
        const struct phase *phase = &plan->generated->phases[i];
        struct timespec pause = {0, phase->pause_ms * 1000000L};
        nanosleep(&pause, NULL);
        struct ledger *own = &plan->ledgers[worker->index];
        own->mark = own->count;
        allocate_phase(worker, own, phase, &sizes, &fates);
        pthread_barrier_wait(&plan->all_threads);
        unsigned whose = phase->by_neighbour ? (worker->index + 1) % plan->threads : worker->index;
        end_phase(worker, &plan->ledgers[whose], phase, &fates);
        pthread_barrier_wait(&plan->all_threads);
    }
}

void print_generated(const struct generated *generated, FILE *out)
{
    fprintf(out, "[");
    for (unsigned i = 0; i < generated->count; i++) {
        const struct phase *phase = &generated->phases[i];
        fprintf(out, "%s\n  {\"sizes\": \"%s\", \"lifetime\": \"%s\", \"volume\": %.3f, \"survive\": %.4f, ", i ? "," : "",
                size_names[phase->sizes], lifetime_names[phase->lifetime], phase->volume, phase->survive);
        if (phase->sizes == FIXED) {
            fprintf(out, "\"fixed_bytes\": [");
            for (unsigned j = 0; j < phase->fixed_count; j++)
                fprintf(out, "%s%zu", j ? ", " : "", phase->fixed_bytes[j]);
            fprintf(out, "], ");
        } else {
            fprintf(out, "\"low_bytes\": %.0f, \"high_bytes\": %.0f, ", phase->low_bytes, phase->high_bytes);
        }
        if (phase->sizes == MIXTURE)
            fprintf(out, "\"large_share\": %.4f, ", phase->large_share);
        fprintf(out, "\"freed_by_neighbour\": %s, \"pause_ms\": %u}", phase->by_neighbour ? "true" : "false",
                phase->pause_ms);
    }
    fprintf(out, "]");
}
